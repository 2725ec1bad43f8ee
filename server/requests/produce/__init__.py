"""What a Produce does beside its handler: appends and waits, transactions, requests that are held because they take
long.
"""

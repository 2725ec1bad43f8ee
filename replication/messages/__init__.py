"""What the controller wants done (`effects`), and how it says so to other brokers (`wire`). May import `values` and
`store`.
"""

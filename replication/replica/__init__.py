"""The two ends of replication: what a leader knows of its followers, and what a follower asks and does. May import
`values`.
"""

"""This broker as a member of its cluster, and perhaps its controller.

`member` registers the broker, keeps the session, and takes part in elections; a `term` carries out the controller's
decisions, `channels` send them to other brokers, `receiver` applies those for this one. Requests about topics and
partitions reach the controller through `topic_requests` and `partition_requests`; `leader_balance` triggers preferred
elections. May import `network` and below, not `partitions`.

Not obvious: a broker alone uses the same code; its elections always succeed, and its store is a file.
"""

"""This broker as a member of its cluster, and perhaps its controller.

`member` joins, keeps the session, and stands for election; a `term` of office decides, `channels` send what is decided
to other brokers, `receiver` does what is meant for this one. Requests about topics and partitions come in through
`topic_requests` and `partition_requests`, at the controller; `leader_balance` asks it now and then. May
import `network` and below, not `partitions`.

Not obvious: a broker alone takes the same way; its elections always succeed, and its store is a file.
"""

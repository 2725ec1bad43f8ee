"""Access control lists: a principal's operations on resources, decided as by Apache Kafka's authorizers.

`model` has the values and Kafka's numbers, `index` finds the entries of a resource, `rules` decides, `authorizer` is
the interface for all checks, `filters` and `validation` are for the admin APIs, `operations` lists the operations on
each kind of resource. Where entries are stored is not known here (`replication/tree/acl_nodes.py`,
`server/cluster/acls.py`).

Not obvious:

- One entry for *anybody* ends "allow everyone" for the resources it speaks of.
- A Deny never implies: denying Read leaves Describe allowed, though allowing Read allows Describe.
- Addresses are compared as addresses, so `::1` and `0:0:0:0:0:0:0:1` are one host. Apache Kafka compares text, and
  knows the long form only.
"""

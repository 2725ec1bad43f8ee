"""The table of access: what every request is answered that comes from somebody with just these permissions.

A *probe* is one request of one API, in all its versions (`probes/`). A *scenario* is who asks: with which ACLs, for
whom, from which host, as a super user (`scenarios.py`); most are made from what the probe says that it needs. A *cell*
is a probe, a scenario and a version; its *outcome* is what matters of the answer, as text (`outcomes.py`): error codes
where they stand, what is named, bit fields of permissions, what is null or empty, a closed connection.

| file | what it holds |
| --- | --- |
| `apache_kafka.json` | the cells of Apache Kafka; nobody writes it by hand |
| `differences.py` | where ours is another, and why |
| `docs/access-table.md` | the same for people |

There are three tables (`table.py`): of 4.3.1 with StandardAuthorizer; of the same with
`allow.everyone.if.no.acl.found`, in the last version only; and of 3.9.1 with ZooKeeper, what 4.3.1 does not serve any
more.

`server/tests/whole/test_access_table.py` asks our broker; `test_table.py` here asks Apache Kafka again. After a change
of probes or scenarios:

    python -m compat_tests.subjects.access          # starts Apache Kafka, writes its cells and the page
    python -m compat_tests.subjects.access --page   # the page alone

Names of requests, permissions and outcomes are built with `kproto`: as in the fuzzer, a second description of the
protocol would be one to keep true.
"""

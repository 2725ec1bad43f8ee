"""The metadata store, a small tree of versioned nodes: its interface, the embedded one with its journal, the one that
the brokers of a machine share, ZooKeeper's.

`store` is the interface, `memory` the embedded store, `socket_store` the one that serves it to several brokers over a
Unix socket, `zk` the one on ZooKeeper. Imports no other room. The only room of this package with IO: the journal's
files, streams that others have opened, and kazoo's sockets and thread.

Not obvious:

- A commit is encoded before the tree of the embedded store changes, so only the disk can refuse it after that, and then
  the broker ends in order. The journal's descriptors stay open (`journal_files`): being out of descriptors is not that
  case.
- In the embedded store of one broker a restart ends the session. In the one of several brokers sessions last, as in
  ZooKeeper: they and their ephemeral nodes are in the journal, and begin anew with their whole time-out.
- The three kinds of `Store` mean the same by a lost connection: `zk.py` says what.
"""

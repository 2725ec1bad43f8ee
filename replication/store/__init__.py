"""The metadata store, a small tree of versioned nodes: its interface, the embedded one with its journal, ZooKeeper's.

`store` is the interface, `memory` the embedded store, `zk` the one on ZooKeeper. Imports no other room. The only room
of this package with IO: the journal's files, and kazoo's sockets and thread.

Not obvious:

- A commit is encoded before the tree of the embedded store changes, so only the disk can refuse it after that, and then
  the broker ends in order. The journal's descriptors stay open (`journal_files`): being out of descriptors is not that
  case.
"""

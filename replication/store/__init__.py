"""The metadata store, a small tree of versioned nodes: its interface, the embedded one with its journal, ZooKeeper's.

`store` is the interface, `memory` the embedded store, `zk` the one on ZooKeeper. Imports no other room. The only room
of this package with IO: the journal's files, and kazoo's sockets and thread.
"""

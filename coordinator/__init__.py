"""Coordinator machines: consumer groups and transactions as values in, values out. See ARCHITECTURE.md.

Nothing here knows tasks, sockets, clocks or files; `server.shards` drives it. The shape of every machine is in
`coordinator.machine`. Transactions have a face of their own, `coordinator.txn`.
"""

from coordinator.group.answers import join_error, sync_error
from coordinator.group.config import GroupConfig, GroupSettings
from coordinator.group.member_step import ResolvePatterns
from coordinator.group.modern import check_heartbeat
from coordinator.group.shard import FetchedOffset, GroupShard, OffsetToCommit
from coordinator.group.topics import Topic, Topics
from coordinator.machine import NOTHING, Deadlines, Now, Record, Reply, Result, StepFailed
from coordinator.placement import java_string_hash, partition_for

__all__ = [
    "NOTHING",
    "Deadlines",
    "FetchedOffset",
    "GroupConfig",
    "GroupSettings",
    "GroupShard",
    "Now",
    "OffsetToCommit",
    "Record",
    "Reply",
    "ResolvePatterns",
    "Result",
    "StepFailed",
    "Topic",
    "Topics",
    "check_heartbeat",
    "java_string_hash",
    "join_error",
    "partition_for",
    "sync_error",
]

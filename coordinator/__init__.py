"""Coordinator machines: consumer groups and transactions as values in, values out. See ARCHITECTURE.md.

Nothing here knows tasks, sockets, clocks or files; `barnabas.server.coordinators.runtime` drives it. The shape of every
machine is in `barnabas.coordinator.machine`. Transactions have a face of their own, `barnabas.coordinator.txn`, and so
has what becomes of records in share groups, `barnabas.coordinator.share`.

Not obvious:

- A machine need not read what it has just written: a record of a commit carries its meaning along (`Record.meaning`,
  or `CommitRecords` for all of one), which `replay_decided` takes instead of key and value. The tests' kit compares the
  two, and the bytes, for every record that any test decides.
"""

from barnabas.coordinator.commit_records import CommitLayout, CommitRecords, RepeatedCommit
from barnabas.coordinator.group.answers import join_error, sync_error
from barnabas.coordinator.group.config import GroupConfig, GroupSettings
from barnabas.coordinator.group.consumer.group import check_heartbeat
from barnabas.coordinator.group.consumer.member_step import ResolvePatterns
from barnabas.coordinator.group.offset_operations import FetchedOffset, OffsetToCommit
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.topics import Topic, Topics
from barnabas.coordinator.machine import NOTHING, Callback, Deadlines, Now, Record, Reply, Result, StepFailed
from barnabas.coordinator.placement import java_string_hash, partition_for

__all__ = [
    "NOTHING",
    "Callback",
    "CommitLayout",
    "CommitRecords",
    "Deadlines",
    "FetchedOffset",
    "GroupConfig",
    "GroupSettings",
    "GroupShard",
    "Now",
    "OffsetToCommit",
    "Record",
    "RepeatedCommit",
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

"""In-sync replicas before AlterPartition (inter-broker protocol below 2.7-IV2): the leader writes its partition's state
node, if it is unchanged, and a notification makes the controller read it.

Source: `ReplicationUtils.scala`, `ZkAlterPartitionManager.scala`.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kproto import ErrorCode
from barnabas.replication.replica.leader import Proposal
from barnabas.replication.store.store import CommitRefused, Create, NoSuchNode, Set, Store
from barnabas.replication.tree import paths


async def write_isr(store: Store, leader: int, topic: str, index: int, proposal: Proposal) -> int | ErrorCode:
    """Write the ISR that broker `leader` proposes. Returns the new partition epoch, or why it was not written:
    UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION.

    May be repeated after a ConnectionLost. Raises StoreError, BadNode.
    """
    path = paths.state(topic, index)
    node = await store.get(path)
    if node is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = paths.decode_state(path, node.data)
    if found.leader_epoch != proposal.leader_epoch or found.leader != leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    if node.version != proposal.partition_epoch:
        # Was it written the last time, and only the answer got lost?
        same = found.isr == proposal.isr and not found.recovering
        return node.version if same else ErrorCode.INVALID_UPDATE_VERSION
    state = found._replace(isr=proposal.isr, recovering=False)
    try:
        await store.commit([Set(path, paths.encode_state(state), node.version)])
    except CommitRefused as refused:
        gone = isinstance(refused, NoSuchNode)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.INVALID_UPDATE_VERSION
    return node.version + 1


async def notify_isr_changes(store: Store, partitions: Iterable[tuple[str, int]]) -> None:
    """Notify the controller that these states were written. Raises StoreError."""
    data = paths.encode_partitions(partitions)
    await store.commit([Create(f"{paths.ISR_CHANGES}/isr_change_", data, sequential=True)])

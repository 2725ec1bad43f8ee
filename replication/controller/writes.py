"""How the controller writes: states in commits of limited size, and topics' nodes one writer at a time.

A write that may be refused because a leader changed the state at the same moment is decided again from what is there.
`effects.Work` says how: it ties the commits of one purpose together, and says what follows when all have an outcome.

    states ─► commits(states, work) ─► Commit … ─► committed: image, work.announce(changes) ──┐ no other outstanding:
                                          └► refused: image from the store, work.decide ─► … ─┘ work.done()

A topic's node holds the assignment of all its partitions, so a writer decides only when the writer before has
its outcome (`in_turn`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.replication.controller.state import ClusterState
from barnabas.replication.messages.effects import Commit, Effect, PartitionChange, Work
from barnabas.replication.store.store import Create, Op, Set
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import state_node

STATES_PER_COMMIT = 500
MAX_ATTEMPTS = 20
"""So often one thing is written; then the request fails, or the next event tries again."""


class Writes:
    """See the module. Of the state it changes `assigning` alone."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def commits(
        self, states: Sequence[PartitionChange], work: Work, *, ensure: bool = False, attempt: int = 0
    ) -> list[Effect]:
        """Write states, of which there may be none. ensure: nodes above them may be missing."""
        effects: list[Effect] = []
        for start in range(0, len(states), STATES_PER_COMMIT):
            chunk = states[start : start + STATES_PER_COMMIT]
            ops: list[Op] = [self._state.guard]
            parents: dict[str, None] = {}
            for state in chunk:
                ops += self.state_ops(state, made=ensure)
                if state.is_new and (ensure or not self._has_root(state.topic)):
                    parents[paths.partitions(state.topic)] = None
                if state.is_new and ensure:
                    parents[paths.partition(state.topic, state.partition.index)] = None
            work.outstanding += 1
            effects.append(Commit(tuple(ops), states=tuple(chunk), ensure=tuple(parents), attempt=attempt, work=work))
        return effects

    def start(self, states: Sequence[PartitionChange], work: Work) -> list[Effect]:
        """`commits`, or what follows if there is nothing to write."""
        return self.commits(states, work) if states else work.done()

    def _has_root(self, topic: str) -> bool:
        known = self._state.image.topics.get(topic)
        return topic in self._state.rooted or (known is not None and any(p.has_state for p in known.partitions))

    def state_ops(self, change: PartitionChange, *, made: bool) -> list[Op]:
        """Write one state. made: the node above it is there."""
        partition = change.partition
        data = paths.encode_state(state_node(partition, self._state.epoch))
        path = paths.state(change.topic, partition.index)
        if not change.is_new:
            return [Set(path, data, partition.partition_epoch - 1)]
        above: list[Op] = [] if made else [Create(paths.partition(change.topic, partition.index))]
        return [*above, Create(path, data)]

    def in_turn(self, topic: str, write: Callable[[], list[Effect]]) -> list[Effect]:
        """Write a topic's node, after earlier writes of it.

        `write` decides when its turn has come; its commit carries a `Work` with `topic`, or it calls `next_in_turn`.
        """
        waiting = self._state.assigning.get(topic)
        if waiting is not None:
            waiting.append(write)
            return []
        self._state.assigning[topic] = deque()
        return write()

    def next_in_turn(self, topic: str) -> list[Effect]:
        """The present writer of this topic's node has its outcome, or wrote nothing."""
        waiting = self._state.assigning.get(topic)
        if not waiting:
            self._state.assigning.pop(topic, None)
            return []
        return waiting.popleft()()


def written(change: PartitionChange) -> PartitionChange:
    """With the version that its state node will have."""
    partition = change.partition
    return replace(change, partition=replace(partition, partition_epoch=partition.partition_epoch + 1))

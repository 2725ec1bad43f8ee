"""/admin/reassign_partitions: the moves that an old tool has asked for, and that have not ended.

A partition is taken out of the node when it has arrived, could not begin, or got another target; with the last one the
node is removed. The tool reads the node to see what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.replication.controller.state import ClusterState, TopicPartition
from barnabas.replication.messages.effects import Commit, Effect, Work
from barnabas.replication.store.store import Delete, Op, Set
from barnabas.replication.tree import paths

Wanted = Mapping[TopicPartition, tuple[int, ...]]


class ReassignmentsNode:
    """See the module. Changes nothing of the state.

    `_wanted`: what the node shall hold, partition → target. `_writing`: what is being written to it; there is one
    write at a time, as commits that stand together happen in any order.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._wanted: Wanted = {}
        self._writing: Wanted | None = None

    def seen(self, wanted: Wanted | None) -> Wanted:
        """The node as it was read, None if there is none. Returns what of it is new."""
        if self._writing is not None:  # what was read is out of date, and there will be another look
            return {}
        before, self._wanted = self._wanted, dict(wanted or {})
        return {key: target for key, target in self._wanted.items() if before.get(key) != target}

    def arrived(self, keys: Iterable[TopicPartition]) -> list[Effect]:
        """The moves of these partitions may have ended: those that are where the tool wants them leave the node."""
        ended = []
        for key in keys:
            partition = self._state.image.partition(*key)
            if partition is None or (not partition.is_reassigning and self._wanted.get(key) == partition.replicas):
                ended.append(key)
        return self.drop(ended)

    def drop(self, keys: Iterable[TopicPartition]) -> list[Effect]:
        """These partitions leave the node."""
        gone = self._wanted.keys() & set(keys)
        if not gone:
            return []
        self._wanted = {key: target for key, target in self._wanted.items() if key not in gone}
        return self._write()

    def _write(self) -> list[Effect]:
        if self._writing is not None:
            return []
        content = self._writing = self._wanted

        def done() -> list[Effect]:
            self._writing = None
            return [] if content == self._wanted else self._write()

        path = paths.REASSIGNMENTS
        op: Op = Set(path, paths.encode_reassignments(content)) if content else Delete(path)
        work = Work(lambda change: None, lambda changes: [], done, outstanding=1)
        return [Commit((self._state.guard, op), work=work)]

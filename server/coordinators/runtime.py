"""Runs a coordinator's machines: one shard per partition of an internal topic that this broker leads.

    handler or timer → shard operation → Result → `Results.apply` → answers

`CoordinatorRuntime` is the face of parts that share a `CoordinatedShard` per partition:

    coordinated_shard.py    a partition, its shard, its state; the coordinator's interface (`Subject`)
    loader.py               from the log to a shard that is served
    results.py              from a shard's decisions to the answers; its deadlines
    internal_topic.py       the partition of a key; creation of the topic

Here: roles. `lead` and `resign` are called in the order of the partition's leader epochs, on this thread, so a late
call cannot undo a newer one; what is in progress (a load, a held answer) belongs to one `CoordinatedShard` and ends
with it. When a log directory goes offline its shards are dropped (`resign`). When a write fails though the log is
usable (the process lacked descriptors, say), the machine has replayed what was never written: waiting clients get an
error, and the shard is loaded again (`write_failed`). Either way nothing replayed from a lost write is ever served.

A token is anything with `reply(response)`: a RequestContext, or a handler's own collector. The machines and their
operations are the coordinator's: `barnabas.server.coordinators.groups`, `barnabas.server.coordinators.transactions`.
Prior art: Apache Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic

import trio

from barnabas.coordinator import Now, Result
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard, S, Subject
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.internal_topic import InternalTopic
from barnabas.server.coordinators.loader import Loader
from barnabas.server.coordinators.results import Results
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import attempt, serve


class CoordinatorRuntime(Generic[S]):
    """See the module. `lead` and `resign` are `barnabas.server.partitions.registry`' to call; `run` must be running for
    partitions to be loaded and the topic to be created.

    shards: by the partition's number, none of them closed. results: applies what they decide. log: the coordinator's.
    """

    def __init__(self, ground: CoordinatorGround, subject: Subject[S]) -> None:
        self._subject = subject
        self.log = subject.log
        self._ground = ground
        self.shards: dict[int, CoordinatedShard[S]] = {}
        self.topic = InternalTopic(subject.topic, subject.log, ground)
        self.results = Results(ground, subject, start_over=self._start_over, resign=self.resign)
        self._loader = Loader(ground, subject, self._activate)

    # -- roles -------------------------------------------------------------------------------------

    def lead(self, partition: Partition) -> None:
        """This broker leads a partition of the topic (again: another epoch changes nothing)."""
        led = self.shards.get(partition.index)
        if led is not None and led.partition is partition:
            return
        if led is not None:
            self.resign(partition.index)
        led = self.shards[partition.index] = CoordinatedShard(partition, self._subject.new_shard(partition))
        if partition.log_start_offset >= partition.log_end_offset:
            self._activate(led)
        else:
            self._loader.add(led)

    def resign(self, index: int) -> None:
        """Another broker leads, or the topic is deleted: waiting clients get an error, the shard is dropped."""
        led = self.shards.pop(index, None)
        if led is not None:
            self._end(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.log.info("no longer the coordinator for %r", led)

    def resign_all(self) -> None:
        """The broker stops."""
        while self.shards:
            self._end(self.shards.popitem()[1], ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def write_failed(self, index: int) -> None:
        """A write of a partition failed, whose log can be used: if the shard has replayed what is lost, it starts over.
        To be called before anybody asks the shard again.
        """
        led = self.shards.get(index)
        if led is not None and led.appended_to > led.partition.log_end_offset:
            self._start_over(led, ErrorCode.KAFKA_STORAGE_ERROR)

    def _start_over(self, led: CoordinatedShard[S], code: ErrorCode) -> None:
        """Load the machine again, as its state may differ from the log."""
        self.log.warning("reloading %r: a write has failed with %s", led, code.name)
        shard = self._subject.new_shard(led.partition)
        again = self.shards[led.partition.index] = CoordinatedShard(led.partition, shard)
        self._end(led, code)
        self._loader.add(again)

    def _end(self, led: CoordinatedShard[S], code: ErrorCode) -> None:
        """Close `led`, which is not in the table any more: waiting clients get NOT_COORDINATOR, or `code`."""
        led.close()
        self.results.end(led, code)

    def _activate(self, led: CoordinatedShard[S]) -> None:
        led.activate()
        self.results.apply(led, led.shard.loaded(self._ground.time()))
        self._subject.activated(led)

    # -- tasks -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, and create the topic, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._loader.run)
            nursery.start_soon(self.topic.run)

    async def run_upkeep(
        self, what: str, interval_ms: Callable[[], int], decide: Callable[[S, Now], Iterable[Result]]
    ) -> None:
        """Once in an interval let each shard that is served decide what time has made due, result by result, until
        cancelled. what: is being done, for the log.
        """

        async def in_turn() -> None:
            while True:
                await trio.sleep(interval_ms() / 1000)
                for led in list(self.shards.values()):
                    if led.is_active:
                        await attempt(self.log, f"{what} of {led!r}", partial(self._carry_out, led, decide))

        await serve(self.log, what, in_turn)

    async def _carry_out(self, led: CoordinatedShard[S], decide: Callable[[S, Now], Iterable[Result]]) -> None:
        for result in decide(led.shard, self._ground.time()):
            self.results.apply(led, result)
            self._ground.partitions.write_staged()
            await trio.lowlevel.checkpoint()
            if led.is_closed:
                break

    # -- where a key lives -------------------------------------------------------------------------

    def active(self, key: str) -> CoordinatedShard[S]:
        """The shard of a key. Raises KafkaError NOT_COORDINATOR (led elsewhere, or no topic) or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        place = self.topic.place(key)
        led = None if place is None else self.shards.get(place.index)
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not led.is_active:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

"""A broker under test, through its lives: its clock is moved, snapshots of it are taken, and it is restored to them.

`run`, `stop` and what it tells are those of `Broker`, so that a process runs either (`process`).

**Restored**, a broker begins another life, in this process: the present one is abandoned, as by `kill -9`; its log
directories are made what they were; a new `Broker` starts on them, with the same settings, and with sockets that were
listening all the time, so that clients which come meanwhile wait a moment and are not refused. What a broker knows is
in its log directories: logs, producers, groups and offsets, transactions, topics, settings, ACLs, users, quotas. So a
start gives exactly what was there, by the way that every restart takes and every crash test tries; putting back each of
the dozens of places in memory would be faster by some milliseconds, and wrong some day.

So: connections are closed. A broker that has begun to answer something has forgotten it. Members of groups are as after
a restart: known, with their session time-outs begun anew. Leader epochs may be higher than they were. Faults stay. The
wall clock is as far ahead of the real one as it was at the snapshot, so that records are as old as they were; trio's
clock only goes forwards.

A snapshot is taken at rest (`Settling`), without a stop: everything is saved as at a clean stop, and the log
directories are copied in one go of the loop, at which nothing else runs.

All of that only of a broker alone: others would remember what this one has forgotten, and the clocks of their
processes go on. In a cluster somebody moves the clocks of all in step (`hold`, `step`, `release`), lets each take a
snapshot while they are held, and restores all before they start: `barnabas.Cluster`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import trio

from barnabas.server.broker.broker import Broker, BrokerFailed
from barnabas.server.broker.stopping import high_watermarks
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.listeners import NOTHING_BOUND, Bound
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.counted_offload import CountedOffload
from barnabas.server.runtime.offload import Offload, in_thread
from barnabas.server.runtime.virtual_clock import Held, InACluster, Stood, VirtualClock
from barnabas.server.storage.unsynced_disk import UnsyncedDisk

if TYPE_CHECKING:
    from barnabas.replication import Endpoint
    from barnabas.server.requests.faults.injector import FaultInjector
    from barnabas.server.requests.services import Services
    from barnabas.server.runtime.settling import Settling
    from barnabas.server.storage.snapshots import Snapshots

log = logging.getLogger("barnabas.broker")


_NOT_ALONE = "a broker in a cluster is not restored alone: the others would remember what it had forgotten"


class Lives:
    """See the module. clock: that of the trio loop. `broker`: the present life, or the last one."""

    def __init__(self, config: BrokerConfig, clock: VirtualClock, offload: Offload = in_thread) -> None:
        self._config = config
        self._clock = clock
        self._offload = CountedOffload(offload)
        self._turn = trio.Lock()  # for what moves time or files
        self._nursery: trio.Nursery | None = None
        self._over = trio.Event()
        self._is_stopping = False
        self._failure: BrokerFailed | None = None
        self._settling_if_any: Settling | None = None
        self._snapshots_if_any: Snapshots | None = None
        clock.followers.append(self._time_jumped)
        self.broker = self._new(NOTHING_BOUND)

    def _new(self, bound: Bound) -> Broker:
        if self._config.is_clustered:  # one as others, but for its faults and its clock
            return Broker(self._config, offload=self._offload, wall_clock=self._clock.wall, may_fail=True)
        return Broker(
            self._config,
            offload=self._offload,
            wall_clock=self._clock.wall,
            disk=UnsyncedDisk(),
            may_fail=True,
            bound=bound,
        )

    # -- as of a broker ----------------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        return self.broker.config

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.broker.endpoints

    @property
    def metrics_address(self) -> str | None:
        return self.broker.metrics_address

    @property
    def services(self) -> Services:
        return self.broker.services

    @property
    def faults(self) -> FaultInjector:
        return self.broker.faults

    @property
    def is_open(self) -> bool:
        return self.broker.is_open

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Broker.run`."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(self._live, self.broker)
                task_status.started()
                await self._over.wait()
        finally:
            self._over.set()
        if self._failure is not None:
            raise self._failure

    async def stop(self, *, now: bool = False) -> None:
        """See `Broker.stop`. A clock that is held goes on: a stop takes time, and who held it may be gone."""
        self._is_stopping = True
        if self._clock.is_held:
            self._clock.release()
        await self.broker.stop(now=now)
        await self._over.wait()

    async def stopped(self) -> None:
        """See `Broker.stopped`."""
        await self._over.wait()

    async def _live(self, broker: Broker, task_status: trio.TaskStatus[None]) -> None:
        await broker.run(task_status)
        if not broker.is_abandoned:
            self._over.set()

    # -- time --------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """What time it is for the broker, in milliseconds since the epoch."""
        return int(self._clock.wall() * 1000)

    async def advance(self, seconds: float) -> None:
        """See `VirtualClock.advance`. Raises ValueError, InACluster."""
        self._refuse_in_cluster("the clock of a broker in a cluster cannot be advanced: the others' clocks would stay")
        async with self._turn:
            self._must_be_held(False)
            await self._clock.advance(seconds, self._settling.wait)

    async def hold(self) -> None:
        """Let the clock stand still until `release`; returns when nothing runs any more. Raises Held if it does."""
        async with self._turn:
            self._must_be_held(False)
            if self._is_stopping:
                raise Held("the broker stops")
            self._clock.hold()

    async def step(self, seconds: float) -> Stood:
        """Let the clock that is held stand so much later, and everything run that is due then. Raises Held, ValueError
        as `advance` does.
        """
        async with self._turn:
            self._must_be_held(True)
            if seconds:
                self._clock.step(seconds)
            is_settled = await self._settling.wait()
            self._must_be_held(True)  # unless the broker stops meanwhile
            is_at_rest = is_settled and not self._settling.has_run and not self._clock.outside.prompt
            return Stood(is_at_rest, self._clock.next_deadline_s)

    async def release(self) -> None:
        """Let the clock go on. Raises Held."""
        async with self._turn:
            self._must_be_held(True)
            self._clock.release()

    def _must_be_held(self, wanted: bool) -> None:
        if self._clock.is_held != wanted:
            raise Held("the clock is not held" if wanted else "the clock is held")

    @property
    def _settling(self) -> Settling:
        if self._settling_if_any is None:
            from barnabas.server.runtime.settling import Settling  # loads trio.testing

            self._settling_if_any = Settling(self._offload)
        return self._settling_if_any

    def _time_jumped(self, seconds: float) -> None:
        """Connections are between this process and others, whose time has not passed."""
        self.broker.parts.reactor.time_jumped(seconds)

    def _refuse_in_cluster(self, why: str) -> None:
        if self._config.is_clustered:
            raise InACluster(why)

    # -- snapshots ---------------------------------------------------------------------------------------------------

    async def snapshot(self) -> str:
        """Take a snapshot; returns its id. Of a broker in a cluster only while its clock is held, as whoever does that
        takes one of each. Raises InACluster, StorageError, OSError.
        """
        async with self._turn:
            if not self._clock.is_advancing:
                self._refuse_in_cluster(_NOT_ALONE)
            snapshots = self._snapshots
            from barnabas.server.storage.snapshots import About

            await self._settling.at_rest()
            begun = time.perf_counter()
            partitions = self.services.partitions
            partitions.write_staged()
            partitions.log_dirs.save(high_watermarks(partitions))
            name = snapshots.take(About(self._clock.ahead_of_wall_s))
            log.info("snapshot %s of %d partitions: %.3f s", name, len(partitions), time.perf_counter() - begun)
            return name

    async def restore(self, name: str) -> None:
        """Restore the broker to a snapshot; returns when clients are answered. Raises UnknownSnapshot, SnapshotDamaged,
        InACluster, Held, OSError, and nothing has happened then. If another error comes, the broker is lost and stops.
        """
        self._refuse_in_cluster(_NOT_ALONE)
        async with self._turn:
            self._must_be_held(False)
            snapshots = self._snapshots
            about = await self._offload(snapshots.find, name)
            begun = time.perf_counter()
            old = self.broker
            bound = old.parts.listeners.duplicates()
            self._config = _with_metrics_at(self._config, old.metrics_address)
            try:
                await old.abandon()
                attics = await self._offload(snapshots.put_back, name)
                self._clock.ahead_of_wall_s = about.ahead_of_wall_s
                self.broker = self._new(bound)
                assert self._nursery is not None
                await self._nursery.start(self._live, self.broker)
                _inherit_faults(old, self.broker)
            except Exception as error:
                self._failure = BrokerFailed(f"the broker could not be restored: {error}")
                self._over.set()
                raise
            if self._is_stopping:  # since it was abandoned
                await self.broker.stop()
            else:
                await self._settling.at_rest()  # groups and transactions are loaded
                log.info("restored to snapshot %s: %.3f s", name, time.perf_counter() - begun)
            if self._over.is_set():
                await self._remove(attics)
            else:
                self._nursery.start_soon(self._remove, attics)

    async def remove_snapshot(self, name: str) -> None:
        """Raises UnknownSnapshot."""
        async with self._turn:
            await self._offload(self._snapshots.remove, name)

    def snapshots(self) -> list[str]:
        """The ids of all."""
        return self._snapshots.names()

    @property
    def _snapshots(self) -> Snapshots:
        if self._snapshots_if_any is None:
            from barnabas.server.storage.snapshots import Snapshots

            self._snapshots_if_any = Snapshots(self._config.log_dirs, shares_files=not self._config.is_clustered)
        return self._snapshots_if_any

    async def _remove(self, attics: list[str]) -> None:
        from barnabas.server.storage.snapshots import remove_attics

        try:
            await self._offload(remove_attics, attics)
        except Exception as error:
            contain(log, "removing what was before a restore", error)


def _inherit_faults(old: Broker, new: Broker) -> None:
    if old.is_abandoned and old.parts.faults is not None and new.parts.faults is not None:
        new.parts.faults.inherit(old.parts.faults)


def _with_metrics_at(config: BrokerConfig, address: str | None) -> BrokerConfig:
    """The settings with the port that the metrics have: it may have been any free one, and is known to others now."""
    text = config.get_optional_str("metrics.listener")
    if address is None or text is None or not text.endswith(":0"):
        return config
    return config.with_static("metrics.listener", text.removesuffix("0") + address.rpartition(":")[2])

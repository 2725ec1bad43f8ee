"""A run: clients, faults, checks, and the peace afterwards in which everything must end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from barnabas.coordinator.machine import Record
from barnabas.coordinator.tests.exactly_once import checks
from barnabas.coordinator.tests.exactly_once.clients import Attempt, Instance
from barnabas.coordinator.tests.exactly_once.office import Offices
from barnabas.coordinator.tests.exactly_once.partitions import Partition
from barnabas.coordinator.tests.exactly_once.world import LATE_S, World
from barnabas.coordinator.txn import TxnConfig
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.stored import txn_record
from barnabas.coordinator.txn.transaction import LAST_EPOCH, Txn
from barnabas.kproto import ErrorCode

NAMES = ("x", "y", "z")
DATA = [("t", 0), ("t", 1), ("u", 0)]
OFFSETS = ("__consumer_offsets", 7)
LOG_ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.REQUEST_TIMED_OUT)
PARTITION_ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
LONGEST_TIMEOUT_S = 10.0
ENDS_S = LONGEST_TIMEOUT_S + LATE_S + 14.0
"""In peace everything open has ended after the longest time-out, the latest message, and the pauses between tries: a
marker's request 3 s, a slow retry 5 s, an abort that could not be written 1 s, an election 5 s."""


@dataclass
class Counts:
    """What happened in a run; `ended_s`: how long it took in peace until nothing was open."""

    events: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    unknown_but_visible: int = 0
    elections: int = 0
    instances: int = 0
    zombie_writes: int = 0
    visible: int = 0
    rotated_ids: int = 0
    ended_s: float = 0.0


class Run:
    """See the module."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.world = world = World(seed, trace=trace)
        rng = world.rng
        self.data = DATA
        self.offsets = OFFSETS
        self.level = rng.choice((0, 1, 2, 2, 2))
        self.config = TxnConfig(
            transaction_version=self.level,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
            transactional_id_expiration_ms=rng.choice((3_000, 3_600_000, 3_600_000)),
        )
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.offices = Offices(world, self.config, self.partitions)
        for number, place in enumerate((*DATA, OFFSETS), 1):
            self.partitions[place] = Partition(world, self.offices, place, number)
        self.instances: list[Instance] = []
        self.attempts: list[Attempt] = []
        self.zombie_values: set[Any] = set()
        """Sent when their producer was fenced."""
        self.handed: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}
        self.readers = {place: checks.Reader(partition) for place, partition in self.partitions.items()}
        self.counts = Counts()
        log: list[Record] = []
        if rng.random() < 0.3:
            for i, name in enumerate(NAMES):
                txn = Txn(i + 1, LAST_EPOCH - 1 - rng.randrange(6), 4_000, State.EMPTY, update_ms=world.now.wall_ms)
                log.append(txn_record(name, txn._replace(previous_producer_id=i + 1), min(self.level, 1)))
        self.offices.begin(log)

    # -- what clients tell ------------------------------------------------------------------------

    def attempt(self, instance: Instance) -> Attempt:
        """A transaction begins."""
        made = Attempt(instance, len(self.attempts))
        self.attempts.append(made)
        return made

    def handed_out(self, instance: Instance, response: Any, is_new: bool) -> None:
        """The coordinator gives an epoch to an instance: from now on every other one is a zombie."""
        who = (response.producer_id, response.producer_epoch)
        before = self.handed[instance.name]
        if before and who != before[-1]:
            last = before[-1]
            assert who[1] > last[1] if who[0] == last[0] else who[0] > last[0], (instance, who, before)
        assert not (is_new and who in before), f"{instance} got {who}, which was handed out before: {before}"
        before.append(who)
        self.world.note(f"{instance} becomes {who}")
        for other in self.instances:
            if other.name == instance.name and other is not instance and other.fenced_at is None:
                other.fenced_at = self.world.seconds
        instance.fenced_at = None

    # -- faults -----------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        knows_two = self.level == 2 and self.world.rng.random() < 0.8
        instance = Instance(self, name, len(self.instances), knows_two)
        self.instances.append(instance)
        self.world.live(instance.life(), lambda: instance.is_alive)

    def _fault(self) -> None:
        rng, world, offices = self.world.rng, self.world, self.offices
        kind = rng.randrange(13)
        if kind == 0:
            offices.elect()
        elif kind in (1, 2):
            rng.choice(list(self.partitions.values())).elect()
        elif kind == 3:
            world.loss = 0.0 if world.loss else rng.choice((0.02, 0.1, 0.4))
        elif kind == 4:
            world.late = 0.0 if world.late else rng.choice((0.02, 0.1))
        elif kind == 5:
            offices.slow = not offices.slow
        elif kind == 6:
            partition = rng.choice(list(self.partitions.values()))
            partition.slow = not partition.slow
        elif kind == 7:
            offices.refuses = None if offices.refuses is not None else rng.choice(LOG_ERRORS)
        elif kind == 8:
            partition = rng.choice(list(self.partitions.values()))
            partition.refuses = None if partition.refuses is not None else rng.choice(PARTITION_ERRORS)
        elif kind == 9:
            offices.no_ids = 0.0 if offices.no_ids else 0.5
        elif kind == 10:
            living = [instance for instance in self.instances if instance.is_alive]
            if living:
                crashed = rng.choice(living)
                world.note(f"{crashed} crashes")
                crashed.is_alive = False
        elif kind == 11:
            # Somebody starts it twice.
            self._start(rng.choice(NAMES))
        elif self.level == 1 and rng.random() < 0.5:
            self.level = 2
            self.config = offices.config = replace(self.config, transaction_version=2)
            for office in (offices.present, *offices.former):
                if office is not None and office.is_open:
                    office.shard.set_config(self.config)

    def step(self) -> None:
        """About a second of virtual time."""
        rng = self.world.rng
        for name in NAMES:
            if not any(each.is_alive for each in self.instances if each.name == name) and rng.random() < 0.7:
                self._start(name)
        if rng.random() < 0.5:
            self._fault()
        if self.offices.present is not None and rng.random() < 0.3:
            self.offices.present.remove_expired()
        self.world.run_until(self.world.seconds + rng.uniform(0.1, 2.0))
        for reader in self.readers.values():
            reader.look()

    # -- peace ------------------------------------------------------------------------------------

    def heal(self) -> None:
        """No more faults, no new transactions: all that is open ends in time. Then all must add up."""
        world, offices = self.world, self.offices
        world.loss = world.late = 0.0
        offices.slow, offices.refuses, offices.no_ids = False, None, 0.0
        for partition in self.partitions.values():
            partition.slow, partition.refuses = False, None
        for instance in self.instances:
            instance.is_alive = False
        begun = world.seconds
        world.note("peace")
        while (still := checks.still_open(self)) and world.seconds < begun + ENDS_S:
            world.run_until(world.seconds + 0.5)
        assert not still, f"open {ENDS_S} s after the last fault: {still}"
        self.counts.ended_s = world.seconds - begun
        # What is late arrives now, and must change nothing.
        world.run_until(world.seconds + ENDS_S)
        assert not checks.still_open(self)

    def count(self) -> Counts:
        """Figures."""
        counts, visible = self.counts, checks.visible_keys(self)
        counts.events = self.world.events
        counts.elections = self.offices.elections + sum(partition.life for partition in self.partitions.values())
        counts.instances = len(self.instances)
        counts.zombie_writes = len(self.zombie_values)
        counts.visible = sum(len(reader.seen) for reader in self.readers.values())
        counts.rotated_ids = sum(len({who[0] for who in handed}) - 1 for handed in self.handed.values() if handed)
        for attempt in self.attempts:
            if attempt.told is None:
                counts.unknown += 1
                counts.unknown_but_visible += attempt.key in visible
            else:
                counts.committed += attempt.told
                counts.aborted += not attempt.told
        return counts


def run(seed: int, steps: int = 40, *, trace: bool = False) -> Counts:
    """One run; raises AssertionError with the seed, and the trace if there is one."""
    one = Run(seed, trace=trace)
    try:
        for _ in range(steps):
            one.step()
        one.heal()
        checks.check(one)
    except Exception as error:
        error.add_note(f"seed {seed}, at {one.world.seconds:.3f} s")
        if one.world.trace is not None:
            error.add_note("\n".join(one.world.trace))
        raise
    return one.count()

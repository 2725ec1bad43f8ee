"""Random histories of one partition on three brokers whose logs are lists: crashes, elections clean and unclean,
deleted records, lost answers.

Whenever all followers have caught up their logs equal the leader's, and as long as every election was clean nothing
that was ever below the high watermark is lost.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.replication.replica.fetcher import Fetcher
from barnabas.replication.replica.follower import Ask, Do, FetcherSettings, Wait
from barnabas.replication.tests.replica.logs import Entry, FakeLeader, FakeLog, carry_out

TOPIC_ID = bytes([7]) * 16
KEY = ("t", 0)
BROKERS = (1, 2, 3)
SETTINGS = {
    "fetch 17": (17, True),
    "fetch 12": (12, True),
    "OffsetForLeaderEpoch": (11, False),
    "without sessions": (5, False),
}


class Cluster:
    """One partition. `committed`: every entry that was ever below the leader's high watermark, by offset."""

    def __init__(self, seed: int, version: int, on_fetch: bool, clean: bool) -> None:
        self.rng = random.Random(seed)
        self.name = f"seed {seed}"
        self.clean = clean
        self.now = 0.0
        self.settings = {
            broker: FetcherSettings(broker, fetch_version=version, truncates_on_fetch=on_fetch, backoff_s=1.0)
            for broker in BROKERS
        }
        self.logs = {broker: FakeLog() for broker in BROKERS}
        self.checkpoints = dict.fromkeys(BROKERS, 0)
        self.alive = set(BROKERS)
        self.epoch = 0
        self.value = 0
        self.isr = set(BROKERS)
        self.leader = 0
        self.committed: dict[int, Entry] = {}
        self.conversations: dict[int, tuple[Fetcher, FakeLeader, dict[int, int]]] = {}
        self.elect(1)

    # ---- roles

    def elect(self, leader: int) -> None:
        """`leader` leads a new epoch; every live broker is notified, some followers later than others."""
        self.leader = leader
        self.epoch += 1
        if leader not in self.isr:
            self.isr = {leader}
        log = self.logs[leader]
        log.assign(self.epoch)
        self.start = log.log_end_offset
        self.ends: dict[int, int] = {}
        for broker in self.alive - {leader}:
            self.follow(broker)
        self.advance()

    def follow(self, broker: int) -> None:
        known = self.conversations.get(broker)
        if known is not None and self.rng.random() < 0.7 and known[1].logs.get(KEY) is self.logs[self.leader]:
            fetcher, server, _ = known  # the conversation goes on, with its session
        else:
            fetcher = Fetcher(self.settings[broker])
            server = FakeLeader(sessions=self.rng.random() < 0.8, most=self.rng.randint(1, 4))
        server.logs = {KEY: self.logs[self.leader]}
        server.epochs = {KEY: self.epoch}
        server.ids = {TOPIC_ID: "t"}
        server.fetched = {}
        fetcher.add(KEY, TOPIC_ID, self.epoch, self.logs[broker])
        self.conversations[broker] = (fetcher, server, self.ends)

    # ---- the leader's side

    def advance(self) -> None:
        log = self.logs[self.leader]
        for broker, (_, server, ends) in self.conversations.items():
            if ends is self.ends and KEY in server.fetched:
                ends[broker] = server.fetched[KEY]
        for broker in self.alive - self.isr:
            end = self.ends.get(broker, -1)
            if end >= log.high_watermark and end >= self.start and self.rng.random() < 0.8:
                self.isr.add(broker)
        reached = min([log.log_end_offset, *(self.ends.get(b, -1) for b in self.isr - {self.leader})])
        if reached > log.high_watermark:
            log.high_watermark = reached
        for entry in log.entries:
            if entry.offset < log.high_watermark:
                before = self.committed.setdefault(entry.offset, entry)
                assert before == entry or not self.clean, f"{self.name}: {before} became {entry}"

    def produce(self) -> None:
        if self.leader in self.alive:
            log = self.logs[self.leader]
            for _ in range(self.rng.randint(1, 4)):
                self.value += 1
                # A gap, as compaction leaves them, but not where an epoch begins: leaders write without gaps.
                gap = self.rng.choice((0, 0, 0, 2)) if log.entries and log.entries[-1].epoch == self.epoch else 0
                log.append(Entry(log.log_end_offset + gap, self.epoch, self.value))
            self.advance()

    def shrink(self) -> None:
        """Lagging replicas are removed from the ISR."""
        log = self.logs[self.leader]
        if self.leader in self.alive:
            self.isr = {b for b in self.isr if b == self.leader or self.ends.get(b, -1) >= log.log_end_offset}
            self.advance()

    def delete_records(self) -> None:
        log = self.logs[self.leader]
        if self.leader in self.alive and self.rng.random() < 0.5:
            log.start_at(self.rng.randint(log.log_start_offset, log.high_watermark))

    # ---- the follower's side

    def step(self, broker: int, lose: float = 0.0) -> bool:
        """One step of a follower; False if it waits. An answer may get lost on its way."""
        if broker not in self.conversations:
            return False
        fetcher, server, _ = self.conversations[broker]
        step: Any = fetcher.next(self.now, 1)
        if isinstance(step, Wait):
            return False
        actions = step.actions if isinstance(step, Do) else []
        if isinstance(step, Ask):
            if self.leader not in self.alive or self.rng.random() < lose:
                if self.rng.random() < 0.5:
                    server.answer(step.request, step.version)
                fetcher.unanswered(step, self.now)
                return True
            response = server.answer(step.request, step.version)
            self.advance()
            actions = fetcher.answered(step, response, self.now)
        for action in actions:
            if fetcher.is_current(action.partition):
                carry_out(action)
                fetcher.done(action, self.now)
        return True

    def replicate(self) -> None:
        for _ in range(self.rng.randint(1, 12)):
            followers = sorted(self.alive - {self.leader})
            if followers:
                self.step(self.rng.choice(followers), 0.1)
            self.now += self.rng.choice((0.0, 0.1, 1.0))

    def checkpoint(self) -> None:
        for broker in self.alive:
            self.checkpoints[broker] = self.logs[broker].high_watermark

    # ---- faults

    def crash(self) -> None:
        """A broker restarts, with its log but an older high watermark; if it leads, another one may take over."""
        broker = self.rng.choice(BROKERS)
        log = self.logs[broker]
        log.high_watermark = min(max(self.checkpoints[broker], log.log_start_offset), log.log_end_offset)
        self.conversations.pop(broker, None)
        self.alive.discard(broker)
        if broker == self.leader:
            self.conversations.clear()
            candidates = sorted(self.isr & self.alive)
            if candidates:
                self.isr.discard(broker)
                self.elect(self.rng.choice(candidates))
            elif not self.clean and self.alive:
                self.elect(self.rng.choice(sorted(self.alive)))
        elif len(self.isr) > 1:
            self.isr.discard(broker)
            self.advance()

    def come_back(self) -> None:
        for broker in sorted(set(BROKERS) - self.alive):
            if self.rng.random() < 0.5:
                self.alive.add(broker)
                if self.leader in self.alive and broker != self.leader:
                    self.follow(broker)
                elif broker == self.leader or broker in self.isr:
                    self.elect(broker)

    def move_leader(self) -> None:
        candidates = sorted(self.isr & self.alive - {self.leader})
        if candidates and self.leader in self.alive:
            self.elect(self.rng.choice(candidates))

    def unclean(self) -> None:
        if not self.clean and self.alive:
            self.elect(self.rng.choice(sorted(self.alive)))

    # ---- looking

    def converge(self) -> None:
        for broker in BROKERS:
            if broker not in self.alive:
                self.alive.add(broker)
                if broker == self.leader or (self.leader not in self.alive and broker in self.isr):
                    self.elect(broker)
        if self.leader not in self.alive:
            self.elect(self.leader)
        for broker in self.alive - {self.leader}:
            if broker not in self.conversations or self.conversations[broker][2] is not self.ends:
                self.follow(broker)
        leader = self.logs[self.leader]
        for _ in range(400):
            for broker in BROKERS:
                if broker != self.leader:
                    self.step(broker)
            followers = [self.logs[broker] for broker in BROKERS if broker != self.leader]
            caught_up = all(
                log.log_end_offset == leader.log_end_offset and log.high_watermark == leader.high_watermark
                for log in followers
            )
            if caught_up and leader.high_watermark == leader.log_end_offset:
                break
            self.now += 0.1
        for broker in BROKERS:
            log = self.logs[broker]
            start = max(log.log_start_offset, leader.log_start_offset)
            assert log.log_end_offset == leader.log_end_offset, f"{self.name}: {broker} has {log}, {leader}"
            assert log.high_watermark == leader.high_watermark, f"{self.name}: {broker} has {log}, {leader}"
            own = [entry for entry in log.entries if entry.offset >= start]
            assert own == [entry for entry in leader.entries if entry.offset >= start], f"{self.name}: {broker}"
            for entry in own:
                epoch = max(epoch for epoch, began in log.epochs if began <= entry.offset)
                assert epoch == entry.epoch, f"{self.name}: {broker} has {log}, {entry}"
        if self.clean:
            present = {entry.offset: entry for entry in leader.entries}
            for offset, entry in self.committed.items():
                assert offset < leader.log_start_offset or present.get(offset) == entry, f"{self.name}: lost {entry}"
        else:
            self.committed = {entry.offset: entry for entry in leader.entries}


OPERATIONS = (
    (Cluster.produce, 10),
    (Cluster.replicate, 20),
    (Cluster.shrink, 2),
    (Cluster.crash, 2),
    (Cluster.come_back, 3),
    (Cluster.move_leader, 2),
    (Cluster.delete_records, 1),
    (Cluster.checkpoint, 3),
    (Cluster.unclean, 1),
    (Cluster.converge, 1),
)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("kind", SETTINGS)
def test_logs_become_equal(kind: str, clean: bool) -> None:
    operations, weights = zip(*OPERATIONS, strict=True)
    for seed in range(15):
        cluster = Cluster(seed, *SETTINGS[kind], clean)
        for operation in cluster.rng.choices(operations, weights, k=100):
            operation(cluster)
        cluster.converge()

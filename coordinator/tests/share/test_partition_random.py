"""Random members of a share partition, over a log that is compacted and cut off, a store that refuses, is slow, loses
answers, and leaders that die; the seed is the bug report.

After each step:

- an offset is with one member at most, as the test knows from the answers alone, and each has one lock;
- counts rise by one with each delivery, and no record is delivered more often than the group allows;
- what was confirmed (accepted, rejected, a gap) is never delivered again, whoever leads;
- the window's books balance; nothing settled is at its start; it is not wider than allowed;
- after a load, a count is not lower than what was stored.

In the end the faults stop, members accept all they get, and every offset is settled: none is lost. More seeds:
BARNABAS_SHARE_SEEDS.
"""

from __future__ import annotations

import os
from itertools import pairwise
from random import Random

import pytest

from barnabas.coordinator.share import AcknowledgeType, AcquireMode, RecordState, ShareSettings
from barnabas.coordinator.tests.share.share_kit import PartitionKit
from barnabas.kproto import ErrorCode

E = ErrorCode
SEEDS = int(os.environ.get("BARNABAS_SHARE_SEEDS", "40"))
MEMBERS = ("a", "b", "c")
LARGEST_BATCH = 12
STORE_ERRORS = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT, E.UNKNOWN_SERVER_ERROR)
FINAL = {AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT}


class Asked:
    """An acknowledgement without an answer so far: type by offset."""

    def __init__(self, member: str, types: dict[int, AcknowledgeType]) -> None:
        self.member = member
        self.types = types


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.limit = rng.choice((2, 3, 5, 10))
        self.width = rng.choice((8, 40, 200))
        self.settings = ShareSettings(1_000 * rng.choice((5, 30)), self.limit, self.width, rng.random() < 0.8)
        self.kit = PartitionKit(start_offset=rng.choice((-1, 0)), settings=self.settings)
        self.counts: dict[int, int] = {}
        self.final: set[int] = set()
        self.held: dict[int, tuple[str, float]] = {}
        self.asked: dict[int, Asked] = {}
        self.accepted = 0
        self.loads = 0
        self.has_holes = False
        """Of compaction, which make a window wider."""

    # -- what happens -----------------------------------------------------------------------------

    def step(self) -> None:
        rng, kit = self.rng, self.kit
        dice = rng.random()
        if dice < 0.2:
            kit.produce(*(rng.randint(1, LARGEST_BATCH) for _ in range(rng.randint(1, 4))))
            if rng.random() < 0.15:
                self.abort()
        elif dice < 0.5:
            self.acquire()
        elif dice < 0.8:
            self.acknowledge()
        elif dice < 0.87:
            self.advance(rng.choice((0.1, 1.0, 4.0, 20.0)))
        elif dice < 0.9:
            self.release(rng.choice(MEMBERS))
        elif dice < 0.93:
            self.hurt_log()
        elif dice < 0.97:
            kit.store_waits = rng.random() < 0.6
            kit.refuse = rng.choice(STORE_ERRORS) if rng.random() < 0.3 else E.NONE
            if not kit.store_waits:
                self.store_all()
        elif dice < 0.985 and kit.waiting:
            kit.store_now(is_lost=rng.random() < 0.3)
        elif dice < 0.99:
            self.load()
        self.look()
        self.check()

    def abort(self) -> None:
        base, last = self.kit.log[-1]
        if base >= self.kit.partition.end_offset:
            self.kit.aborted.append((base, last))

    def acquire(self) -> None:
        rng, kit = self.rng, self.kit
        mode = rng.choice(tuple(AcquireMode))
        most = rng.choice((1, 2, 5, 30))
        member = rng.choice(MEMBERS)
        found = kit.acquire(
            member, most, mode=mode, batch_size=rng.choice((1, 5, 30)), batch_count=rng.choice((1, 3, 100))
        )
        aborted = {offset for first, last in kit.aborted for offset in range(first, last + 1)}
        for first, last, count in found:
            for offset in range(first, last + 1):
                assert offset not in self.final, f"{offset} was confirmed, and is delivered again"
                assert offset not in self.held, f"{offset} is with {self.held[offset]}, and delivered to {member}"
                assert offset not in aborted
                assert count == self.counts.get(offset, 0) + 1
                assert count <= self.limit
                self.counts[offset] = count
                self.held[offset] = (member, kit.seconds + self.settings.record_lock_duration_ms / 1000)
        if mode is AcquireMode.RECORD_LIMIT:
            assert sum(last - first + 1 for first, last, _ in found) <= most

    def acknowledge(self) -> None:
        rng, kit = self.rng, self.kit
        member = rng.choice(MEMBERS)
        mine = sorted(offset for offset, (who, _) in self.held.items() if who == member)
        if not mine:
            return
        start = rng.randrange(len(mine))
        some = mine[start : start + rng.choice((1, 3, 10, 100))]
        is_renew = rng.random() < 0.2
        batches: list[tuple[int, int, list[int]]] = []
        types: dict[int, AcknowledgeType] = {}
        one = rng.choice((AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, None))
        for offset in some:
            what = one if one is not None else AcknowledgeType(rng.randrange(5 if is_renew else 4))
            types[offset] = what
            if batches and batches[-1][1] == offset - 1 and rng.random() < 0.95:
                batches[-1] = (batches[-1][0], offset, [*batches[-1][2], what])
            else:
                batches.append((offset, offset, [what]))
        if rng.random() < 0.05:
            # Somebody else's, or nobody's.
            offset = rng.randrange(kit.high_watermark + 5)
            if offset not in types:
                batches = sorted([*batches, (offset, offset, [AcknowledgeType.ACCEPT])])
                before = kit.states()
                is_below = offset < kit.partition.start_offset
                is_mine = offset in mine
                code = kit.said(member, *batches, is_renew=is_renew)
                if not is_below and not is_mine:
                    assert code in (E.INVALID_RECORD_STATE, E.INVALID_REQUEST)
                    assert kit.states() == before, "a refused one changes nothing"
                    return
                types[offset] = AcknowledgeType.ACCEPT
                self.said(kit.asked, member, types)
                return
        shrunk = [(first, last, each[:1] if len(set(each)) == 1 else each) for first, last, each in batches]
        self.said(kit.acknowledge(member, *shrunk, is_renew=is_renew), member, types)

    def said(self, token: int, member: str, types: dict[int, AcknowledgeType]) -> None:
        kit = self.kit
        if kit.answers.get(token) not in (E.INVALID_REQUEST, E.INVALID_RECORD_STATE):
            # Renewed at once, whatever becomes of the rest.
            due = kit.seconds + self.settings.record_lock_duration_ms / 1000
            for offset in [offset for offset, what in types.items() if what is AcknowledgeType.RENEW]:
                self.held[offset] = (member, due)
                del types[offset]
        self.asked[token] = Asked(member, types)

    def release(self, member: str) -> None:
        kit = self.kit
        kit.asked += 1
        under_way = {offset for asked in self.asked.values() for offset in asked.types}
        types = {
            offset: AcknowledgeType.RELEASE
            for offset, (who, _) in self.held.items()
            if who == member and offset not in under_way
        }
        self.asked[kit.asked] = Asked(member, types)
        kit.run(kit.partition.release(member, kit.asked))

    def advance(self, seconds: float) -> None:
        self.kit.advance(seconds)
        self.look()
        self.expire()

    def hurt_log(self) -> None:
        """Compaction takes a batch away, or retention the beginning of the log."""
        rng, kit = self.rng, self.kit
        if not kit.log:
            return
        if rng.random() < 0.7:
            if len(kit.log) > 1:
                kit.log.pop(rng.randrange(len(kit.log) - 1))
                self.has_holes = True
            return
        # Not all of it, and mostly of what is done with.
        keep = kit.log[rng.randrange(len(kit.log))]
        if keep.base_offset - kit.partition.start_offset > 30:
            return
        kit.log = [batch for batch in kit.log if batch.base_offset >= keep.base_offset]
        kit.run(kit.partition.log_start_moved(keep.base_offset))
        self.held = {offset: who for offset, who in self.held.items() if offset >= kit.partition.start_offset}

    def load(self) -> None:
        kit = self.kit
        if kit.waiting and self.rng.random() < 0.5:
            kit.store.write(kit.waiting[0])  # it arrives, and nobody is there to hear it
        kit.run(kit.partition.end(E.NOT_LEADER_OR_FOLLOWER))
        self.look()
        assert not self.asked, "who waits when a partition ends is told"
        self.held.clear()
        stored = dict(kit.store.offsets)
        kit.resolves_to = min([batch.base_offset for batch in kit.log], default=0)
        kit.load()
        if kit.log:
            kit.run(kit.partition.log_start_moved(kit.log[0].base_offset))
        # What was never stored is forgotten, but not more.
        self.counts = {offset: count for offset, (count, _) in stored.items()}
        self.loads += 1

    def store_all(self) -> None:
        while self.kit.waiting:
            self.kit.store_now()

    # -- what the answers say ---------------------------------------------------------------------

    def look(self) -> None:
        kit = self.kit
        for token in list(self.asked):
            code = kit.answers.get(token)
            if code is None:
                continue
            asked = self.asked.pop(token)
            for offset, what in asked.types.items():
                who = self.held.get(offset)
                if who is None or who[0] != asked.member:
                    continue
                if code == E.NONE:
                    del self.held[offset]
                    if what in FINAL:
                        self.final.add(offset)
                        self.accepted += what is AcknowledgeType.ACCEPT
                else:
                    assert code not in (E.INVALID_REQUEST,), code
        self.expire()

    def expire(self) -> None:
        under_way = {offset for asked in self.asked.values() for offset in asked.types}
        for offset, (_, deadline) in list(self.held.items()):
            if deadline <= self.kit.seconds and offset not in under_way:
                del self.held[offset]

    # -- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        partition = self.kit.partition
        window = partition._window
        assert all(left.last < right.first for left, right in pairwise(window.pieces))
        assert [piece.first for piece in window.pieces] == window._firsts
        assert window.settled_count == sum(piece.size for piece in window.pieces if piece.is_settled)
        if window.pieces:
            first = window.pieces[0]
            assert first.first >= window.start_offset
            assert first.first > window.start_offset or not first.is_settled
            assert window.pieces[-1].last < window.end_offset
        else:
            assert window.start_offset == window.end_offset
        assert window.in_flight <= self.width + LARGEST_BATCH - 1 or self.has_holes
        acquired = {}
        for piece in window.pieces:
            due = window.deadlines.get(piece.first)
            if piece.state is RecordState.ACQUIRED:
                assert due == piece.deadline or piece.becoming is not None
                assert piece.member is not None
                acquired.update(dict.fromkeys(range(piece.first, piece.last + 1), piece.member))
            else:
                assert due is None
                assert piece.member is None
                assert piece.becoming is None
        assert len(window.deadlines) <= len(window.pieces)
        assert acquired == {offset: who for offset, (who, _) in self.held.items()}
        following = partition.next_fetch_offset
        piece = window.at(following)
        assert following == window.end_offset or piece is None or piece.state is RecordState.AVAILABLE
        for piece in window.pieces:
            assert piece.first > following or piece.state is not RecordState.AVAILABLE or piece.first == following
        if not self.kit.waiting:
            assert not self.asked
        if self.kit.store.writes:
            write = self.kit.store.writes[-1]
            assert all(left.last_offset < right.first_offset for left, right in pairwise(write.batches))
            assert all(batch.state != RecordState.ACQUIRED for batch in write.batches)

    def heal(self) -> None:
        kit = self.kit
        kit.refuse, kit.store_waits = E.NONE, False
        self.store_all()
        self.advance(3_600)
        if not kit.log:
            kit.produce(1)
        before = -1
        # Nothing may be acquired of what was read, as all of it is of aborted transactions: then it goes on behind.
        while (offset := kit.partition.next_fetch_offset) < kit.high_watermark:
            found = kit.acquire("a", 30)
            assert found or offset > before
            before = offset
            for first, last, _ in found:
                assert not self.final.intersection(range(first, last + 1))
                assert kit.said("a", (first, last, AcknowledgeType.ACCEPT)) == E.NONE
        assert kit.partition.start_offset == kit.partition.end_offset == kit.high_watermark, (kit.partition, kit.log)
        assert kit.partition.deadline() is None


def run(seed: int, steps: int = 150) -> Run:
    found = Run(seed)
    try:
        for _ in range(steps):
            found.step()
        found.heal()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return found


def test_random_members() -> None:
    runs = [run(seed) for seed in range(SEEDS)]
    assert sum(each.accepted for each in runs) > 5 * SEEDS
    assert sum(each.loads for each in runs) > SEEDS // 4


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(10_000, 14_000, 1_000))
def test_more_random_members(first: int) -> None:
    for seed in range(first, first + 1_000):
        run(seed)

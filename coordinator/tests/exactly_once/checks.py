"""What must hold, whatever happened.

- A reader sees what it saw before, and more behind it.
- Of a transaction whose commit was told, every record is visible, once; of one that was aborted, or for which nobody
  asked a commit, none; of any other all or none.
- What a fenced producer sent, no reader sees.
- The group's offset is that of the last visible commit.
- The coordinator's log follows the table of states; epochs only rise, and ids rotate at their end only.
- Whoever asked an office got one answer, but for those whose office died.
- In peace nothing is open.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.tests.exactly_once.partitions import Partition
from barnabas.coordinator.txn.states import DECIDED, TRANSITIONS, State
from barnabas.coordinator.txn.stored import parse_txn
from barnabas.coordinator.txn.transaction import LAST_EPOCH, Txn

if TYPE_CHECKING:
    from barnabas.coordinator.tests.exactly_once.run import Run


class Reader:
    """Reads a partition read_committed, again and again from the start."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.seen: list[Any] = []

    def look(self) -> None:
        found = self.partition.visible()
        assert found[: len(self.seen)] == self.seen, f"{self.partition.place}: {self.seen} became {found}"
        self.seen = found


def still_open(run: Run) -> list[str]:
    """What has not come to its end."""
    wrong = []
    for place, partition in run.partitions.items():
        if not partition.is_up:
            wrong.append(f"{place} has no leader")
        elif partition.last_stable_offset < len(partition.log):
            wrong.append(f"{place}: last stable offset {partition.last_stable_offset} of {len(partition.log)}")
    office = run.offices.present
    if office is None:
        return [*wrong, "nobody is in office"]
    for name, entry in office.shard.ids.items():
        if entry.is_busy or (entry.txn is not None and entry.txn.state in DECIDED | {State.ONGOING}):
            wrong.append(f"{name}: {entry.txn}, pending {entry.pending}")
    if len(office.queues):
        wrong.append(f"{len(office.queues)} markers to write")
    return wrong


def check(run: Run) -> None:
    """Everything, at the end."""
    for reader in run.readers.values():
        reader.look()
    transactions(run)
    group(run)
    records(run)
    answers(run)


def visible_keys(run: Run) -> set[int]:
    """Transactions of which something is visible."""
    keys = set()
    for place, reader in run.readers.items():
        keys.update(value if place == run.offsets else value[1] for value in reader.seen)
    return keys


def transactions(run: Run) -> None:
    there = {place: Counter(reader.seen) for place, reader in run.readers.items()}
    for place, counts in there.items():
        if place != run.offsets:
            assert not counts or max(counts.values()) == 1, f"{place}: twice: {counts.most_common(3)}"
    for place, value in run.zombie_values:
        assert value not in there[place], f"{value} in {place} was sent by a zombie, and is visible"
    sent = set()
    for attempt in run.attempts:
        sent.update(attempt.records)
        found = [(place, value) for place, value in attempt.records if value in there[place]]
        if attempt.told or found:
            assert attempt.asked_commit_at is not None, f"{attempt}: nobody asked for a commit, but {found} are visible"
            assert attempt.told is not False, f"{attempt}: {found} are visible"
            missing = attempt.acknowledged - set(found)
            assert not missing, f"{attempt}: {found} are visible, {missing} are not"
    for place, counts in there.items():
        unknown = [value for value in counts if (place, value) not in sent]
        assert not unknown, f"{place}: nobody sent {unknown}"


def group(run: Run) -> None:
    partition = run.partitions[run.offsets]
    assert partition.group is not None
    seen = run.readers[run.offsets].seen
    committed = partition.group.get(("in", 0), partition.high_watermark)
    assert (committed.offset if committed else None) == (seen[-1] if seen else None), (committed, seen[-5:])
    assert not partition.group.is_pending(("in", 0))


def records(run: Run) -> None:
    office = run.offices.present
    assert office is not None
    last: dict[str, Txn] = {}
    for record in office.log:
        parsed = parse_txn(*record[:2])
        assert parsed is not None
        name, txn = parsed
        before = last.pop(name, None)
        if txn is None:
            assert before is not None
            assert State.DEAD in TRANSITIONS[before.state].values(), (name, before)
            continue
        if before is not None:
            follow = {*TRANSITIONS[before.state].values()}
            if State.PREPARE_EPOCH_FENCE in follow:
                follow.add(State.PREPARE_ABORT)
            assert txn.state in follow, (name, before, txn)
            if before.producer_id == txn.producer_id:
                assert txn.producer_epoch >= before.producer_epoch, (name, before, txn)
            else:
                assert txn.producer_id > before.producer_id, (name, before, txn)
                assert txn.producer_epoch == 0, (name, before, txn)
                assert before.producer_epoch >= LAST_EPOCH - 1, (name, before, txn)
        last[name] = txn


def answers(run: Run) -> None:
    for office in (run.offices.present, *run.offices.former):
        assert office is not None
        assert not office.open_tokens, (
            f"office {office.epoch} owes answers: {[each.what for each in office.open_tokens]}"
        )

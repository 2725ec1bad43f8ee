"""Transactions as the simulation's clients saw them, and what must hold for them.

Each transaction is noted before it begins, with every record before it is sent. The response to its commit decides what
readers may see of it at the end:

| its commit | readers see |
| --- | --- |
| confirmed | all of it |
| asked for, with no clear answer | all of it or nothing |
| refused, or never asked for | nothing |

All of it: each record once, in its order, in all partitions; and the offset that was committed in it. A producer that
another one has taken the place of (same transactional id, InitProducerId answered) is a zombie: nothing that it sends
from then on may be confirmed.

`read_committed` takes a log apart by itself, with nothing of the brokers' indexes.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import NamedTuple

from barnabas.kproto.records import COMMIT, iter_headers, iter_records, parse_control_record
from barnabas.server.sim.checks import TopicPartition
from barnabas.server.sim.world import World


class Entry(NamedTuple):
    """What one record is: its transaction (id and number), and its number in that."""

    transactional_id: str
    serial: int
    number: int

    def encode(self) -> bytes:
        return f"{self.transactional_id}:{self.serial}:{self.number}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Entry:
        transactional_id, serial, number = value.decode().split(":")
        return cls(transactional_id, int(serial), int(number))


class Fate(Enum):
    """What is known of a transaction's commit."""

    NONE = "was not to be committed"
    DOUBT = "may be committed"
    DONE = "is committed"


class Transaction:
    """One transaction. `entries`: by partition, in the order in which they were sent; `group_offset`: of its commit of
    an offset, None without.
    """

    def __init__(self, transactional_id: str, serial: int) -> None:
        self.transactional_id = transactional_id
        self.serial = serial
        self.entries: dict[TopicPartition, list[Entry]] = defaultdict(list)
        self.group_offset: int | None = None
        self.fate = Fate.NONE
        self._count = 0

    def __repr__(self) -> str:
        return f"transaction {self.serial} of {self.transactional_id}, which {self.fate.value},"

    def entry(self, key: TopicPartition) -> Entry:
        """A new record for a partition."""
        entry = Entry(self.transactional_id, self.serial, self._count)
        self._count += 1
        self.entries[key].append(entry)
        return entry


class Ledger:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self._serials: dict[str, int] = defaultdict(int)
        self._latest: dict[str, tuple[int, float]] = {}
        self.confirmed_count = 0
        self.shown: dict[TopicPartition, dict[int, Entry]] = defaultdict(dict)

    def begin(self, transactional_id: str) -> Transaction:
        """The next one of that id."""
        self._serials[transactional_id] += 1
        serial = self._serials[transactional_id]
        transaction = self.transactions[transactional_id, serial] = Transaction(transactional_id, serial)
        return transaction

    def initialised(self, transactional_id: str, life: int) -> None:
        """InitProducerId was answered to this life of the producer: all before it are zombies from now on."""
        if life > self._latest.get(transactional_id, (0, 0.0))[0]:
            self._latest[transactional_id] = life, self.world.now

    def confirmed(self, what: str, transactional_id: str, life: int, sent_at: float) -> None:
        """A request of this life, sent at that time, was answered without an error."""
        latest, since = self._latest.get(transactional_id, (0, 0.0))
        if life < latest and sent_at > since:
            self.world.violation(
                f"{what} of life {life} of {transactional_id}, sent at {sent_at:.3f} s, is accepted; life {latest} "
                f"began at {since:.3f} s"
            )

    def record_shown(self, key: TopicPartition, entry: Entry, offset: int) -> None:
        """A read_committed consumer was given it."""
        known = self.shown[key].setdefault(offset, entry)
        transaction = self.transactions.get(entry[:2])
        if known != entry:
            self.world.violation(f"{key} offset {offset}: {entry} is shown, but it was {known}")
        elif transaction is None or entry not in transaction.entries[key]:
            self.world.violation(f"{key} offset {offset}: {entry} is shown, which no producer sent there")
        elif transaction.fate is Fate.NONE:
            self.world.violation(f"{key} offset {offset}: {entry} is shown; {transaction!r}")

    def check(self, logs: dict[TopicPartition, bytes], group_offsets: dict[str, int]) -> None:
        """At the end. logs: the content of every partition with transactions; group_offsets: what the group of each
        transactional id has, -1 for nothing.
        """
        seen: dict[tuple[str, int], dict[TopicPartition, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for key, content in logs.items():
            found = read_committed(content)
            for entry in found.values():
                seen[entry[:2]][key].append(entry)
            shown = self.shown[key]
            if shown != found:
                offset = min(at for at in {*shown, *found} if shown.get(at) != found.get(at))
                self.world.violation(
                    f"{key} offset {offset}: a consumer was shown {shown.get(offset)}, the log has {found.get(offset)}"
                )
        last: dict[str, int] = {}
        for name, transaction in self.transactions.items():
            visible = {key: entries for key, entries in seen.pop(name, {}).items() if entries}
            whole = {key: entries for key, entries in transaction.entries.items() if entries}
            if visible and transaction.group_offset is not None:
                last[transaction.transactional_id] = transaction.group_offset
            if visible not in ({}, whole):
                self.world.violation(f"of {transaction!r} there is {_outline(visible)} of {_outline(whole)}")
            elif visible and transaction.fate is Fate.NONE:
                self.world.violation(f"{transaction!r} is visible: {_outline(visible)}")
            elif not visible and transaction.fate is Fate.DONE and whole:
                self.world.violation(f"{transaction!r} is lost: {_outline(whole)}")
        if seen:
            self.world.violation(f"no producer began {sorted(seen)}")
        for transactional_id, offset in group_offsets.items():
            if offset != last.get(transactional_id, -1):
                self.world.violation(
                    f"the group of {transactional_id} has offset {offset}; the last transaction that is visible "
                    f"committed {last.get(transactional_id, -1)}"
                )


def _outline(entries: dict[TopicPartition, list[Entry]]) -> str:
    return ", ".join(f"{key[0]}-{key[1]}: {[entry.number for entry in each]}" for key, each in sorted(entries.items()))


def read_committed(content: bytes) -> dict[int, Entry]:
    """Offset → record of the transactions that a log commits."""
    open_now: dict[int, dict[int, Entry]] = defaultdict(dict)
    found: dict[int, Entry] = {}
    for position, header in iter_headers(content):
        if header.is_control:
            for record in iter_records(content, position):
                if parse_control_record(record)[0] == COMMIT:
                    found.update(open_now[header.producer_id])
            open_now.pop(header.producer_id, None)
        else:
            for record in iter_records(content, position):
                assert record.value is not None
                open_now[header.producer_id][record.offset] = Entry.decode(record.value)
    return dict(sorted(found.items()))

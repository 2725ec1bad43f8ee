"""Records out of answers: formats, positions, transactions, limits, damage; and the search for the newest."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.compression import GZIP, LZ4, ZSTD
from barnabas.kproto.messages import FetchResponse
from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.kproto.records_legacy import build_message_set
from barnabas.server.client.offsets import Span
from barnabas.server.client.reading import Backward, BatchFacts, Cursor, Read, in_time


def batch(first: int, *values: str, **options: object) -> bytes:
    records = [Record(0, 1000 + first, b"k", value.encode(), (("h", b"1"),)) for value in values]
    return bytes(build_batch(records, base_offset=first, **options))  # type: ignore[arg-type]


def fetched(data: bytes, *, end: int = 100, aborted: tuple[tuple[int, int], ...] = ()) -> FetchResponse.PartitionData:
    rows = [FetchResponse.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted]
    return FetchResponse.PartitionData(
        high_watermark=end, last_stable_offset=end, aborted_transactions=rows or None, records=data
    )


def values(records: list[Read]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


@pytest.mark.parametrize("codec", [0, GZIP, LZ4, ZSTD])
def test_records_with_all_they_have(codec: int) -> None:
    cursor = Cursor("t", 3, 0)
    (one, two) = cursor.feed(
        fetched(batch(0, "a", "b", codec=codec, producer_id=9, producer_epoch=1)), 10, was_first=True
    )
    assert (one.topic, one.partition, one.offset, one.timestamp, one.key, one.value) == ("t", 3, 0, 1000, b"k", b"a")
    assert list(one.headers) == [("h", b"1")]
    assert one.batch is two.batch
    assert one.batch.producer_id == 9
    assert one.size == 4
    assert cursor.offset == 2
    assert cursor.has_more


def test_a_position_in_the_middle_of_a_batch() -> None:
    cursor = Cursor("t", 0, 6, stop=8)
    assert values(cursor.feed(fetched(batch(5, "a", "b", "c", "d")), 10, was_first=True)) == ["b", "c"]
    assert cursor.is_done
    assert cursor.offset == 8


def test_room_ends_in_a_batch_and_goes_on_there() -> None:
    cursor = Cursor("t", 0, 0)
    data = fetched(batch(0, "a", "b") + batch(2, "c"))
    assert cursor.feed(data, 0, was_first=True) == []
    assert values(cursor.feed(data, 1, was_first=True)) == ["a"]
    assert values(cursor.feed(data, 10, was_first=True)) == ["b", "c"]
    assert cursor.offset == 3


def test_a_number_of_records() -> None:
    cursor = Cursor("t", 0, 0, records_max=2)
    assert values(cursor.feed(fetched(batch(0, "a")), 10, was_first=True)) == ["a"]
    assert not cursor.is_done
    assert values(cursor.feed(fetched(batch(1, "b", "c")), 10, was_first=True)) == ["b"]
    assert cursor.is_done


def test_old_formats_and_new_ones_in_one_answer() -> None:
    old = build_message_set([Record(i, 5, None, b"0") for i in range(2)], magic=0)
    packed = build_message_set([Record(i, 6, None, b"1") for i in (2, 3)], magic=1, codec=GZIP)
    cursor = Cursor("t", 0, 1)
    found = cursor.feed(fetched(bytes(old) + bytes(packed) + batch(4, "2")), 10, was_first=True)
    assert [(record.offset, record.batch.magic, record.batch.codec) for record in found] == [
        (1, 0, "none"),
        (2, 1, "gzip"),
        (3, 1, "gzip"),
        (4, 2, "none"),
    ]
    assert cursor.offset == 5


def transactional(first: int, producer_id: int, *texts: str) -> bytes:
    return batch(first, *texts, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    return bytes(
        build_control_batch(
            commit=commits,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
        )
    )


LOG = (
    transactional(0, 1, "a1")
    + transactional(1, 2, "b1")
    + transactional(2, 1, "a2")
    + marker(3, 1, commits=False)
    + transactional(4, 1, "a3")
    + marker(5, 2, commits=True)
    + marker(6, 1, commits=True)
    + batch(7, "plain")
)


def test_aborted_transactions_are_left_out_for_who_reads_committed() -> None:
    committed = Cursor("t", 0, 0, committed=True)
    assert values(committed.feed(fetched(LOG, aborted=((1, 0),)), 10, was_first=True)) == ["b1", "a3", "plain"]
    assert committed.offset == 8
    everything = Cursor("t", 0, 0)
    assert values(everything.feed(fetched(LOG), 10, was_first=True)) == ["a1", "b1", "a2", "a3", "plain"]


def test_a_position_within_an_aborted_transaction() -> None:
    cursor = Cursor("t", 0, 2, committed=True)
    data = LOG[len(transactional(0, 1, "a1")) :]
    assert values(cursor.feed(fetched(data, aborted=((1, 0),)), 10, was_first=True)) == ["a3", "plain"]


def test_a_log_that_ends_with_control_batches_is_read_to_its_end() -> None:
    cursor = Cursor("t", 0, 0, stop=2, committed=True)
    data = transactional(0, 1, "a") + marker(1, 1, commits=False)
    assert cursor.feed(fetched(data, end=2, aborted=((1, 0),)), 10, was_first=True) == []
    assert cursor.is_done
    assert not cursor.failed


def test_what_is_compacted_away_at_the_end_does_not_keep_a_reader() -> None:
    cursor = Cursor("t", 0, 5, stop=8)
    assert cursor.feed(fetched(b"", end=8), 10, was_first=False) == []
    assert not cursor.is_done, "another partition may have taken its place in the answer"
    assert cursor.feed(fetched(b"", end=8), 10, was_first=True) == []
    assert cursor.is_done


def test_a_batch_that_is_cut_off_comes_again() -> None:
    cursor = Cursor("t", 0, 0)
    whole = batch(0, "a") + batch(1, "b")
    assert values(cursor.feed(fetched(whole[:-1]), 10, was_first=True)) == ["a"]
    assert values(cursor.feed(fetched(batch(1, "b")), 10, was_first=True)) == ["b"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (batch(0, "a") + batch(1, "bbbb")[:-1] + b"\xff", "the batch at offset 1 is unreadable: batch checksum"),
        (batch(1, "b")[:-1], "no whole batch at offset 1"),
        (b"\0" * 40, "offset 1 is unreadable"),
        (b"\xff" * 40, "offset 1 is unreadable"),
        (batch(1, "x" * 5000, codec=GZIP), "decompresses to more than 4096 bytes"),
    ],
)
def test_damage_ends_the_partition_and_names_the_offset(data: bytes, said: str) -> None:
    cursor = Cursor("t", 0, 1, unpacked_bytes_max=4096)
    assert cursor.feed(fetched(data), 10, was_first=True) == []
    assert cursor.failed is not None
    assert cursor.failed.code == ErrorCode.CORRUPT_MESSAGE
    assert said in str(cursor.failed)
    assert cursor.is_done


def test_random_damage_never_escapes() -> None:
    rng = Random(11)
    data = LOG + batch(8, "x" * 300, codec=ZSTD)
    for _ in range(2000):
        hurt = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 9])):
            hurt[rng.randrange(len(hurt))] = rng.randrange(256)
        cursor = Cursor("t", 0, 0, committed=rng.random() < 0.5)
        found = cursor.feed(fetched(bytes(hurt[: rng.randrange(len(hurt))])), 100, was_first=True)
        assert all(record.offset < cursor.offset for record in found)


# -- the newest --------------------------------------------------------------------------------------------------------


def record(partition: int, offset: int, timestamp: int, value: bytes = b"v") -> Read:
    return Read("t", partition, offset, timestamp, None, value, (), BatchFacts())


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_by_a_model(seed: int) -> None:
    """Logs with gaps, and a filter: what the search finds is what a look at everything finds."""
    rng = Random(seed)
    logs = {}
    for partition in range(rng.randint(1, 4)):
        start = rng.randrange(50)
        offsets = [offset for offset in range(start, start + rng.randrange(120)) if rng.random() < 0.7]
        logs["t", partition] = [
            record(partition, each, rng.randrange(1000), b"%d" % rng.randrange(5)) for each in offsets
        ]
    spans = {
        place: Span(log[0].offset - rng.randrange(3) if log else 7, log[-1].offset + 1 + rng.randrange(4) if log else 7)
        for place, log in logs.items()
    }
    count = rng.choice([0, 1, 3, 10, 500])
    wanted = (lambda each: each.value == b"1") if rng.random() < 0.5 else None
    search = Backward(spans, count, wanted=wanted, bytes_max=1 << 30)
    while windows := search.windows():
        inside = [
            each for place, span in windows.items() for each in logs[place] if span.start <= each.offset < span.end
        ]
        search.found(windows, [each for each in inside if search.is_wanted(each)], sum(each.size for each in inside))
    right = [[each for each in log if search.is_wanted(each)] for log in logs.values()]
    per_partition = [log[-count:] if count else [] for log in right]
    assert search.result() == (in_time(per_partition)[-count:] if count else [])
    assert len(search.result()) == min(count, sum(map(len, right)))
    assert search.not_searched == {}


def test_a_search_ends_when_enough_was_read() -> None:
    search = Backward({("t", 0): Span(0, 1_000_000)}, 5, wanted=lambda each: False, bytes_max=10_000)
    read = 0
    while windows := search.windows():
        (span,) = windows.values()
        read += span.end - span.start
        search.found(windows, [], (span.end - span.start) * 100)
    assert read * 100 <= 20_000
    assert search.not_searched == {("t", 0): 1_000_000 - read}
    assert search.result() == []


def test_records_of_several_partitions_in_time() -> None:
    one = [record(0, 1, 10), record(0, 2, 5), record(0, 3, 30)]  # its second is late
    two = [record(1, 1, 7), record(1, 2, 20)]
    assert [(each.partition, each.offset) for each in in_time([one, two])] == [(1, 1), (0, 1), (0, 2), (1, 2), (0, 3)]

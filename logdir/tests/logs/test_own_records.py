"""Records of the broker itself: what shares a batch, what begins another one, and what becomes of both in trouble."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import Record, build_control_batch, check_batch, iter_records
from barnabas.kproto.records_plain import PlainRecords
from barnabas.logdir import AppendOrigin, InTransaction, LogConfig, OwnProducer, PartitionLog, StorageError
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.logs.append_rules import JOINED_BYTES_MAX
from barnabas.logdir.logs.appender import LONE_FROM
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir, put, stored

E = ErrorCode
EPOCH = 3


def make(disk: MemoryDisk | None = None, **config: object) -> PartitionLog:
    log_dir = open_dir(disk or MemoryDisk())
    return log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]


def records(*values: str) -> PlainRecords:
    return PlainRecords([Record(key=value[:1].encode(), value=value.encode()) for value in values])


def own(
    log: PartitionLog,
    *values: str,
    epoch: int = EPOCH,
    now_ms: int = NOW,
    producer: OwnProducer | None = None,
) -> int:
    return log.appender.append_own(records(*values), epoch, now_ms, producer)[0]


def shape(log: PartitionLog) -> list[tuple[int, Sequence[str]]]:
    """(base offset, values) of every batch, whose checksums are right."""
    found = []
    for header, data in stored(log):
        assert check_batch(data) == header
        found.append((header.base_offset, [(record.value or b"").decode() for record in iter_records(data)]))
    return found


def test_records_of_a_round_share_a_batch() -> None:
    log = make()
    assert [own(log, "a"), own(log, "b", "c"), own(log, "d")] == [0, 1, 3]
    assert (log.next_offset, log.log_end_offset) == (4, 0)
    log.write()
    assert shape(log) == [(0, ["a", "b", "c", "d"])]
    assert own(log, "e") == 4
    log.write()
    assert shape(log)[1:] == [(4, ["e"])], "what is written grows no more"


def test_a_batch_has_the_time_and_the_epoch_of_its_beginning() -> None:
    log = make()
    own(log, "a")
    own(log, "b", now_ms=NOW + 7)
    log.write()
    ((header, data),) = stored(log)
    assert (header.base_timestamp, header.max_timestamp, header.partition_leader_epoch) == (NOW, NOW, EPOCH)
    assert [record.timestamp for record in iter_records(data)] == [NOW, NOW]


def test_how_many_bytes_are_to_be_written() -> None:
    log = make()
    sizes = [log.appender.append_own(records(value), EPOCH, NOW)[1] for value in ("a", "b" * 70)]
    log.write()
    assert sum(sizes) == log.size
    assert sizes[0] - 61 < sizes[1], "only the first has a header"


BETWEEN: list[Callable[[PartitionLog], object]] = [
    lambda log: log.append(batch("x"), leader_epoch=EPOCH, now_ms=NOW),
    lambda log: log.appender.append_run([memoryview(batch(*"xyz"))] * 2, leader_epoch=EPOCH, now_ms=NOW),
    lambda log: log.append(batch("x"), leader_epoch=EPOCH, now_ms=NOW, origin=AppendOrigin.COORDINATOR),
    lambda log: own(log, "x", producer=OwnProducer(7, 0)),
    lambda log: log.roll(NOW),
    lambda log: log.assign_leader_epoch(EPOCH + 1),
]


@pytest.mark.parametrize("between", BETWEEN, ids=["client", "run", "broker", "transaction", "roll", "epoch"])
def test_what_comes_between_ends_the_batch(between: Callable[[PartitionLog], object]) -> None:
    log = make()
    own(log, "a")
    between(log)
    own(log, "b", epoch=log.latest_epoch)
    log.write()
    found = shape(log)
    assert found[0] == (0, ["a"])
    assert found[-1] == (log.log_end_offset - 1, ["b"])
    assert [base for base, _ in found] == sorted(base for base, _ in found)


def test_a_transaction_stands_alone() -> None:
    log = make()
    own(log, "a")
    own(log, "t", producer=OwnProducer(7, 2))
    own(log, "u", producer=OwnProducer(7, 2))
    own(log, "b")
    log.write()
    assert shape(log) == [(0, ["a"]), (1, ["t"]), (2, ["u"]), (3, ["b"])]
    headers = [header for header, _ in stored(log)]
    assert [header.is_transactional for header in headers] == [False, True, True, False]
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers[:2]] == [
        (-1, -1, -1),
        (7, 2, -1),
    ]
    assert log.last_stable_offset(log.log_end_offset) == 1
    marker = build_control_batch(producer_id=7, producer_epoch=2, commit=True, coordinator_epoch=0, timestamp=NOW)
    log.append(marker, leader_epoch=EPOCH, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.write()
    assert log.last_stable_offset(log.log_end_offset) == 5


def test_a_transaction_that_is_not_open_is_refused() -> None:
    log = make()
    own(log, "a")
    with pytest.raises(KafkaError) as caught:
        own(log, "t", producer=OwnProducer(7, 0, InTransaction()))
    assert caught.value.code is E.INVALID_TXN_STATE
    assert own(log, "b") == 1
    log.write()
    assert [value for _, values in shape(log) for value in values] == ["a", "b"]
    assert not log.producer_count


def test_a_batch_grows_to_its_limit() -> None:
    log = make()
    for number in range(40):
        assert own(log, "x" * 3000) == number
    log.write()
    sizes = [header.size for header, _ in stored(log)]
    assert len(sizes) == 2
    assert JOINED_BYTES_MAX - 3100 < sizes[0] <= JOINED_BYTES_MAX


def test_records_beyond_the_limit_have_a_batch_of_their_own() -> None:
    log = make()
    own(log, "a")
    own(log, "x" * (JOINED_BYTES_MAX + 1))
    own(log, "b")
    log.write()
    assert [base for base, _ in shape(log)] == [0, 1, 2]


def test_many_records_have_a_batch_of_their_own() -> None:
    log = make()
    own(log, "a")
    own(log, *"x" * LONE_FROM)
    own(log, "b")
    own(log, *"y" * (LONE_FROM - 1))
    log.write()
    assert [(base, len(values)) for base, values in shape(log)] == [
        (0, 1),
        (1, LONE_FROM),
        (1 + LONE_FROM, LONE_FROM),
    ]


@pytest.mark.parametrize(
    ("config", "code"),
    [({"max_message_bytes": 300}, E.MESSAGE_TOO_LARGE), ({"segment_bytes": 300}, E.RECORD_LIST_TOO_LARGE)],
)
def test_what_the_topic_does_not_take_is_refused_alone(config: dict[str, object], code: ErrorCode) -> None:
    log = make(**config)
    own(log, "a" * 100)
    with pytest.raises(KafkaError) as caught:
        own(log, "x" * 300)
    assert caught.value.code is code
    assert [own(log, "b"), own(log, "c" * 100)] == [1, 2]
    log.write()
    assert [value[:1] for _, values in shape(log) for value in values] == ["a", "b", "c"]
    assert all(header.size <= 300 for header, _ in stored(log))


def test_a_full_segment_ends_the_batch() -> None:
    log = make(segment_bytes=400)
    for letter in "abcdef":
        own(log, letter * 100)
    log.write()
    assert [(base, [value[:1] for value in values]) for base, values in shape(log)] == [
        (0, ["a", "b", "c"]),
        (3, ["d", "e", "f"]),
    ]
    assert [segment.base_offset for segment in log.state.segments] == [0, 3]


def test_an_old_segment_ends_it_too() -> None:
    log = make(segment_ms=1000)
    put(log, "x")
    own(log, "a")
    log.write()
    own(log, "b", now_ms=NOW + 2000)
    log.write()
    assert [segment.base_offset for segment in log.state.segments] == [0, 2]


def test_other_settings_while_it_grows() -> None:
    """The age of the segment is counted anew, from a batch that is not written yet."""
    log = make()
    own(log, "a")
    log.config = LogConfig(max_message_bytes=200, segment_ms=1000)
    own(log, "b")
    log.append(batch("c"), leader_epoch=EPOCH, now_ms=NOW)
    log.config = LogConfig()
    own(log, "d")
    log.write()
    assert [value for _, values in shape(log) for value in values] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("code", [errno.EINTR, errno.EIO])
def test_a_write_that_fails_leaves_nothing_of_it(code: int) -> None:
    disk = MemoryDisk()
    log = make(disk)
    put(log, "before", leader_epoch=EPOCH)
    own(log, "a")
    own(log, "b")
    disk.space, disk.full = 20, code
    with pytest.raises(StorageError):
        log.write()
    disk.space = None
    assert (log.next_offset, log.log_end_offset) == (1, 1)
    assert log.writer.growing is None
    if code == errno.EINTR:
        assert own(log, "c") == 1
        log.write()
        assert shape(log) == [(0, ["before"]), (1, ["c"])]
    else:
        with pytest.raises(StorageError):
            own(log, "c")


def test_a_roll_that_fails_loses_all_of_the_round() -> None:
    disk = MemoryDisk()
    log = make(disk, segment_bytes=300)
    own(log, "a" * 150)
    disk.space, disk.full = 20, errno.EINTR
    with pytest.raises(StorageError):
        own(log, "b" * 150)
    disk.space = None
    assert own(log, "c") == 0
    log.write()
    assert shape(log) == [(0, ["c"])]


def test_truncating_ends_it() -> None:
    log = make()
    own(log, "a", "b")
    log.truncate_to(1, NOW)
    own(log, "c")
    log.write()
    assert shape(log) == [(0, ["c"])]  # a batch is cut off as a whole
    own(log, "d")
    log.truncate_fully(10, NOW)
    assert own(log, "e") == 10
    log.write()
    assert shape(log) == [(10, ["e"])]

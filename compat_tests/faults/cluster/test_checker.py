"""The checker finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.faults.cluster.checker import Findings, Send, check, distribution, silences
from compat_tests.faults.cluster.renumbering import renumbered


def sends(*acknowledged: int, failed: tuple[int, ...] = (), unknown: tuple[int, ...] = ()) -> list[Send]:
    """Sends of producer 1 to partition 0: number n acknowledged at offset n."""
    made = [Send(0, 1, number, 0.0, done_at=1.0, offset=number) for number in acknowledged]
    made += [Send(0, 1, number, 0.0, done_at=1.0, error="timed out") for number in failed]
    return made + [Send(0, 1, number, 0.0) for number in unknown]


def found(findings: Findings) -> dict[str, int]:
    """How many of each kind, without those there are none of."""
    return {kind: len(texts) for kind, texts in findings.kinds.items() if texts}


def test_all_is_well() -> None:
    findings = check(
        sends(0, 1, 2, failed=(4,), unknown=(3,)), {0: [(n, (1, n)) for n in range(4)]}, {0: [(1, (1, 1))]}
    )
    assert findings.good
    assert findings.counts == {
        "sent": 5,
        "acknowledged": 3,
        "failed": 1,
        "unknown": 1,
        "read back": 4,
        "seen by the reader": 1,
    }


@pytest.mark.parametrize(
    ("final", "kinds"),
    [
        ([(0, (1, 0)), (1, (1, 1))], {"lost": 1}),
        ([(0, (1, 0)), (1, (1, 1)), (2, (1, 2)), (3, (1, 2))], {"doubled": 1}),
        ([(0, (1, 0)), (1, (1, 2)), (2, (1, 1))], {"reordered": 1, "moved": 2}),
        ([(0, (1, 0)), (1, (1, 1)), (3, (1, 2))], {"gaps": 1, "moved": 1}),
        ([(0, (1, 0)), (1, (1, 1)), (2, (1, 2)), (3, (9, 0))], {"phantoms": 1}),
        ([], {"lost": 3}),
    ],
)
def test_finds(final: list[tuple[int, tuple[int, int]]], kinds: dict[str, int]) -> None:
    assert found(check(sends(0, 1, 2), {0: final})) == kinds


LOG = """\
10:00:01.000 load-1 ERRSEQ [load-1#producer-7] [thrd:h:9092/2]: h:9092/2: ProduceRequest for faults [2] with \
12 message(s) failed due to skipped sequence numbers (PID{Id:1,Epoch:0}, base seq 40 > next seq 30) \
caused by previous failed request (NOT_LEADER_FOR_PARTITION, actions Refresh,MsgNotPersisted, base seq 30..39, \
base msgid 31, 81ms ago): recovering and retrying
10:00:01.001 load-1 DRAIN [load-1#producer-7] [thrd:h:9092/2]: Beginning partition drain in state Assigned for \
PID{Id:1,Epoch:0} epoch bump for 4 partition(s) with in-flight requests: skipped sequence numbers
"""

MORE = """
10:00:01.002 load-1 ERRSEQ [load-1#producer-7] [thrd:h:9092/2]: h:9092/2: ProduceRequest for faults [2] with \
3 message(s) failed due to skipped sequence numbers (PID{Id:1,Epoch:0}, base seq 52 > next seq 30) \
caused by previous failed request (OUT_OF_ORDER_SEQUENCE_NUMBER, actions Retry, base seq 40..51, base msgid 41, \
0ms ago): recovering and retrying
10:00:01.003 load-1 ERRSEQ [load-1#producer-7] [thrd:h:9092/2]: h:9092/2: ProduceRequest for faults [2] with \
1 message(s) failed due to skipped sequence numbers (PID{Id:1,Epoch:0}, base seq 55 > next seq 30) \
caused by previous failed request (OUT_OF_ORDER_SEQUENCE_NUMBER, actions Retry, base seq 52..54, base msgid 53, \
0ms ago): recovering and retrying
"""


@pytest.mark.parametrize(
    ("log", "excused"),
    [
        (LOG, {1}),
        (LOG.replace("NOT_LEADER_FOR_PARTITION", "UNKNOWN_TOPIC_OR_PART"), {1}),
        (LOG.replace("base seq 30..39", "base seq 39..39"), {1}),  # 30..38 was refused before it
        (LOG.replace("base seq 30..39", "base seq 38..38"), set()),  # what came then was not
        (LOG.replace("base seq 30..39", "base seq 20..29"), set()),  # what was refused is not what is missing
        (LOG.replace("NOT_LEADER_FOR_PARTITION", "NO_ERROR"), set()),
        (LOG + LOG.splitlines()[1].replace("skipped sequence numbers", "unknown producer id"), set()),
        (LOG.replace("skipped", "rewound"), set()),
        (LOG + MORE, {1}),  # several were on their way
        (MORE + LOG, set()),  # the first of them has no reason
        (LOG + MORE.replace("base seq 55", "base seq 56"), set()),  # 55 is missing, and was not refused
        (LOG + MORE.replace("40..51", "39..51"), set()),  # what was refused is not what was skipped
        (LOG + MORE.replace("faults [2]", "faults [3]"), set()),
        (LOG + MORE.replace("Epoch:0", "Epoch:1"), set()),
        ("", set()),
    ],
)
def test_a_client_that_numbers_anew_doubles_by_itself(tmp_path: Path, log: str, excused: set[int]) -> None:
    (tmp_path / "clients.log").write_text(log)
    known = renumbered(tmp_path / "clients.log")
    assert known.excused == excused
    final = {0: [(0, (1, 0)), (1, (1, 1)), (2, (1, 2)), (3, (1, 2)), (4, (1, 2))]}
    findings = check([*sends(0, 1), Send(0, 1, 2, 0.0, done_at=1.0, offset=4)], final, {0: [(3, (1, 2))]}, known)
    assert findings.good == bool(excused)
    assert len(findings.by_client) == 2 * len(excused)


def test_a_client_is_not_excused_for_what_another_doubled(tmp_path: Path) -> None:
    (tmp_path / "clients.log").write_text(LOG.replace("load-1", "load-2"))
    known = renumbered(tmp_path / "clients.log")
    assert known.excused == {2}
    assert found(check(sends(0), {0: [(0, (1, 0)), (1, (1, 0))]}, {}, known)) == {"doubled": 1}


def test_a_failed_send_may_be_there_but_not_twice() -> None:
    assert check(sends(0, failed=(1,)), {0: [(0, (1, 0)), (1, (1, 1))]}).good
    assert found(check(sends(0, failed=(1,)), {0: [(0, (1, 0)), (1, (1, 1)), (2, (1, 1))]})) == {"doubled": 1}


def test_what_a_reader_saw_must_stay() -> None:
    final = {0: [(0, (1, 0))]}
    assert found(check(sends(0, unknown=(1,)), final, {0: [(1, (1, 1))]})) == {"lost": 1}
    seen = {0: [(0, (1, 1))]}
    assert found(check(sends(0, unknown=(1,)), final, seen)) == {"lost": 1, "moved": 1}


def test_an_empty_partition_is_not_overlooked() -> None:
    assert found(check([Send(3, 1, 0, 0.0, done_at=1.0, offset=0)], {})) == {"lost": 1}


def test_texts_are_limited_but_counted() -> None:
    findings = check(sends(*range(100)), {0: []})
    assert "100 lost" in str(findings)
    assert "and 90 more" in str(findings)


def test_silences() -> None:
    made = [Send(0, 1, n, t, done_at=t, offset=n) for n, t in enumerate((1.0, 2.0, 7.0, 8.0))]
    made += [Send(1, 1, n, t, done_at=t, offset=n) for n, t in enumerate((1.0, 2.0, 3.0))]
    made.append(Send(2, 1, 0, 1.0))
    assert silences(made, 1.5, 9.0) == {0: 5.0, 1: 6.0, 2: 7.5}
    assert distribution([1.0, 3.0, 2.0]) == "n=3 min 1.00 s, median 2.00, p90 3.00, max 3.00"

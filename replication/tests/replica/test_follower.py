"""Where a follower truncates: the table of KIP-101, KIP-279 and KIP-595."""

from __future__ import annotations

import pytest

from barnabas.replication.replica.follower import Truncation, truncation
from barnabas.replication.tests.replica.logs import FakeLog


def log(*epochs: int, high_watermark: int = 0, start: int = 0) -> FakeLog:
    made = FakeLog(*epochs, start=start)
    made.high_watermark = high_watermark
    return made


TABLE = {
    "the leader knows no such epoch: the high watermark": (log(1, 1, 2, 2, high_watermark=1), -1, -1, (1, True)),
    "the high watermark, which is never above the end": (log(1, high_watermark=9), -1, -1, (1, True)),
    "the leader answers without epoch: its end": (log(1, 1, 2, 2), -1, 3, (3, True)),
    "its end, which may be above ours": (log(1, 1, 2, 2), -1, 9, (4, True)),
    "same epoch, the leader has less": (log(1, 1, 1, 1), 1, 2, (2, True)),
    "same epoch, the leader has more": (log(1, 1, 1, 1), 1, 9, (4, True)),
    "same epoch, ours ends earlier": (log(1, 1, 2, 2), 1, 9, (2, True)),
    "an epoch of the leader that we never saw: to what precedes it, and ask again": (log(1, 1, 3, 3), 2, 9, (2, False)),
    "so too if it ends earlier there": (log(1, 1, 3, 3), 2, 1, (2, False)),
    "below all that is known here: the start of the first": (log(5, 5, start=10), 2, 3, (3, True)),
    "below all, and the leader has more": (log(5, 5, start=10), 2, 11, (10, True)),
    "above all that is known here": (log(1, 1), 7, 1, (1, True)),
    "no epochs at all": (log(), 7, 1, (0, True)),
    "empty on the leader's side": (log(0, 0), 0, 0, (0, True)),
}


@pytest.mark.parametrize("case", TABLE)
def test_truncation(case: str) -> None:
    own, epoch, end_offset, expected = TABLE[case]
    assert truncation(own, epoch, end_offset) == Truncation(*expected)

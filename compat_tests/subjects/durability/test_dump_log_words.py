"""Which lines of DumpLogSegments are complaints: as the tool of 4.3.1 writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.harness import dump_log

GAP = [
    "Non-consecutive offsets in /d/data/t-0/00000000000000000000.log",
    "  -1 is followed by 0",
    "  3 is followed by 7",
]


@pytest.mark.parametrize(
    "line",
    [
        "Mismatches in :/d/data/t-0/00000000000000000000.index",
        "Found timestamp mismatch in :/d/data/t-0/00000000000000000000.timeindex",
        "Found out of order timestamp in :/d/data/t-0/00000000000000000000.timeindex",
        "The following indexed offsets are not found in the log.",
        "Found 17 invalid bytes at the end of 00000000000000000000.log",
        'Exception in thread "main" org.apache.kafka.common.KafkaException: Failed to decompress record stream',
        "Snapshot is corrupt (CRC is no longer valid).",
    ],
)
def test_complaints(line: str) -> None:
    assert dump_log.wrong(["Dumping t-0/00000000000000000000.log", line]) == [line]


def test_what_sound_logs_say() -> None:
    said = [
        "Dumping corrupt-Error-0/00000000000000000000.log",
        "SLF4J: Class path contains multiple SLF4J bindings. Error",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 9 count: 10 isTransactional: false isControl: false position: 0 magic: 2",
        "| offset: 0 CreateTime: 17 keySize: 5 valueSize: -1 headerKeys: [] key: Error",
        "/d/data/t-0/00000000000000000000.index passed sanity check.",
        "/d/data/t-0/00000000000000000000.index is empty.",
    ]
    assert dump_log.wrong(said) == []


def test_offsets_may_be_missing_where_the_cleaner_has_been() -> None:
    assert dump_log.wrong(GAP) == ["/d/data/t-0/00000000000000000000.log: 3 is followed by 7"]
    assert dump_log.wrong(GAP, [Path("/d/data/t-0")]) == []
    back = [GAP[0], "  7 is followed by 7", "  9 is followed by 3"]
    assert len(dump_log.wrong(back, [Path("/d/data/t-0")])) == 2

"""Records of `__share_group_state`: bytes that Apache Kafka 4.3.1 has written."""

from __future__ import annotations

import pytest

from barnabas.coordinator.share import ShareKey, ShareState, StateBatch
from barnabas.coordinator.share.state_stored import (
    ShareChange,
    Snapshot,
    Update,
    parse_share,
    snapshot_record,
    update_record,
)
from barnabas.kproto import DecodeError

TOPIC_ID = bytes.fromhex("17cc317c752a46788da044f644f5367c")
KEY = ShareKey("sg1", TOPIC_ID, 0)
SNAPSHOT_KEY = bytes.fromhex("0000 0003 736731 17cc317c752a46788da044f644f5367c 00000000")
SNAPSHOT = bytes.fromhex("0000 00000000 00000002 00000000 ffffffffffffffff 000001a2084a9738 000001a2084a9738 01 00")
UPDATE = bytes.fromhex(
    "0000 00000000 00000000 0000000000000000 02 0000000000000000 0000000000000027 00 0001 00 01 00 04 00000000"
)


def test_snapshot() -> None:
    state = ShareState(0, 2, 0, -1, -1, 0x1A2084A9738, 0x1A2084A9738)
    assert snapshot_record(KEY, state)[:2] == (SNAPSHOT_KEY, SNAPSHOT)
    assert parse_share(SNAPSHOT_KEY, SNAPSHOT) == Snapshot(KEY, state)


def test_update() -> None:
    change = ShareChange(0, 0, 0, 0, (StateBatch(0, 39, 0, 1),))
    key = b"\0\1" + SNAPSHOT_KEY[2:]
    assert update_record(KEY, change)[:2] == (key, UPDATE)
    assert parse_share(key, UPDATE) == Update(KEY, change)


def test_tombstone() -> None:
    assert snapshot_record(KEY, None)[:2] == (SNAPSHOT_KEY, None)
    assert parse_share(SNAPSHOT_KEY, None) == Snapshot(KEY, None)
    assert parse_share(b"\0\1" + SNAPSHOT_KEY[2:], None) is None


def test_others() -> None:
    assert parse_share(b"\0\7" + SNAPSHOT_KEY[2:], SNAPSHOT) is None
    for key, value in ((b"\0", SNAPSHOT), (SNAPSHOT_KEY[:9], SNAPSHOT), (SNAPSHOT_KEY, SNAPSHOT[:9])):
        with pytest.raises(DecodeError):
            parse_share(key, value)
    with pytest.raises(DecodeError):
        parse_share(SNAPSHOT_KEY, b"\0\1" + SNAPSHOT[2:])

"""The keys by which share coordinators are found."""

from __future__ import annotations

import pytest

from barnabas.coordinator import partition_for
from barnabas.coordinator.share import ShareKey, coordinator_key, parse_coordinator_key
from barnabas.kproto import ErrorCode, KafkaError

TOPIC_ID = bytes.fromhex("17cc317c752a46788da044f644f5367c")


@pytest.mark.parametrize("group_id", ["sg1", "a:b", ":", "a\nb", "ä"])
def test_there_and_back(group_id: str) -> None:
    key = ShareKey(group_id, TOPIC_ID, 3)
    text = coordinator_key(key)
    assert text == f"{group_id}:F8wxfHUqRniNoET2RPU2fA:3"
    assert parse_coordinator_key(text) == key
    assert 0 <= partition_for(text, 50) < 50


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g:F8wxfHUqRniNoET2RPU2fA",
        ":F8wxfHUqRniNoET2RPU2fA:0",
        " :F8wxfHUqRniNoET2RPU2fA:0",
        "g:F8wxfHUqRniNoET2RPU2fA:",
        "g:F8wxfHUqRniNoET2RPU2fA:-1",
        "g:F8wxfHUqRniNoET2RPU2fA:x",
        "g:F8wxfHUqRniNoET2RPU2fA:2147483648",
        "g:short:0",
        "g:F8wxfHUqRniNoET2RPU2f!:0",
        "g:AAAAAAAAAAAAAAAAAAAAAA:0",
    ],
)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        parse_coordinator_key(text)
    assert refused.value.code == ErrorCode.INVALID_REQUEST

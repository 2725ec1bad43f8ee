"""For whom quotas are set: what may be set, how it is stored, what of a stored one counts."""

from __future__ import annotations

import math

import pytest

from barnabas.server.security.quotas.entities import QuotaEntity, QuotaKey, limits_of, text_of


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (QuotaKey.PRODUCE, 1024.0, "1024"),
        (QuotaKey.PRODUCE, 1024.0000005, "1024"),
        (QuotaKey.FETCH, 2.0**63, str(2**63 - 1)),  # as close as the protocol comes to the largest
        (QuotaKey.REQUEST, 0.25, "0.25"),
        (QuotaKey.REQUEST, 200.0, "200.0"),
        (QuotaKey.MUTATIONS, 1e-3, "0.001"),
        (QuotaKey.CONNECTIONS, 2.0**31 - 1, "2147483647"),
    ],
)
def test_what_is_stored(key: QuotaKey, value: float, text: str) -> None:
    assert text_of(key, value) == text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in QuotaKey for value in (0.0, -1.0, math.nan, math.inf, -math.inf)),
        (QuotaKey.PRODUCE, 0.5),
        (QuotaKey.PRODUCE, 1e-7),
        (QuotaKey.FETCH, 1e19),
        (QuotaKey.CONNECTIONS, 1.5),
        (QuotaKey.CONNECTIONS, 2.0**31),
    ],
)
def test_what_cannot_be_a_limit(key: QuotaKey, value: float) -> None:
    with pytest.raises(ValueError, match=key.value):
        text_of(key, value)


def test_only_what_belongs_to_the_entity_counts() -> None:
    config = {"producer_byte_rate": "10", "connection_creation_rate": "3", "SCRAM-SHA-256": "x", "other": "1"}
    assert limits_of(QuotaEntity("alice"), config) == ({QuotaKey.PRODUCE: 10.0}, [])
    assert limits_of(QuotaEntity(ip=""), config) == ({QuotaKey.CONNECTIONS: 3.0}, [])


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "0", "-1"])
def test_what_is_stored_and_no_limit_is_named(text: str) -> None:
    limits, problems = limits_of(QuotaEntity("", "c"), {"producer_byte_rate": text, "request_percentage": "1.5"})
    assert limits == {QuotaKey.REQUEST: 1.5}
    assert problems == [
        f"producer_byte_rate={text!r} of user <default>, client-id c is no limit that can be kept; there is none"
    ]

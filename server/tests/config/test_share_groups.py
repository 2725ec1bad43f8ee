"""Settings of one share group: its own, the broker's, and bounds that have moved."""

from __future__ import annotations

import pytest

from barnabas.coordinator import GroupSettings
from barnabas.coordinator.share import ShareSettings
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.share_groups import Reading, group_settings, reading, record_settings
from barnabas.server.settings.share_groups import GROUP_SETTINGS, duration_ms

CONFIG = BrokerConfig.from_values(
    {"group.share.delivery.count.limit": "7", "group.share.heartbeat.interval.ms": "6000"}
)


def test_defaults_are_the_brokers() -> None:
    assert group_settings(CONFIG, {}) == GroupSettings(45_000, 6_000, 1_000)
    assert record_settings(CONFIG, {}) == ShareSettings(30_000, 7, 2_000, True)
    assert reading(CONFIG, {}) == Reading(False, False, None)


def test_a_groups_own() -> None:
    own = {
        "share.session.timeout.ms": "50000",
        "share.assignment.interval.ms": "0",
        "share.record.lock.duration.ms": "20000",
        "share.delivery.count.limit": "3",
        "share.partition.max.record.locks": "150",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "by_duration:PT1.5S",
    }
    assert group_settings(CONFIG, own) == GroupSettings(50_000, 6_000, 0)
    assert record_settings(CONFIG, own) == ShareSettings(20_000, 3, 150, False)
    assert reading(CONFIG, own) == Reading(True, False, 1_500)
    assert reading(CONFIG, {"share.auto.offset.reset": "earliest"}) == Reading(False, True, None)


def test_bounds_that_have_moved() -> None:
    own = {
        "share.record.lock.duration.ms": "900000",
        "share.session.timeout.ms": "1",
        "share.delivery.count.limit": "25",
    }
    assert record_settings(CONFIG, own).record_lock_duration_ms == 60_000
    assert record_settings(CONFIG, own).delivery_count_limit == 10
    assert group_settings(CONFIG, own).session_timeout_ms == 45_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H", 3_600_000),
        ("pt2m", 120_000),
        ("P1DT1H1M1.25S", 90_061_250),
        ("PT0S", 0),
        ("PT0.0001S", 0),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1D", "PT-1S", "P1M", "P1Y", "PT1D", "P1DT", "PT1S ", "PT1H1H"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration like P7D or PT1H30M"):
        duration_ms(text)


def test_only_what_is_one_may_be_set() -> None:
    (row,) = (row.setting for row in GROUP_SETTINGS if row.setting.name == "share.auto.offset.reset")
    assert [row.why_not(text) for text in ("earliest", "latest", "by_duration:P7D")] == [None] * 3
    assert all(row.why_not(text) for text in ("", "newest", "by_duration", "by_duration:", "by_duration:7 days"))

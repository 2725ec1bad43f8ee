"""The inter-broker protocol: names, order, versions of requests."""

import pytest

from barnabas.kproto import ApiKey
from barnabas.replication.values.interbroker import _ORDER, _SINCE, LATEST, InterBrokerProtocol

VERSIONS = (  # text, LeaderAndIsr, UpdateMetadata, StopReplica, Fetch, ListOffsets, OffsetForLeaderEpoch
    ("0.8.0", 0, 0, 0, 0, 0, 0),
    ("0.9.0", 0, 1, 0, 1, 0, 0),
    ("0.10.0", 0, 2, 0, 2, 0, 0),
    ("0.10.2", 0, 3, 0, 3, 1, 0),
    ("0.11.0.3", 0, 3, 0, 5, 2, 0),
    ("1.0", 1, 4, 0, 5, 2, 0),
    ("1.1", 1, 4, 0, 7, 2, 0),
    ("2.1", 1, 4, 0, 10, 4, 2),
    ("2.2", 2, 5, 1, 10, 5, 2),
    ("2.3", 2, 5, 1, 11, 5, 3),
    ("2.4-IV0", 3, 5, 1, 11, 5, 3),
    ("2.4", 4, 6, 2, 11, 5, 3),
    ("2.6", 4, 6, 3, 11, 5, 3),
    ("2.7-IV0", 4, 6, 3, 11, 5, 3),
    ("2.7-IV1", 4, 6, 3, 12, 5, 3),
    ("2.8-IV0", 4, 6, 3, 12, 6, 4),
    ("2.8.2", 5, 7, 3, 12, 6, 4),
    ("3.0", 5, 7, 3, 12, 7, 4),
    ("3.1", 5, 7, 3, 13, 7, 4),
    ("3.2", 6, 7, 3, 13, 7, 4),
    ("3.4", 7, 8, 4, 13, 7, 4),
    ("3.5", 7, 8, 4, 15, 8, 4),
    ("3.7", 7, 8, 4, 16, 8, 4),
    ("3.9", 7, 8, 4, 17, 9, 4),
)


@pytest.mark.parametrize("row", VERSIONS, ids=lambda row: row[0])
def test_versions(row: tuple[str, int, int, int, int, int, int]) -> None:
    protocol = InterBrokerProtocol.parse(row[0])
    keys = (
        *(ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA),
        *(ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    )
    assert tuple(protocol.version(key) for key in keys) == row[1:]


def test_every_name_is_known_and_none_goes_back() -> None:
    before = InterBrokerProtocol.parse("0.8.0")
    for text in _ORDER:
        protocol = InterBrokerProtocol.parse(text)
        assert protocol.text == text
        assert protocol >= before
        assert all(protocol.version(key) >= before.version(key) for key in _SINCE)
        before = protocol
    assert before == LATEST


def test_releases_stand_for_their_last_sub_version() -> None:
    assert InterBrokerProtocol.parse("2.7").text == "2.7-IV2"
    assert InterBrokerProtocol.parse("2.7.1").text == "2.7-IV2"
    assert InterBrokerProtocol.parse("0.10.1").text == "0.10.1-IV2"
    assert InterBrokerProtocol.parse("0.10.1.0").text == "0.10.1-IV2"
    assert InterBrokerProtocol.parse("3.9.1").text == "3.9-IV0"


@pytest.mark.parametrize("text", ["", "4.0", "3.10", "2.7-IV3", "three", "0.8", "3"])
def test_unknown_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not an inter-broker protocol version"):
        InterBrokerProtocol.parse(text)


def test_features() -> None:
    def names(text: str) -> set[str]:
        protocol = InterBrokerProtocol.parse(text)
        features = ("truncates_on_fetch", "alter_partition", "topic_ids", "allocate_producer_ids", "leader_recovery")
        return {name for name in features if getattr(protocol, name)}

    assert names("2.7-IV0") == set()
    assert names("2.7-IV1") == {"truncates_on_fetch"}
    assert names("2.7-IV2") == {"truncates_on_fetch", "alter_partition"}
    assert names("2.8") == {"truncates_on_fetch", "alter_partition", "topic_ids"}
    assert names("3.0") == names("2.8") | {"allocate_producer_ids"}
    assert names("3.9") == names("3.0") | {"leader_recovery"}
    assert InterBrokerProtocol.parse("3.5").epoch_rises_when_isr_shrinks
    assert not InterBrokerProtocol.parse("3.6").epoch_rises_when_isr_shrinks


@pytest.mark.parametrize(
    ("text", "level"),
    [("2.8", None), ("3.0-IV0", None), ("3.0", 1), ("3.3-IV3", 7), ("3.5-IV2", 11), ("3.7-IV4", 19), ("3.9-IV0", 21)],
)
def test_the_level_of_metadata_has_the_same_name(text: str, level: int | None) -> None:
    """As `MetadataVersion` of Apache Kafka numbers them."""
    assert InterBrokerProtocol.parse(text).metadata_level == level

"""What the broker makes for KIP-848 groups: topics out of pictures, matches of expressions, settings of one group."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.coordinator import GroupSettings, Topic
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import BrokerImage, Image, PartitionImage, TopicImage
from barnabas.server.config import groups as group_config
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.coordinators import group_patterns
from barnabas.server.coordinators.group_topics import GroupTopics
from barnabas.server.coordinators.machine_config import machine_config


def topic(name: str, *replicas: tuple[int, ...], leader: int = 1, topic_id: bytes = b"") -> TopicImage:
    partitions = tuple(PartitionImage(index, leader, 0, 0, on, on) for index, on in enumerate(replicas))
    return TopicImage(name, topic_id or name.encode().ljust(16, b"."), partitions)


def brokers(**racks: str | None) -> Mapping[int, BrokerImage]:
    return {int(name[1:]): BrokerImage(int(name[1:]), (), rack) for name, rack in racks.items()}


def test_only_what_groups_care_for_is_a_change() -> None:
    groups = GroupTopics()
    image = Image().with_topics([topic("a", (1,)), topic("b", (1,), (2,))])
    assert sorted(groups.refresh(image)) == ["a", "b"]
    assert groups.topics.by_name["b"] == Topic("b", b"b".ljust(16, b"."), 2)
    assert groups.refresh(image) == ()
    before = groups.topics
    image = image.with_topics([topic("a", (1,), leader=2)])
    assert not groups.refresh(image)
    assert groups.topics is before
    image = image.with_topics([topic("a", (1,), (1,))], removed=["b"])
    assert sorted(groups.refresh(image)) == ["a", "b"]
    assert groups.topics.version > before.version
    assert {name: one.partition_count for name, one in groups.topics.by_name.items()} == {"a": 2}
    image = image.with_topics([topic("a", (1,), (1,), topic_id=b"x" * 16)])
    assert set(groups.refresh(image)) == {"a"}
    image = image.with_topics([topic("new", (1,), topic_id=bytes(16)), topic("empty")])
    assert not groups.refresh(image)


def test_racks_of_replicas_outlive_their_brokers() -> None:
    groups = GroupTopics()
    image = Image().with_topics([topic("a", (1, 2), (2, 3))]).with_brokers(brokers(b1="r", b2="s", b3=None))
    groups.refresh(image)
    assert groups.topics.by_name["a"].racks == (("r", "s"), ("s",))
    assert not groups.refresh(image.with_brokers(brokers(b1="r")))
    assert set(groups.refresh(image.with_brokers(brokers(b1="q", b2="s")))) == {"a"}
    assert groups.topics.by_name["a"].racks == (("q", "s"), ("s",))
    assert set(groups.refresh(image.with_brokers(brokers(b1=None, b2=None)))) == {"a"}
    assert groups.topics.by_name["a"].racks == ()


def test_expressions_match_whole_names() -> None:
    found = group_patterns.matches(["a+", "(", "", "a|b.*"], ["a", "aa", "ab", "b1", ""])
    assert found == {
        "a+": frozenset({"a", "aa"}),
        "(": frozenset(),
        "": frozenset({""}),
        "a|b.*": frozenset({"a", "b1"}),
    }


@pytest.mark.parametrize("pattern", ["(", "*", "a{2000}", r"(a)\1", "(?=a)", "[z-a]", "(((a{90}){90}){90}){90}"])
def test_expressions_that_are_none(pattern: str) -> None:
    assert f"`{pattern}` is not a valid regular expression: " in (group_patterns.why_invalid(pattern) or "")


@pytest.mark.parametrize("pattern", ["", "a.*", r"\pL+", "(?i)x", "(a*)*b"])
def test_expressions_that_are_some(pattern: str) -> None:
    assert group_patterns.why_invalid(pattern) is None


def test_hostile_expressions_cost_linear_time() -> None:
    assert group_patterns.matches(["(a*)*b"], ["a" * 249]) == {"(a*)*b": frozenset()}


def test_a_groups_own_settings_stand_over_the_brokers() -> None:
    config = BrokerConfig.from_values({"group.consumer.session.timeout.ms": "46000"})
    assert group_config.settings_of(config, {}) == GroupSettings(46000, 5000, 1000)
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "rubbish"}
    assert group_config.settings_of(config, own) == GroupSettings(50000, 5000, 1000)
    lower = BrokerConfig.from_values({"group.consumer.max.session.timeout.ms": "47000"})
    assert group_config.settings_of(lower, own) == GroupSettings(47000, 5000, 1000), "the bound has moved since"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"consumer.session.timeout.ms": "44999"}, "group.consumer.min.session.timeout.ms=45000"),
        ({"share.partition.max.record.locks": "4001"}, "group.share.max.partition.max.record.locks=4000"),
        ({"streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas=2"),
        ({"consumer.session.timeout.ms": "0"}, "at least 1"),
        ({"share.isolation.level": "snapshot"}, "read_committed"),
        ({"nothing": "1"}, "nothing"),
    ],
)
def test_settings_a_group_may_not_have(settings: dict[str, str], named: str) -> None:
    with pytest.raises(KafkaError, match=named) as caught:
        group_config.check(BrokerConfig.from_values({}), settings)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_a_session_is_longer_than_a_heartbeat_interval() -> None:
    low = {"group.consumer.min.session.timeout.ms": "1000"}
    with pytest.raises(KafkaError, match="must be above"):
        group_config.check(BrokerConfig.from_values(low), {"consumer.session.timeout.ms": "5000"})


_TIMES = ("session.timeout", "heartbeat.interval", "assignment.interval")


def test_a_group_may_have_settings_of_every_kind() -> None:
    config = BrokerConfig.from_values({})
    own = {"streams.num.standby.replicas": "1", "consumer.heartbeat.interval.ms": "6000"}
    group_config.check(config, own)
    assert {one.name: one.value for one in group_config.entries(config, own)}.items() >= own.items()
    assert {one.name for one in group_config.entries(config, {})} == WORKING
    (asked,) = group_config.entries(config, {}, ["streams.num.standby.replicas"])
    assert (asked.value, asked.synonyms[0].name) == ("0", "group.streams.num.standby.replicas")


WORKING = {
    *(f"{kind}.{name}.ms" for kind in ("consumer", "share", "streams") for name in _TIMES),
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
}


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("group.consumer.session.timeout.ms", "44000", "group.consumer.min.session.timeout.ms=45000"),
        ("group.consumer.max.heartbeat.interval.ms", "4000", "group.consumer.max.heartbeat.interval.ms=4000"),
        ("group.consumer.assignors", "uniform,sticky", "uniform, range or both"),
        ("group.consumer.assignors", "", "uniform, range or both"),
        ("group.consumer.migration.policy", "sideways", "one of"),
        ("group.coordinator.rebalance.protocols", "consumer", "with classic"),
        ("group.coordinator.rebalance.protocols", "streams", "with classic"),
        ("group.share.session.timeout.ms", "44000", "group.share.min.session.timeout.ms=45000"),
        ("group.share.max.delivery.count.limit", "30", "from 5 to 25"),
        ("group.share.delivery.count.limit", "11", "from 2 to 10"),
        ("group.share.min.record.lock.duration.ms", "30001", "from 1000 to 30000"),
        ("group.share.max.share.sessions", "199", "group.share.max.size=200"),
        ("group.share.assignors", "sticky", "one assignor"),
        ("group.streams.session.timeout.ms", "44000", "group.streams.min.session.timeout.ms=45000"),
        ("group.streams.num.standby.replicas", "3", "group.streams.max.standby.replicas=2"),
    ],
)
def test_settings_of_the_broker_that_are_refused(key: str, value: str, named: str) -> None:
    with pytest.raises(SettingsRefused, match=named):
        BrokerConfig.from_values({key: value})


def test_assignors_by_class_and_policies_in_any_case() -> None:
    classes = "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform"
    made = machine_config(
        BrokerConfig.from_values({"group.consumer.assignors": classes, "group.consumer.migration.policy": "Upgrade"})
    )
    assert made.consumer_assignors == ("range", "uniform")
    assert (made.may_upgrade, made.may_downgrade) == (True, False)

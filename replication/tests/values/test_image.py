"""The image: replaced whole, shared where nothing changed, and what UpdateMetadata makes of it."""

from __future__ import annotations

from dataclasses import replace

from barnabas.replication.messages.effects import PartitionChange, UpdateMetadata, apply_update, being_deleted
from barnabas.replication.values.image import (
    BrokerImage,
    Endpoint,
    Image,
    PartitionImage,
    TopicImage,
    is_internal,
    unled,
)

LED = PartitionImage(0, 1, 0, 0, (1, 2), (1, 2))


def topic(name: str, topic_id: bytes = b"", *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, (topic_id or name.encode()).ljust(16), partitions or (LED,), {"a": "b"})


def test_a_new_picture_leaves_the_old_one_and_shares_the_rest() -> None:
    old = Image(cluster_id="c").with_topics([topic("a"), topic("b")])
    new = old.with_topics([topic("c")], ["a", "never"])
    assert (sorted(old.topics), sorted(new.topics)) == (["a", "b"], ["b", "c"])
    assert new.topics["b"] is old.topics["b"]
    assert old.topic_names == ("a", "b")
    assert new.topic_names == ("b", "c")
    assert new.topic_by_id(topic("a").topic_id) is None
    assert new.topic_by_id(topic("c").topic_id) is new.topics["c"]
    assert new.cluster_id == "c"


def test_a_topic_made_anew_loses_its_old_id() -> None:
    old = Image().with_topics([topic("a", b"1")])
    new = old.with_topics([topic("a", b"2")])
    assert list(new.topics_by_id) == [b"2".ljust(16)]


def test_partitions_are_replaced_and_added() -> None:
    before = topic("a")
    after = before.with_partitions([replace(LED, leader=2), replace(LED, index=2)])
    assert [p.leader for p in after.partitions] == [2, -1, 1]
    assert [p.has_state for p in after.partitions] == [True, False, True]
    assert after.partitions[1] == unled(1)
    assert before.partitions == (LED,)
    image = Image().with_topics([after])
    assert image.partition("a", 2) is after.partitions[2]
    for name, index in (("a", 3), ("a", -1), ("b", 0)):
        assert image.partition(name, index) is None


def test_endpoints_and_internal_names() -> None:
    broker = BrokerImage(1, (Endpoint("A", "h", 1), Endpoint("B", "h", 2, "SSL")))
    assert broker.endpoint("B") == Endpoint("B", "h", 2, "SSL")
    assert broker.endpoint("C") is None
    assert is_internal("__consumer_offsets")
    assert not is_internal("__consumer_offset")


def update(*changes: PartitionChange, brokers: tuple[BrokerImage, ...] = (BrokerImage(1, ()),)) -> UpdateMetadata:
    return UpdateMetadata(1, 3, 1, brokers, changes)


def test_updates_of_a_brokers_picture() -> None:
    changes = [PartitionChange("a", b"1".ljust(16), replace(LED, index=index)) for index in (0, 1)]
    image = apply_update(Image(), update(*changes), {"a": {"x": "y"}})
    assert (image.controller_id, image.controller_epoch, list(image.brokers)) == (1, 3, [1])
    assert len(image.topics["a"].partitions) == 2
    assert image.topics["a"].config == {"x": "y"}
    moved = PartitionChange("a", b"1".ljust(16), replace(LED, leader=2, leader_epoch=1))
    after = apply_update(image, update(moved), {"a": {"not": "asked"}})
    assert [p.leader for p in after.topics["a"].partitions] == [2, 1]
    assert after.topics["a"].config == {"x": "y"}, "settings of known topics are not the controller's to tell"
    assert apply_update(after, update(), {}) is after, "nothing new, no new image"
    again = PartitionChange("a", b"2".ljust(16), LED)
    again = apply_update(after, update(again), {"a": {"n": "ew"}})
    assert len(again.topics["a"].partitions) == 1, "another topic of the same name"
    assert again.topics["a"].config == {"n": "ew"}
    assert list(again.topics_by_id) == [b"2".ljust(16)]
    gone = apply_update(again, update(*being_deleted(again.topics["a"])), {})
    assert gone.topics == {}
    assert gone.topics_by_id == {}
    assert apply_update(gone, update(brokers=(BrokerImage(2, ()),)), {}).brokers == {2: BrokerImage(2, ())}


def test_broker_settings_and_the_controller() -> None:
    image = Image().with_broker_config("1", {"a": "1"}).with_broker_config("<default>", {"b": "2"})
    assert {name: dict(config) for name, config in image.broker_configs.items()} == {
        "1": {"a": "1"},
        "<default>": {"b": "2"},
    }
    assert image.with_controller(2, 9).controller_epoch == 9


def test_settings_that_are_read_again_change_nothing() -> None:
    """By the broker that made a change: at once, and at its notice."""
    image = Image().with_group_config("g", {"a": "1"}).with_client_metrics("s", {"b": "2"})
    assert image.with_group_config("g", {"a": "1"}).with_client_metrics("s", {"b": "2"}) is image
    assert image.with_group_config("h", {}).with_client_metrics("t", {}) is image
    other = image.with_client_metrics("s", {"b": "3"})
    assert (dict(other.client_metrics), other.group_configs) == ({"s": {"b": "3"}}, {"g": {"a": "1"}})
    assert (image.with_group_config("g", {}).group_configs, image.with_client_metrics("s", {}).client_metrics) == (
        {},
        {},
    )

"""Feature levels: the node, the registrations, and which change is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import BadNode
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.store import Create, Set, Store
from barnabas.replication.tree import features
from barnabas.replication.tree.features import FeatureUpdate, check_updates, decode_finalised, encode_finalised

TV, GV, SV, KV = features.TRANSACTION_VERSION, features.GROUP_VERSION, features.SHARE_VERSION, features.STREAMS_VERSION
OURS = {TV: (1, 2), GV: (1, 1), SV: (1, 1), KV: (1, 1)}


def test_the_node() -> None:
    data = encode_finalised({TV: 2})
    assert json.loads(data) == {"version": 2, "status": 1, "features": {TV: 2}}
    found = decode_finalised(data, 7)
    assert (found.named, found.epoch, found.is_enabled) == ({TV: 2}, 7, True)
    assert not decode_finalised(b'{"version":2,"status":0,"features":{}}', 0).is_enabled
    # As brokers of 2.7 to 3.1 wrote it.
    old = b'{"version":1,"status":1,"features":{"x":{"min_version_level":1,"max_version_level":3}}}'
    assert decode_finalised(old, 0).named == {"x": 3}
    for bad in (b"", b"{}", b"[]", b'{"status":1,"features":{"x":"y"}}', b'{"status":1,"features":[]}'):
        with pytest.raises(BadNode):
            decode_finalised(bad, 0)


def test_a_broker_alone_has_everything_that_is_not_switched_off() -> None:
    assert decode_finalised(encode_finalised({}), 0).levels(clustered=False) == {TV: 2, GV: 1, SV: 1, KV: 1}
    assert decode_finalised(encode_finalised({TV: 0}), 0).levels(clustered=False) == {TV: 0, GV: 1, SV: 1, KV: 1}
    assert decode_finalised(encode_finalised({TV: 1}), 0).levels(clustered=True) == {TV: 1, GV: 0, SV: 0, KV: 0}


def test_unreadable_registrations_support_nothing() -> None:
    told = json.dumps({"features": features.registered_features()}).encode()
    assert features.features_of_registration(told) == OURS
    for data in (b"", b"{}", b"[]", b'{"features":{}}', b'{"features":{"x":{"min_version":1}}}', b'{"features":3}'):
        assert features.features_of_registration(data) == {}


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (FeatureUpdate(TV, 2), ""),
        (FeatureUpdate(TV, 1), ""),  # as it is
        (FeatureUpdate(TV, 1, features.SAFE_DOWNGRADE), ""),
        (FeatureUpdate(TV, 0, features.SAFE_DOWNGRADE), ""),
        (FeatureUpdate(TV, 0, features.UNSAFE_DOWNGRADE), ""),
        (FeatureUpdate(GV, 1), ""),
        (FeatureUpdate(TV, 0), "without setting the upgrade type"),
        (FeatureUpdate(TV, 2, features.SAFE_DOWNGRADE), "Can't downgrade to a newer version."),
        (FeatureUpdate(TV, 3), "Local controller 5 only supports versions 0-2"),
        (FeatureUpdate(TV, -1, features.SAFE_DOWNGRADE), "cannot be less than 0"),
        (FeatureUpdate(TV, 2, 0), "does not support the given upgrade type"),
        (FeatureUpdate(TV, 2, 4), "does not support the given upgrade type"),
        (FeatureUpdate("x", 1), "Local controller 5 does not support this feature."),
        (FeatureUpdate("x", 0, features.SAFE_DOWNGRADE), "Feature x not found."),
        (FeatureUpdate("", 1), "does not support this feature."),
    ],
)
def test_what_may_change(update: FeatureUpdate, why: str) -> None:
    present: Mapping[str, int] = {TV: 1, GV: 0}
    if not why:
        assert check_updates([update], present, 5, {6: OURS}) == {**present, update.feature: update.level}
        return
    with pytest.raises(KafkaError) as raised:
        check_updates([FeatureUpdate(GV, 1), update], present, 5, {6: OURS})
    assert raised.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"Invalid update version {update.level} for feature {update.feature}." in (raised.value.message or "")
    assert why in (raised.value.message or "")


@pytest.mark.parametrize("upgrade_type", [features.UPGRADE, features.SAFE_DOWNGRADE, features.UNSAFE_DOWNGRADE])
@pytest.mark.parametrize("level", [0, 1, 20, 21, 22, 30])
def test_the_level_of_metadata_is_a_setting(level: int, upgrade_type: int) -> None:
    """The others do not register it, and it is not written."""
    updates = [FeatureUpdate(features.METADATA_VERSION, level, upgrade_type), FeatureUpdate(GV, 1)]
    if level == 21:
        assert check_updates(updates, {TV: 1}, 5, {6: OURS}, 21) == {TV: 1, GV: 1}
        return
    with pytest.raises(KafkaError) as raised:
        check_updates(updates, {TV: 1}, 5, {6: OURS}, 21)
    assert raised.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert (raised.value.message or "").endswith("Local controller 5 only supports versions 21-21")
    if level:
        with pytest.raises(KafkaError, match="Local controller 5 does not support this feature"):
            check_updates(updates, {TV: 1}, 5, {6: OURS})


def test_every_broker_must_be_able() -> None:
    with pytest.raises(KafkaError, match=r"Broker 7 does not support this feature\."):
        check_updates([FeatureUpdate(TV, 2)], {}, 5, {6: OURS, 7: {}})
    with pytest.raises(KafkaError, match="Broker 7 only supports versions 1-1"):
        check_updates([FeatureUpdate(TV, 2)], {}, 5, {7: {TV: (1, 1)}})
    # To switch it off nobody needs to know it.
    off = FeatureUpdate(TV, 0, features.SAFE_DOWNGRADE)
    assert check_updates([off], {TV: 2}, 5, {7: {}}) == {TV: 0}


async def update(store: Store, *updates: FeatureUpdate, clustered: bool, validate_only: bool = False) -> None:
    await features.update_finalised(store, updates, 1, clustered=clustered, validate_only=validate_only)


async def test_updates_are_written_and_the_epoch_rises() -> None:
    store = EmbeddedStore.open().connect()
    off, on = FeatureUpdate(TV, 0, features.SAFE_DOWNGRADE), FeatureUpdate(TV, 2)
    assert (await features.read_finalised(store)).levels(clustered=False)[TV] == 2
    await update(store, off, clustered=False, validate_only=True)
    assert await store.get(features.NODE) is None
    await update(store, off, clustered=False)
    found = await features.read_finalised(store)
    assert (found.levels(clustered=False), found.epoch) == ({TV: 0, GV: 1, SV: 1, KV: 1}, 0)
    await update(store, on, clustered=False)
    await update(store, on, clustered=False)  # changes nothing
    found = await features.read_finalised(store)
    assert (found.levels(clustered=False), found.epoch) == ({TV: 2, GV: 1, SV: 1, KV: 1}, 1)


async def test_in_a_cluster_what_is_off_is_not_named() -> None:
    store = EmbeddedStore.open().connect()
    registration = json.dumps({"features": features.registered_features()}).encode()
    await store.commit(
        [Create("/brokers"), Create("/brokers/ids"), Create("/brokers/ids/1", registration), Create(features.NODE)]
    )
    await store.commit([Set(features.NODE, encode_finalised({}))])
    await update(store, FeatureUpdate(TV, 2), clustered=True)
    assert (await features.read_finalised(store)).named == {TV: 2}
    await store.commit([Create("/brokers/ids/2", b'{"features":{}}')])  # as a broker of 3.9 registers
    with pytest.raises(KafkaError, match="Broker 2 does not support"):
        await update(store, FeatureUpdate(GV, 1), clustered=True)
    await update(store, FeatureUpdate(TV, 0, features.SAFE_DOWNGRADE), clustered=True)
    assert (await features.read_finalised(store)).named == {}

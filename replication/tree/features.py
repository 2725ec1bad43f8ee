"""Feature levels that the whole cluster agreed upon (KIP-584, KIP-1022): what this broker can do, what is finalised,
and the rules for changes. Pure, but for two functions that read and write the store.

    /feature           {"version":2,"status":1,"features":{"transaction.version":2}}
    /brokers/ids/N     … "features":{"transaction.version":{"min_version":1,"max_version":2}} …

Levels are whole numbers; 0 is a feature switched off, which a cluster's node leaves out. Status 0 means that no
feature may be finalised (an inter-broker protocol before 2.7). Brokers of Apache Kafka 3.x stop when the node names a
feature that they do not know, and know none of ours, so with ZooKeeper nothing is finalised unless it is asked for, and
asked only while every registered broker says that it can. In the registration the lowest level is written as 1, since
those before 3.9 cannot read a 0. Where no such broker can join, in a store of ours, a new cluster begins with the
newest levels, as `kafka-storage format` of 4.3 has it; one that is there keeps its own.

`metadata.version` is in neither place. It names what brokers write for each other: in Apache Kafka 3.x with ZooKeeper
that is `inter.broker.protocol.version`, whose names have the levels' numbers, and so it is here. The setting decides,
so there is one level, and no request changes it. A level of 4.x would claim what is not served: eligible leader
replicas, cordoned directories, records in a metadata log. Clients decide nothing by it, other features depend on none
of its levels; consoles and `kafka-features` read the release of Kafka out of it, and show nothing, or fail, where it is
absent. Brokers of 3.9 with ZooKeeper support it without a finalised level, as somebody might take that for KRaft; ours
beside them do the same.

A broker alone has no such neighbours: what its node does not name has the highest level, and a level of 0 is written
down. So one that is replaced by a newer version has new features at once (in Apache Kafka: once they are asked for);
an older version that comes after it keeps the records that it does not know.

Rules and texts of a change are those of Apache Kafka 4.3 (`FeatureControlManager`), tree and registration those of 3.9
(`FeatureZNode`, `BrokerIdZNode`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.store.store import Create, Node, NodeExists, NoSuchNode, Set, Store, VersionMoved
from barnabas.replication.tree import paths

NODE: Final = paths.FEATURE
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
METADATA_VERSION: Final = "metadata.version"
SHARE_VERSION: Final = "share.version"
"""Of share groups (KIP-932): 0 or 1."""
STREAMS_VERSION: Final = "streams.version"
"""Of streams groups (KIP-1071): 0 or 1."""

Levels = Mapping[str, int]
Range = tuple[int, int]
SUPPORTED: Final[Mapping[str, Range]] = {
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""First and last level that this broker knows."""
NEWEST: Final[Levels] = {name: last for name, (_, last) in SUPPORTED.items()}
"""What a new cluster begins with if no broker of Apache Kafka 3.x can join it."""

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


class FeatureUpdate(NamedTuple):
    """One request: `level` and the number of the upgrade type, as sent."""

    feature: str
    level: int
    upgrade_type: int = UPGRADE


class FinalisedFeatures(NamedTuple):
    """What the store says. `named`: levels that stand in it; `epoch`: rises with every change."""

    named: Levels
    epoch: int
    is_enabled: bool = True

    def levels(self, *, clustered: bool) -> dict[str, int]:
        """The level of each feature that is in force, also of those that this broker does not know."""
        defaults = {name: 0 if clustered else last for name, (_, last) in SUPPORTED.items()}
        return {**defaults, **self.named}


def registered_features() -> dict[str, dict[str, int]]:
    """The field of a registration."""
    return {name: {"min_version": max(first, 1), "max_version": last} for name, (first, last) in SUPPORTED.items()}


def features_of_registration(data: bytes) -> dict[str, Range]:
    """What a broker says in its registration; nothing if that cannot be read."""
    try:
        levels_by_name = json.loads(data).get("features") or {}
        return {
            str(name): (int(levels["min_version"]), int(levels["max_version"]))
            for name, levels in dict(levels_by_name).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def encode_finalised(levels: Levels) -> bytes:
    """Data of /feature."""
    return json.dumps({"version": 2, "status": 1, "features": dict(levels)}, separators=(",", ":")).encode()


def decode_finalised(data: bytes, version: int) -> FinalisedFeatures:
    """`version`: of the node, which is the epoch. Version 1 of the layout had a range per feature. Raises BadNode."""
    try:
        content = json.loads(data)
        levels = {}
        for name, level in content["features"].items():
            levels[str(name)] = int(level["max_version_level"] if isinstance(level, dict) else level)
        return FinalisedFeatures(levels, version, int(content["status"]) == 1)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise paths.BadNode(paths.FEATURE, f"{error!r} in {data[:200]!r}") from error


def check_updates(
    updates: Sequence[FeatureUpdate],
    present: Levels,
    own_id: int,
    brokers: Mapping[int, Mapping[str, Range]],
    metadata_level: int | None = None,
) -> dict[str, int]:
    """The levels after `updates`. `brokers`: what the others of the cluster can do. `metadata_level`: the only level of
    `metadata.version` that this broker supports, None for no such feature.

    Raises KafkaError INVALID_UPDATE_VERSION with a text that names the feature; then nothing may change.
    """
    after = dict(present)
    for update in updates:
        if update.feature == METADATA_VERSION and metadata_level is not None:
            only = {METADATA_VERSION: (metadata_level, metadata_level)}
            why = _why_not(update, metadata_level, own_id, only, {})
        else:
            why = _why_not(update, present.get(update.feature, 0), own_id, SUPPORTED, brokers)
        if why:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.feature}. {why}",
            )
        if update.feature != METADATA_VERSION:
            after[update.feature] = update.level
    return after


def _why_not(
    update: FeatureUpdate,
    present: int,
    own_id: int,
    supported: Mapping[str, Range],
    brokers: Mapping[int, Mapping[str, Range]],
) -> str:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.feature not in supported and update.level == 0:
        return f"Feature {update.feature} not found."
    why = _why_unsupported(update, f"Local controller {own_id}", supported)
    if why:
        return why
    for broker_id, can in sorted(brokers.items()):
        why = _why_unsupported(update, f"Broker {broker_id}", can)
        if why:
            return why
    if update.level < present and update.upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > present and update.upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    return ""


def _why_unsupported(update: FeatureUpdate, who: str, can: Mapping[str, Range]) -> str:
    if update.feature not in can:
        # Level 0 turns off what a broker does not support anyway.
        return "" if update.level == 0 else f"{who} does not support this feature."
    first, last = can[update.feature]
    is_off = update.level == 0 and update.feature != METADATA_VERSION  # which cannot be; a registration has 1 for a 0
    if not is_off and not first <= update.level <= last:
        return f"{who} only supports versions {first}-{last}"
    return ""


async def read_finalised(store: Store) -> FinalisedFeatures:
    """What is finalised now. Raises StoreError, BadNode."""
    node = await store.get(paths.FEATURE)
    return FinalisedFeatures({}, 0) if node is None else decode_finalised(node.data, node.version)


async def update_finalised(
    store: Store,
    updates: Sequence[FeatureUpdate],
    own_id: int,
    *,
    clustered: bool,
    validate_only: bool,
    metadata_level: int | None = None,
) -> None:
    """Check `updates` against what is in the store, and write them unless `validate_only`.

    Raises KafkaError INVALID_UPDATE_VERSION, StoreError, BadNode.
    """
    while True:
        node = await store.get(paths.FEATURE)
        known = FinalisedFeatures({}, 0) if node is None else decode_finalised(node.data, node.version)
        brokers = await _registered(store) if clustered else {}
        after = check_updates(updates, known.levels(clustered=clustered), own_id, brokers, metadata_level)
        if validate_only:
            return
        data = encode_finalised(_worth_writing(after, clustered))
        try:
            if node is None:
                await store.commit([Create(paths.FEATURE, data)])
            elif data != node.data:
                await store.commit([Set(paths.FEATURE, data, node.version)])
        except (VersionMoved, NodeExists, NoSuchNode):
            continue  # another broker was faster
        return


def _worth_writing(levels: Levels, clustered: bool) -> dict[str, int]:
    return {name: level for name, level in sorted(levels.items()) if level or not clustered}


async def _registered(store: Store) -> dict[int, dict[str, Range]]:
    ids = [int(name) for name in await store.children(paths.BROKER_IDS) if name.isdigit()]
    nodes: list[Node | None] = await store.get_many([paths.broker(broker_id) for broker_id in ids])
    return {
        broker_id: features_of_registration(node.data)
        for broker_id, node in zip(ids, nodes, strict=True)
        if node is not None
    }

"""What brokers and controllers do to the coordination tree: small procedures over a `Store`.

Each is one or a few commits with the conditions that make it safe beside other brokers; after a conflict it reads
again. No trio here: only the store waits. Times are passed in (wall clock, milliseconds since 1970).

Sources: `KafkaZkClient.scala`, `AdminZkClient.scala`, `ProducerIdManager.scala` (core, 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from barnabas.replication.messages.effects import PartitionChange
from barnabas.replication.store.store import (
    ANY_VERSION,
    Check,
    CommitRefused,
    Create,
    Delete,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    Op,
    Set,
    Store,
    VersionMoved,
    name_of,
    parent_of,
)
from barnabas.replication.tree import paths
from barnabas.replication.tree.client_nodes import emptied, is_client_kind
from barnabas.replication.tree.nodes import SeenTopic, topic_image, with_state
from barnabas.replication.tree.paths import BadNode, ProducerIdBlock, StateNode
from barnabas.replication.tree.registration import decode_broker, encode_broker
from barnabas.replication.values.image import BrokerImage, Image, TopicImage

PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = 2**63 - 1
_NODES_PER_COMMIT = 1000
_KINDS_WITH_ROOTS = (paths.TOPIC_CONFIG, paths.BROKER_CONFIG, paths.USER_CONFIG, paths.CLIENT_CONFIG, paths.IP_CONFIG)
"""Where every broker makes the node above the entities at its start."""


class BrokerIdTaken(Exception):
    """Another live broker is registered with this id."""


class WrongCluster(Exception):
    """The tree belongs to another cluster than the log directory."""


class ProducerIdsExhausted(Exception):
    """All 2⁶³ producer ids are given out."""


@dataclass(frozen=True, slots=True)
class Term:
    """A won election: the controller epoch, and the version of /controller_epoch to check every write against.

    czxid: of /controller, by which the node that we made is known again.
    """

    epoch: int
    version: int
    czxid: int = -1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Concerns:
    """What a change in the tree is about. topics: names whose own node changed (created, written or deleted)."""

    controller: bool
    brokers: bool
    topics_changed: bool
    topics: frozenset[str]
    deletions: bool
    configs: bool
    reassignments: bool
    elections: bool
    isr_changes: bool
    log_dir_events: bool


WATCHED_BY_ALL = (paths.CONTROLLER, paths.CONFIG_CHANGES)
"""The places that every broker watches."""

WATCHED = (
    *WATCHED_BY_ALL,
    *(paths.BROKER_IDS, paths.TOPICS, paths.DELETE_TOPICS),
    *(paths.REASSIGNMENTS, paths.PREFERRED_ELECTION, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS),
)
"""The places that the controller watches."""


def concerns(changed: Iterable[str]) -> Concerns:
    """Sort the paths of a `Changed` by what they are about."""
    places: set[str] = set()
    topics: set[str] = set()
    for path in changed:
        above = parent_of(path)
        places.add(path if path in WATCHED else above)
        if above == paths.TOPICS:
            topics.add(name_of(path))
    return Concerns(
        paths.CONTROLLER in places,
        paths.BROKER_IDS in places,
        paths.TOPICS in places,
        frozenset(topics),
        paths.DELETE_TOPICS in places,
        paths.CONFIG_CHANGES in places,
        paths.REASSIGNMENTS in places,
        paths.PREFERRED_ELECTION in places,
        paths.ISR_CHANGES in places,
        paths.LOG_DIR_EVENTS in places,
    )


def is_over(error: CommitRefused) -> bool:
    """A guarded commit was refused because another controller has been elected."""
    return error.path == paths.CONTROLLER_EPOCH


async def make_roots(store: Store) -> None:
    """Make what every broker expects to be there."""
    await make_paths(store, paths.PERSISTENT)


async def make_paths(store: Store, wanted: Iterable[str]) -> None:
    """Make persistent nodes without data, and their parents, where absent."""
    everything: dict[str, None] = {}
    for path in wanted:
        chain = [path]
        while (above := parent_of(chain[-1])) != "/":
            chain.append(above)
        everything.update(dict.fromkeys(reversed(chain)))
    found = await store.get_many(list(everything))
    missing = [path for path, node in zip(everything, found, strict=True) if node is None]
    for start in range(0, len(missing), _NODES_PER_COMMIT):
        some = missing[start : start + _NODES_PER_COMMIT]
        try:
            await store.commit([Create(path) for path in some])
        except NodeExists:  # another broker does the same: one by one, then
            for path in some:
                try:
                    await store.commit([Create(path)])
                except NodeExists:
                    pass


async def ensure_nodes(store: Store, guard: Check, wanted: Sequence[str]) -> None:
    """Make persistent nodes without data where absent, in the order given; their parents must be there."""
    found = await store.get_many(wanted)
    missing = [path for path, node in zip(wanted, found, strict=True) if node is None]
    for start in range(0, len(missing), _NODES_PER_COMMIT):
        some = missing[start : start + _NODES_PER_COMMIT]
        try:
            await store.commit([guard, *(Create(path) for path in some)])
        except NodeExists:
            for path in some:
                try:
                    await store.commit([guard, Create(path)])
                except NodeExists:
                    pass


async def settle_cluster_id(store: Store, known: str | None, make: Callable[[], str]) -> str:
    """The cluster's id; made if this is the first broker. known: what the log directory says, if it says.

    Raises WrongCluster if that differs.
    """
    while True:
        node = await store.get(paths.CLUSTER_ID)
        if node is not None:
            found = paths.decode_cluster_id(node.data)
            if known is not None and known != found:
                raise WrongCluster(f"the log directory belongs to cluster {known}, the metadata to {found}")
            return found
        await make_paths(store, [parent_of(paths.CLUSTER_ID)])
        try:
            await store.commit([Create(paths.CLUSTER_ID, paths.encode_cluster_id(known or make()))])
        except NodeExists:
            pass


async def register_broker(store: Store, broker: BrokerImage, now_ms: int) -> BrokerImage:
    """Make the ephemeral node of a broker; returns it with its epoch. Raises BrokerIdTaken."""
    path = paths.broker(broker.id)
    try:
        await store.commit([Create(path, encode_broker(broker, now_ms), ephemeral=True)])
    except NodeExists:
        raise BrokerIdTaken(f"a broker with id {broker.id} is registered already") from None
    node = await store.get(path)
    if node is None:
        raise BrokerIdTaken(f"the registration of broker {broker.id} has vanished again")
    return replace(broker, epoch=node.czxid)


async def update_broker(store: Store, broker: BrokerImage, now_ms: int) -> bool:
    """Update the registration of a broker, which keeps its epoch. False if it is gone, or of another session."""
    path = paths.broker(broker.id)
    node = await store.get(path)
    if node is None or node.czxid != broker.epoch:
        return False
    try:
        await store.commit([Set(path, encode_broker(broker, now_ms), node.version)])
    except (NoSuchNode, VersionMoved):
        return False
    return True


async def read_controller(store: Store) -> int | None:
    """Id of the present controller."""
    node = await store.get(paths.CONTROLLER)
    return None if node is None else paths.decode_controller(node.data)


async def stand_for_controller(store: Store, broker_id: int, now_ms: int) -> Term | None:
    """Try to become controller; None if there is one, or another was faster."""
    if await store.get(paths.CONTROLLER) is not None:
        return None
    node = await store.get(paths.CONTROLLER_EPOCH)
    if node is None:
        try:
            [node] = await store.commit([Create(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(0))])
        except NodeExists:
            node = await store.get(paths.CONTROLLER_EPOCH)
        if node is None:
            return None
    epoch = paths.decode_controller_epoch(node.data) + 1
    try:
        made, _ = await store.commit(
            [
                Create(paths.CONTROLLER, paths.encode_controller(broker_id, now_ms), ephemeral=True),
                Set(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(epoch), node.version),
            ]
        )
    except (NodeExists, VersionMoved):
        return None
    return Term(epoch, node.version + 1, -1 if made is None else made.czxid)


async def leave_controller(store: Store, term: Term) -> None:
    """Remove /controller if it is still the node of this term."""
    node = await store.get(paths.CONTROLLER)
    if node is not None and node.czxid == term.czxid:
        try:
            await store.commit([Delete(paths.CONTROLLER, node.version)])
        except (NoSuchNode, VersionMoved):
            pass


async def read_states(
    store: Store, changes: Sequence[PartitionChange]
) -> dict[tuple[str, int], tuple[StateNode, int] | None]:
    """The states of partitions as they are now, with the versions of their nodes; None where there is none.

    A state that cannot be read counts as one without leader and ISR: only an unclean election revives the partition.
    """
    nodes = await store.get_many([paths.state(change.topic, change.partition.index) for change in changes])
    states: dict[tuple[str, int], tuple[StateNode, int] | None] = {}
    for change, node in zip(changes, nodes, strict=True):
        key = change.topic, change.partition.index
        if node is None:
            states[key] = None
            continue
        try:
            states[key] = paths.decode_state(node.path, node.data), node.version
        except BadNode:
            states[key] = StateNode(-1, change.partition.leader_epoch, -1, ()), node.version
    return states


async def read_brokers(store: Store, unreadable: Callable[[BadNode], None]) -> dict[int, BrokerImage]:
    """All live brokers by id. An unreadable registration is reported, and its broker left out."""
    names = [name for name in await store.children(paths.BROKER_IDS) if name.isdecimal()]
    nodes = await store.get_many([paths.broker(int(name)) for name in names])
    brokers = {}
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                brokers[int(name)] = decode_broker(int(name), node.data, node.czxid)
            except BadNode as exc:
                unreadable(exc)
    return brokers


async def topic_names(store: Store) -> list[str]:
    """Names of all topics that have a node, sorted."""
    return await store.children(paths.TOPICS)


async def read_topics(store: Store, names: Sequence[str], unreadable: Callable[[BadNode], None]) -> list[SeenTopic]:
    """Assignment and settings of the topics that exist among `names`."""
    nodes = await store.get_many([paths.topic(name) for name in names])
    configs = await read_topic_configs(store, names, unreadable)
    seen = []
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                seen.append(SeenTopic(name, paths.decode_topic(node.path, node.data), node.version, configs[name]))
            except BadNode as exc:
                unreadable(exc)
    return seen


async def partition_count(store: Store, name: str) -> int | None:
    """How many partitions a topic has; 0 if there is none of this name, or it is being deleted; None if its node
    cannot be read. Raises StoreError.
    """
    topic, deletion = await store.get_many([paths.topic(name), f"{paths.DELETE_TOPICS}/{name}"])
    if topic is None or deletion is not None:
        return 0
    try:
        return len(paths.decode_topic(topic.path, topic.data).partitions)
    except BadNode:
        return None


async def read_topic_configs(
    store: Store, names: Sequence[str], unreadable: Callable[[BadNode], None]
) -> dict[str, Mapping[str, str]]:
    """Settings of each of `names`; empty where there are none."""
    nodes = await store.get_many([paths.config_entity(paths.TOPIC_CONFIG, name) for name in names])
    return {name: _config(node, unreadable) for name, node in zip(names, nodes, strict=True)}


async def read_config(store: Store, kind: str, name: str, unreadable: Callable[[BadNode], None]) -> Mapping[str, str]:
    """Settings of one entity."""
    return _config(await store.get(paths.config_entity(kind, name)), unreadable)


async def read_broker_configs(store: Store, unreadable: Callable[[BadNode], None]) -> dict[str, Mapping[str, str]]:
    """Dynamic settings of brokers, by id in decimal and '<default>'."""
    names = [paths.unescape(name) for name in await store.children(paths.config_kind(paths.BROKER_CONFIG))]
    return {name: await read_config(store, paths.BROKER_CONFIG, name, unreadable) for name in names}


async def read_configs(store: Store, kind: str, unreadable: Callable[[BadNode], None]) -> dict[str, Mapping[str, str]]:
    """Settings of all entities of a kind that have some, by name: of groups, of client-metrics subscriptions."""
    root = paths.config_kind(kind)
    try:
        names = await store.children(root)
    except NoSuchNode:
        return {}
    nodes = await store.get_many([f"{root}/{name}" for name in names])
    configs = {paths.unescape(name): _config(node, unreadable) for name, node in zip(names, nodes, strict=True)}
    return {name: config for name, config in configs.items() if config}


async def read_cluster(
    store: Store, image: Image, unreadable: Callable[[BadNode], None]
) -> tuple[Image, dict[tuple[str, int], frozenset[int]]]:
    """`image` with brokers, topics and partition states as the tree has them. What cannot be read is left out.

    Also, by partition, the leader and in-sync replicas that registered after the state was written: no controller has
    noticed that these brokers were away, though they may have lost the ends of their logs meanwhile.
    """
    returned: dict[tuple[str, int], frozenset[int]] = {}
    brokers = await read_brokers(store, unreadable)
    topics: list[TopicImage] = []
    where: list[tuple[int, int]] = []
    for seen in await read_topics(store, await store.children(paths.TOPICS), unreadable):
        if seen.node.topic_id is None:
            continue  # an old tool's: the controller meets it as a new topic, and gives it an id
        topic = topic_image(seen.name, seen.node.topic_id, seen.node, seen.config)
        where += [(len(topics), partition.index) for partition in topic.partitions]
        topics.append(topic)
    nodes = await store.get_many([paths.state(topics[at].name, index) for at, index in where])
    states: dict[int, list[tuple[int, Node]]] = {}
    for (at, index), node in zip(where, nodes, strict=True):
        if node is not None:
            states.setdefault(at, []).append((index, node))
    for at, found in states.items():
        topic = topics[at]
        led = []
        for index, node in found:
            try:
                state = paths.decode_state(node.path, node.data)
            except BadNode as exc:
                unreadable(exc)
                continue
            led.append(with_state(topic.partitions[index], state, node.version))
            newer = {b for b in (state.leader, *state.isr) if b in brokers and brokers[b].epoch > node.mzxid}
            if newer and len(topic.partitions[index].replicas) > 1:  # a single replica has none to disagree with
                returned[topic.name, index] = frozenset(newer)
        topics[at] = topic.with_partitions(led)
    return replace(image, topics={}, topics_by_id={}).with_topics(topics).with_brokers(brokers), returned


async def read_deletions(store: Store) -> list[str]:
    """Topics whose deletion was requested."""
    return await store.children(paths.DELETE_TOPICS)


async def write_config(
    store: Store, kind: str, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> Mapping[str, str]:
    """Replace an entity's settings by `edit(settings)` and notify all brokers; returns the new ones.

    `edit` may be called again after a conflict with another writer; what it raises is passed on. Raises NoSuchNode for
    a topic that does not exist (any more). Nodes of users, client ids, addresses and client-metrics subscriptions
    without settings are removed.
    """
    path = paths.config_entity(kind, name)
    may_vanish = is_client_kind(kind) or kind == paths.CLIENT_METRICS_CONFIG
    while True:
        node = await store.get(path)
        config = edit({} if node is None else paths.decode_config(path, node.data))
        if may_vanish and not config and node is None:
            return MappingProxyType({})
        if node is None and kind not in _KINDS_WITH_ROOTS:
            await make_paths(store, (paths.config_kind(kind),))
        ops: list[Op]
        if may_vanish and not config and node is not None:
            ops = await emptied(store, kind, node)
        else:
            data = paths.encode_config(config)
            ops = [Create(path, data) if node is None else Set(path, data, node.version)]
        ops.append(Create(paths.config_change(), paths.encode_config_change(kind, name), sequential=True))
        if kind == paths.TOPIC_CONFIG:
            ops.append(Check(paths.topic(name), ANY_VERSION))
        try:
            await store.commit(ops)
        except (NodeExists, VersionMoved, NodeNotEmpty):
            continue
        except NoSuchNode as exc:
            if exc.path == path or may_vanish:
                continue
            raise
        return MappingProxyType(dict(config))


async def remove_topic(store: Store, guard: Check | None, name: str) -> None:
    """Remove a topic's nodes, its settings and the request to delete it, in this order; whatever is there of it."""
    doomed = [*await _under(store, paths.topic(name)), paths.config_entity(paths.TOPIC_CONFIG, name)]
    doomed.append(paths.topic_deletion(name))
    found = await store.get_many(doomed)
    doomed = [path for path, node in zip(doomed, found, strict=True) if node is not None]
    for start in range(0, len(doomed), _NODES_PER_COMMIT):
        deletes = [Delete(path) for path in doomed[start : start + _NODES_PER_COMMIT]]
        await store.commit([guard, *deletes] if guard else deletes)


async def take_producer_ids(store: Store, broker_id: int) -> ProducerIdBlock:
    """A block of producer ids that no other broker has or will get. Raises ProducerIdsExhausted."""
    while True:
        node = await store.get(paths.PRODUCER_ID_BLOCK)
        last = paths.decode_producer_ids(node.data) if node is not None else None
        first = 0 if last is None else last.last + 1
        if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            raise ProducerIdsExhausted(f"the last producer id given out is {first - 1}")
        block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
        data = paths.encode_producer_ids(block)
        try:
            if node is None:
                await store.commit([Create(paths.PRODUCER_ID_BLOCK, data)])
            else:
                await store.commit([Set(paths.PRODUCER_ID_BLOCK, data, node.version)])
        except (NodeExists, VersionMoved, NoSuchNode):
            continue
        return block


async def _under(store: Store, path: str) -> list[str]:
    """The node and all below it, children before parents."""
    result = []
    for name in await store.children(path):
        result += await _under(store, f"{path}/{name}")
    return [*result, path]


def _config(node: Node | None, unreadable: Callable[[BadNode], None]) -> Mapping[str, str]:
    if node is None:
        return MappingProxyType({})
    try:
        return MappingProxyType(paths.decode_config(node.path, node.data))
    except BadNode as exc:
        unreadable(exc)
        return MappingProxyType({})

"""Which topics, partitions, groups and transactional ids a request names, and in what order.

`SHAPES` says how the requests and answers of an API are made. An API without a row is one item as a whole, with the
group and the transactional id that stand at the top of its request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.kproto import ZERO_UUID, ApiKey
from barnabas.server.requests.api import BETWEEN_BROKERS
from barnabas.server.requests.faults.rules import Item

if TYPE_CHECKING:
    from barnabas.server.requests.services import Services


class Partitioned(NamedTuple):
    """A list of topics, each with a list of partitions, in the request and in the answer; names of fields. `name`: of
    the topic. `place`: of the partition's index; "": the element is the index. is_whole: one error fails all.
    """

    topics: str
    partitions: str
    place: str
    answers: str
    answer_partitions: str
    answer_index: str
    name: str = "name"
    is_whole: bool = False


class Listed(NamedTuple):
    """A list in the request and in the answer, of topics, groups or others. `name`: the field with the name; "": the
    element is the name. `kind`: the field of `Item` that it is; "": by the element's `resource_type`.
    """

    entries: str
    name: str
    answers: str
    answer_name: str
    kind: str


class Read(NamedTuple):
    """Answers are changed after the request was handled as a whole (`barnabas.server.requests.faults.reads`). kinds:
    the fields of `Item` that its items may have.
    """

    kinds: frozenset[str]


Shape = Partitioned | Listed | Read

_TOPIC_PARTITIONS: Final = frozenset(("topic", "partition"))
_AS_USUAL: Final = ("topics", "partitions", "partition_index", "topics", "partitions", "partition_index")

SHAPES: Final[Mapping[ApiKey, Shape]] = {
    ApiKey.PRODUCE: Partitioned("topic_data", "partition_data", "index", "responses", "partition_responses", "index"),
    ApiKey.FETCH: Read(_TOPIC_PARTITIONS),
    ApiKey.LIST_OFFSETS: Partitioned(*_AS_USUAL),
    ApiKey.METADATA: Read(_TOPIC_PARTITIONS),
    ApiKey.OFFSET_COMMIT: Partitioned(*_AS_USUAL),
    ApiKey.OFFSET_FETCH: Read(_TOPIC_PARTITIONS | {"group"}),
    ApiKey.FIND_COORDINATOR: Listed("coordinator_keys", "", "coordinators", "key", ""),
    ApiKey.DESCRIBE_GROUPS: Listed("groups", "", "groups", "group_id", "group"),
    ApiKey.CREATE_TOPICS: Listed("topics", "name", "topics", "name", "topic"),
    ApiKey.DELETE_TOPICS: Listed("topics", "name", "responses", "name", "topic"),
    ApiKey.DELETE_RECORDS: Partitioned(*_AS_USUAL),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Partitioned(
        "topics", "partitions", "partition", "topics", "partitions", "partition", name="topic"
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Partitioned(
        "v3_and_below_topics",
        "partitions",
        "",
        "results_by_topic_v3_and_below",
        "results_by_partition",
        "partition_index",
        is_whole=True,
    ),
    ApiKey.TXN_OFFSET_COMMIT: Partitioned(*_AS_USUAL),
    ApiKey.DESCRIBE_CONFIGS: Listed("resources", "resource_name", "results", "resource_name", ""),
    ApiKey.ALTER_CONFIGS: Listed("resources", "resource_name", "responses", "resource_name", ""),
    ApiKey.CREATE_PARTITIONS: Listed("topics", "name", "results", "name", "topic"),
    ApiKey.DELETE_GROUPS: Listed("groups_names", "", "results", "group_id", "group"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Listed("resources", "resource_name", "responses", "resource_name", ""),
    ApiKey.DESCRIBE_PRODUCERS: Partitioned(
        "topics", "partition_indexes", "", "topics", "partitions", "partition_index"
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Listed(
        "transactional_ids", "", "transaction_states", "transactional_id", "transactional_id"
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Listed("group_ids", "", "groups", "group_id", "group"),
    ApiKey.SHARE_GROUP_DESCRIBE: Listed("group_ids", "", "groups", "group_id", "group"),
    ApiKey.STREAMS_GROUP_DESCRIBE: Listed("group_ids", "", "groups", "group_id", "group"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Listed("groups", "group_id", "groups", "group_id", "group"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Read(frozenset(("topic",))),
}

RESOURCES: Final = {2: "topic", 32: "group"}
"""Of `resource_type` in requests about settings."""
KEYS: Final = {0: "group", 1: "transactional_id"}
"""Of `key_type` in FindCoordinator."""
EACH_FROM: Final = {ApiKey.FIND_COORDINATOR: 4, ApiKey.DELETE_TOPICS: 6}
"""From this version on the request has its list as `SHAPES` says; before, FindCoordinator is a whole, and DeleteTopics
lists names.
"""
OWN_APIS: Final = BETWEEN_BROKERS | {
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
}
"""What brokers ask each other: only for faults that name them."""


def of_broker(key: ApiKey, version: int, request: Any) -> bool:
    """Whether a request is a follower's, or another broker's verification of a transaction."""
    if key is ApiKey.FETCH and version >= 15:
        return bool(request.replica_state.replica_id >= 0)
    if key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH):
        return bool(request.replica_id >= 0)
    return key is ApiKey.ADD_PARTITIONS_TO_TXN and version >= 4


def shape_of(key: ApiKey, version: int) -> Shape | None:
    """How a request is made; None: one item as a whole."""
    if key is ApiKey.FIND_COORDINATOR and version < EACH_FROM[key]:
        return None
    if key is ApiKey.DELETE_TOPICS and version < EACH_FROM[key]:
        return Listed("topic_names", "", "responses", "name", "topic")
    if key is ApiKey.ADD_PARTITIONS_TO_TXN and version >= 4:
        return None
    return SHAPES.get(key)


def kinds_of(key: ApiKey) -> frozenset[str]:
    """Which fields of `Item` the requests of an API can name, in some version."""
    shape = SHAPES.get(key)
    tops = _top_kinds(key)
    match shape:
        case Read():
            return shape.kinds | tops
        case Partitioned():
            return _TOPIC_PARTITIONS | tops
        case Listed():
            if shape.kind:
                return frozenset((shape.kind,))
            return frozenset((KEYS if key is ApiKey.FIND_COORDINATOR else RESOURCES).values())
    return tops


def _top_kinds(key: ApiKey) -> frozenset[str]:
    from barnabas.kproto import request_class

    fields = request_class(key)()
    found = {"group"} if hasattr(fields, "group_id") else set()
    if hasattr(fields, "transactional_id") or hasattr(fields, "v3_and_below_transactional_id"):
        found.add("transactional_id")
    return frozenset(found)


def items_of(services: Services, key: ApiKey, version: int, request: Any) -> list[Item]:
    """The items of a request of a client, in the order of their numbers."""
    shape = shape_of(key, version)
    match shape:
        case Partitioned():
            return [
                _top(request)._replace(topic=name, partition=index)
                for name, index in partitions_of(services, shape, request)
            ] or [_top(request)]
        case Listed():
            return [_item(kind, name) for kind, name in _entries(services, shape, request)] or [Item()]
    if key is ApiKey.FETCH:
        return _fetched(services, version, request) or [Item()]
    if key is ApiKey.OFFSET_FETCH:
        return _fetched_offsets(services, version, request) or [Item()]
    if key in (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return _described(services, key, version, request) or [Item()]
    if key is ApiKey.FIND_COORDINATOR:
        return [_item(KEYS.get(request.key_type), request.key)]
    return [_top(request)]


def _item(kind: str | None, name: str | None) -> Item:
    """An item of one name; of none, if it is of no kind that faults know."""
    values: dict[str, Any] = {kind: name} if kind else {}
    return Item(**values)


def _top(request: Any) -> Item:
    """The group and the transactional id at the top of a request."""
    transactional_id = getattr(request, "transactional_id", None)
    if not transactional_id:
        transactional_id = getattr(request, "v3_and_below_transactional_id", None)
    return Item(None, None, getattr(request, "group_id", None), transactional_id or None)


def partitions_of(services: Services, shape: Partitioned, request: Any) -> Iterable[tuple[str | None, int]]:
    """Topic and index of each partition, in order."""
    for topic in getattr(request, shape.topics):
        name = name_of(services, getattr(topic, shape.name), getattr(topic, "topic_id", ZERO_UUID))
        for partition in getattr(topic, shape.partitions):
            yield name, getattr(partition, shape.place) if shape.place else partition


def name_of(services: Services, name: str | None, topic_id: bytes) -> str | None:
    """The name of a topic that is named so or by its id; None: there is no such id."""
    if name:
        return name
    topic = services.image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _entries(services: Services, shape: Listed, request: Any) -> Iterable[tuple[str | None, str | None]]:
    for entry in getattr(request, shape.entries):
        kind: str | None = shape.kind
        if not kind:
            kind = KEYS.get(request.key_type) if hasattr(request, "key_type") else RESOURCES.get(entry.resource_type)
        name = getattr(entry, shape.name) if shape.name else entry
        if kind == "topic":
            name = name_of(services, name, getattr(entry, "topic_id", ZERO_UUID))
        yield kind, name


def _fetched(services: Services, version: int, request: Any) -> list[Item]:
    """The partitions of the request, and of its session."""
    found: dict[Item, None] = {}
    if version >= 7 and request.session_id and request.session_epoch > 0:
        session = services.fetch_sessions.find(request.session_id)
        gone = {
            (topic.topic_id if version >= 13 else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        }
        for key, target in () if session is None else session.targets.items():
            if key not in gone:
                found[Item(name_of(services, target.topic, target.topic_id), target.index)] = None
    for topic in request.topics:
        name = name_of(services, topic.topic, topic.topic_id)
        for partition in topic.partitions:
            found[Item(name, partition.partition)] = None
    return list(found)


def _fetched_offsets(services: Services, version: int, request: Any) -> list[Item]:
    """The partitions of each group; a group whose partitions are all asked for is one item."""
    groups = request.groups if version >= 8 else [request]
    found = []
    for group in groups:
        for topic in group.topics or ():
            name = name_of(services, topic.name, getattr(topic, "topic_id", ZERO_UUID))
            found += [Item(name, index, group.group_id) for index in topic.partition_indexes]
        if not group.topics:
            found.append(Item(group=group.group_id))
    return found


def _described(services: Services, key: ApiKey, version: int, request: Any) -> list[Item]:
    """Topics, and for Metadata their partitions as well: an error may be that of a partition."""
    image = services.image
    is_all = request.topics is None or (not request.topics and (key is not ApiKey.METADATA or version == 0))
    names = (
        image.topic_names
        if is_all
        else [name_of(services, topic.name, getattr(topic, "topic_id", ZERO_UUID)) for topic in request.topics]
    )
    found = []
    for name in names:
        topic = None if name is None else image.topics.get(name)
        found.append(Item(name))
        if key is ApiKey.METADATA and topic is not None:
            found += [Item(name, partition.index) for partition in topic.partitions]
    return found

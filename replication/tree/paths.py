"""Names and JSON of the coordination tree, as Apache Kafka 3.x lays them out in ZooKeeper, in both directions.

    /cluster/id                               {"version":"1","id":"<22 characters>"}  (this version is a string)
    /brokers/ids/N             ephemeral      registration; see `registration.py`
    /brokers/topics/T                         {"version":3,"topic_id":…,"partitions":{"0":[1,2]},"adding_replicas":{},…}
    /brokers/topics/T/partitions/P/state      {"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2]}
    /controller                ephemeral      {"version":2,"brokerid":1,"timestamp":"ms","kraftControllerEpoch":-1}
    /controller_epoch                         the epoch in decimal
    /config/<topics|brokers|…>/<name>         {"version":1,"config":{"key":"value"}}
    /config/changes/config_change_N           {"version":2,"entity_path":"topics/T"}
    /admin/delete_topics/T                    empty: a request
    /admin/reassign_partitions                {"version":1,"partitions":[{"topic":…,"partition":0,"replicas":[1,2]}]}
    /admin/preferred_replica_election         {"version":1,"partitions":[{"topic":…,"partition":0}]}
    /isr_change_notification/isr_change_N     the same form: states that leaders have written
    /log_dir_event_notification/log_dir_event_N  {"version":1,"broker":1,"event":1}: a log directory has failed
    /feature                                  {"version":2,"status":1,"features":{}}
    /latest_producer_id_block                 {"version":1,"broker":1,"block_start":"0","block_end":"999"}

The version of a state node is the partition epoch; a registration's czxid is the broker epoch. Source: core's
`ZkData.scala` (3.9). Writers are compact like Kafka's; readers accept any key order, unknown keys, absent optional
keys, and numbers as strings, and raise `BadNode` for what no reader could use.

Not here: quotas and users' entities beyond their path (`users`), access lists (`acl_nodes`), delegation tokens
(`token_nodes`), migration state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus

from barnabas.kproto import uuid_from_text, uuid_to_text

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
SEQUENCE_ID = "/brokers/seqid"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
FEATURE = "/feature"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
STAND_IN_SECRET = "/barnabas/stand_in_secret"

TOPIC_CONFIG = "topics"
BROKER_CONFIG = "brokers"
USER_CONFIG = "users"
CLIENT_CONFIG = "clients"
IP_CONFIG = "ips"
GROUP_CONFIG = "groups"
"""Apache Kafka has settings of groups under KRaft alone; here the node is made with the first of them."""
CLIENT_METRICS_CONFIG = "client-metrics"
"""The same. The name is Apache Kafka's own (`ConfigType.java`); its 3.x brokers log that they cannot read the notice of
a change, and go on.
"""
DEFAULT_ENTITY = "<default>"

PERSISTENT = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""What every broker makes at its start if it is absent, with its parents and without data."""


class BadNode(ValueError):
    """A node's data cannot be what its place says. Names the path."""

    def __init__(self, path: str, why: object) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def broker(broker_id: int) -> str:
    """Path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Path of a topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Path of the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """Path of a partition, the parent of its state."""
    return f"{TOPICS}/{name}/partitions/{index}"


def state(name: str, index: int) -> str:
    """Path of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_deletion(name: str) -> str:
    """Path of the request to delete a topic."""
    return f"{DELETE_TOPICS}/{name}"


def config_entity(kind: str, name: str) -> str:
    """Path of an entity's configuration; `kind` topics or brokers, `name` as it is (escaped here)."""
    return f"{CONFIG}/{kind}/{escape(name)}"


def config_kind(kind: str) -> str:
    """Path of the parent of all configurations of a kind."""
    return f"{CONFIG}/{kind}"


def user_clients(user: str) -> str:
    """The kind of the settings that clients of one user have."""
    return f"{USER_CONFIG}/{escape(user)}/{CLIENT_CONFIG}"


def user_of_clients(kind: str) -> str | None:
    """The user, if the kind is one of `user_clients`."""
    match kind.split("/"):
        case [of_users, user, of_clients] if of_users == USER_CONFIG and of_clients == CLIENT_CONFIG:
            return unescape(user)
    return None


def config_change() -> str:
    """Path to create a change notification with (sequential)."""
    return f"{CONFIG_CHANGES}/config_change_"


def escape(name: str) -> str:
    """An entity name as it stands in a path. '<default>' stays as it is, as do topic names and broker ids."""
    return name if name == DEFAULT_ENTITY else quote(name, safe="").replace("~", "%7E")


def unescape(name: str) -> str:
    """The name back from its form in a path."""
    return unquote_plus(name)


class Assignment(NamedTuple):
    """Replicas of one partition. While it is being reassigned, `replicas` holds old and new ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicNode(NamedTuple):
    """Data of a topic's node: its id (None: written by a broker older than 2.8) and the assignment by partition."""

    topic_id: bytes | None
    partitions: Mapping[int, Assignment]


class StateNode(NamedTuple):
    """Data of a partition's state node. leader −1: none. recovering: elected uncleanly, not yet recovered."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    recovering: bool = False


class ProducerIdBlock(NamedTuple):
    """Ids first…last (both included), taken by a broker."""

    broker: int
    first: int
    last: int


def encode_cluster_id(cluster_id: str) -> bytes:
    """Data of /cluster/id."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster id. Raises BadNode."""
    return _Object(CLUSTER_ID, data).text("id")


def encode_topic(node: TopicNode) -> bytes:
    """Data of /brokers/topics/T."""
    adding = {str(i): list(a.adding) for i, a in node.partitions.items() if a.adding}
    removing = {str(i): list(a.removing) for i, a in node.partitions.items() if a.removing}
    content: dict[str, object] = {"removing_replicas": removing}
    content["partitions"] = {str(index): list(a.replicas) for index, a in sorted(node.partitions.items())}
    if node.topic_id is not None:
        content["topic_id"] = uuid_to_text(node.topic_id)
    content["adding_replicas"] = adding
    content["version"] = 3
    return _dump(content)


def decode_topic(path: str, data: bytes) -> TopicNode:
    """An assignment of version 1 (no id, no adding or removing), 2 or 3. Raises BadNode."""
    content = _Object(path, data)
    adding = content.replica_lists("adding_replicas")
    removing = content.replica_lists("removing_replicas")
    assignments = {
        index: Assignment(replicas, adding.get(index, ()), removing.get(index, ()))
        for index, replicas in sorted(content.replica_lists("partitions").items())
    }
    text = content.fields.get("topic_id")
    try:
        topic_id = None if text is None else uuid_from_text(text)
    except (ValueError, TypeError) as exc:
        raise BadNode(path, f"topic id {text!r}") from exc
    return TopicNode(topic_id, assignments)


def encode_state(node: StateNode) -> bytes:
    """Data of a partition's state node."""
    content: dict[str, object] = {
        "controller_epoch": node.controller_epoch,
        "leader": node.leader,
        "version": 1,
        "leader_epoch": node.leader_epoch,
        "isr": list(node.isr),
    }
    if node.recovering:
        content["leader_recovery_state"] = 1
    return _dump(content)


def decode_state(path: str, data: bytes) -> StateNode:
    """A partition's state. Raises BadNode."""
    content = _Object(path, data)
    return StateNode(
        leader=content.number("leader"),
        leader_epoch=content.number("leader_epoch"),
        controller_epoch=content.number("controller_epoch"),
        isr=content.numbers("isr"),
        recovering=content.number("leader_recovery_state", 0) == 1,
    )


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Data of /controller."""
    return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """The controller's broker id. Raises BadNode."""
    return _Object(CONTROLLER, data).number("brokerid")


def encode_controller_epoch(epoch: int) -> bytes:
    """Data of /controller_epoch."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    """The controller epoch. Raises BadNode."""
    try:
        return int(data)
    except ValueError as exc:
        raise BadNode(CONTROLLER_EPOCH, repr(data)) from exc


def encode_config(config: Mapping[str, str]) -> bytes:
    """Data of an entity's configuration."""
    return _dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """An entity's configuration; empty data is an empty one. Raises BadNode."""
    if not data:
        return {}
    config = _Object(path, data).fields.get("config", {})
    if not isinstance(config, dict):
        raise BadNode(path, "config is no object")
    return {str(key): _text(value) for key, value in config.items()}


def encode_config_change(kind: str, name: str) -> bytes:
    """Data of a change notification."""
    return _dump({"version": 2, "entity_path": f"{kind}/{escape(name)}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """What changed: kind and name. A user's client has a kind of its own (`user_clients`). Version 1 notifications
    name the two apart. Raises BadNode.
    """
    content = _Object(path, data)
    if content.number("version", 1) == 1:
        kind = content.text("entity_type")
        return kind, unescape(content.text("entity_name"))
    entity = content.text("entity_path")
    kind, slash, name = entity.partition("/")
    if not slash:
        raise BadNode(path, f"entity path {kind!r}")
    above, slash, last = entity.rpartition("/")
    if user_of_clients(above) is not None:
        return above, unescape(last)
    return kind, unescape(name)


def encode_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Data of a preferred election or of an ISR change notification."""
    return _dump({"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]})


def decode_partitions(path: str, data: bytes) -> list[tuple[str, int]]:
    """The partitions of a preferred election or of an ISR change notification. Raises BadNode."""
    entries = (_Entry(path, entry) for entry in _Object(path, data).entries("partitions"))
    return [(entry.text("topic"), entry.number("partition")) for entry in entries]


def encode_reassignments(targets: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """Data of /admin/reassign_partitions."""
    moves = [{"topic": t, "partition": index, "replicas": list(replicas)} for (t, index), replicas in targets.items()]
    return _dump({"version": 1, "partitions": moves})


def decode_reassignments(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """What an old tool wants moved where. Raises BadNode."""
    entries = (_Entry(REASSIGNMENTS, entry) for entry in _Object(REASSIGNMENTS, data).entries("partitions"))
    return {(entry.text("topic"), entry.number("partition")): entry.numbers("replicas") for entry in entries}


def encode_log_dir_event(broker_id: int) -> bytes:
    """Data of a notification that a broker has lost a log directory."""
    return _dump({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker that has lost a log directory. Raises BadNode."""
    return _Object(path, data).number("broker")


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Data of /latest_producer_id_block."""
    return _dump({"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)})


def decode_producer_ids(data: bytes) -> ProducerIdBlock | None:
    """The last block taken; None before the first. Raises BadNode."""
    if not data:
        return None
    content = _Object(PRODUCER_ID_BLOCK, data)
    return ProducerIdBlock(content.number("broker"), content.number("block_start"), content.number("block_end"))


def _dump(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _text(value: object) -> str:
    """A setting's value as text; other tools have written numbers and booleans bare."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


class _Entry:
    """A JSON object with typed access; every complaint names the node."""

    def __init__(self, path: str, fields: object) -> None:
        self._path = path
        if not isinstance(fields, dict):
            raise BadNode(path, f"no JSON object: {str(fields)[:80]!r}")
        self.fields: dict[str, Any] = fields

    def number(self, key: str, default: int | None = None) -> int:
        value = self.fields.get(key, default)
        return self._number(key, value)

    def numbers(self, key: str) -> tuple[int, ...]:
        return self._list(key, self.fields.get(key))

    def text(self, key: str) -> str:
        value = self.fields.get(key)
        if not isinstance(value, str):
            raise BadNode(self._path, f"{key} is {value!r}")
        return value

    def replica_lists(self, key: str) -> dict[int, tuple[int, ...]]:
        value = self.fields.get(key) or {}
        if not isinstance(value, dict):
            raise BadNode(self._path, f"{key} is {value!r}")
        return {self._number(key, index): self._list(key, replicas) for index, replicas in value.items()}

    def entries(self, key: str) -> list[object]:
        value = self.fields.get(key)
        if not isinstance(value, list):
            raise BadNode(self._path, f"{key} is {value!r}")
        return value

    def _number(self, key: str, value: object) -> int:
        try:
            if isinstance(value, int | str) and not isinstance(value, bool):
                return int(value)
        except ValueError:
            pass
        raise BadNode(self._path, f"{key} is {value!r}")

    def _list(self, key: str, value: Sequence[object] | None) -> tuple[int, ...]:
        if not isinstance(value, list):
            raise BadNode(self._path, f"{key} is {value!r}")
        return tuple(self._number(key, item) for item in value)


class _Object(_Entry):
    """The JSON object that a node's data is."""

    def __init__(self, path: str, data: bytes) -> None:
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise BadNode(path, f"no JSON: {data[:80]!r}") from exc
        super().__init__(path, fields)

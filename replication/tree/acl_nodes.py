"""Access lists in the tree, as Apache Kafka 3.x's AclAuthorizer lays them out: paths, JSON, and how they are changed.

    /kafka-acl/<Type>/<name>                     {"version":1,"acls":[{"principal":"User:a","permissionType":"Allow",
    /kafka-acl-extended/prefixed/<Type>/<name>    "operation":"Read","host":"*"}]}
    /kafka-acl-changes/acl_changes_N             TRANSACTIONAL_ID:name
    /kafka-acl-extended-changes/acl_changes_N    {"version":1,"resourceType":"TOPIC","name":…,"patternType":"PREFIXED"}

Names stand in paths as they are. Types are written in two ways, `TransactionalId` and `TRANSACTIONAL_ID`. Principals,
operations and permissions are texts here; what they mean is the authorizer's to know (`server/security/acls`). Readers
accept names of types, operations and permissions in any case. Source: `ZkData.scala`, `AclEntry.java`,
`AclAuthorizer.scala` (3.9).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.replication.store.store import (
    Create,
    Delete,
    Node,
    NodeExists,
    NoSuchNode,
    Op,
    Set,
    Store,
    VersionMoved,
)
from barnabas.replication.tree.cluster_tree import make_paths
from barnabas.replication.tree.paths import BadNode

LITERAL: Final = "/kafka-acl"
PREFIXED: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
_CHANGE: Final = "acl_changes_"

TYPES: Final = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
_ENUM_NAMES: Final = {name: re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper() for name in TYPES}
_BY_FOLDED: Final = {name.lower(): name for name in TYPES}
_TRIES: Final = 11


class AclPlace(NamedTuple):
    """What an access list is about. resource_type: one of `TYPES`."""

    resource_type: str
    name: str
    is_prefix: bool = False


class StoredAcl(NamedTuple):
    """One entry, as written: `User:alice`, `Allow`, `DescribeConfigs`, `*`."""

    principal: str
    permission_type: str
    operation: str
    host: str


class TooManyConflicts(Exception):
    """Others change the same access list again and again."""


def path(place: AclPlace) -> str:
    """Of the node with the access list of a place."""
    return f"{PREFIXED if place.is_prefix else LITERAL}/{place.resource_type}/{place.name}"


def encode_acls(acls: Iterable[StoredAcl]) -> bytes:
    """Data of an access list."""
    entries = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission_type,
            "operation": acl.operation,
            "host": acl.host,
        }
        for acl in acls
    ]
    return json.dumps({"version": 1, "acls": entries}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_acls(path: str, data: bytes) -> list[StoredAcl]:
    """An access list; none in a node without data. Raises BadNode."""
    if not data:
        return []
    content = _object(path, data)
    entries = content.get("acls")
    if content.get("version") != 1 or not isinstance(entries, list):
        raise BadNode(path, f"no access list: {data[:80]!r}")
    acls = []
    for entry in entries:
        fields = [
            entry.get(key) if isinstance(entry, dict) else None
            for key in ("principal", "permissionType", "operation", "host")
        ]
        if not all(isinstance(field, str) for field in fields):
            raise BadNode(path, f"no entry of an access list: {str(entry)[:80]!r}")
        acls.append(StoredAcl(*fields))  # type: ignore[arg-type]
    return acls


def encode_change(place: AclPlace) -> bytes:
    """Data of a notice that the access list of a place has changed."""
    kind = _ENUM_NAMES[place.resource_type]
    if not place.is_prefix:
        return f"{kind}:{place.name}".encode()
    content = {"version": 1, "resourceType": kind, "name": place.name, "patternType": "PREFIXED"}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def decode_change(path: str, data: bytes) -> AclPlace:
    """What a notice names, of either kind. Raises BadNode."""
    if path.startswith(f"{PREFIXED_CHANGES}/"):
        content = _object(path, data)
        name, version = content.get("name"), content.get("version")
        if version != 1 or content.get("patternType") != "PREFIXED" or not isinstance(name, str):
            raise BadNode(path, f"no notice of an access list: {data[:80]!r}")
        return AclPlace(_type(path, str(content.get("resourceType"))), name, is_prefix=True)
    kind, colon, name = _text(path, data).partition(":")
    if not colon:
        raise BadNode(path, f"no notice of an access list: {data[:80]!r}")
    return AclPlace(_type(path, kind), name)


async def make_acl_roots(store: Store) -> None:
    """Make what every broker with an authorizer expects to be there."""
    homes = [f"{root}/{kind}" for root in (LITERAL, PREFIXED) for kind in TYPES]
    await make_paths(store, [LITERAL_CHANGES, PREFIXED_CHANGES, *homes])


async def read_acls(store: Store, place: AclPlace) -> list[StoredAcl]:
    """The access list of a place; empty if there is none. Raises BadNode."""
    node = await store.get(path(place))
    return [] if node is None else decode_acls(node.path, node.data)


async def read_all_acls(store: Store, unreadable: Callable[[BadNode], None]) -> dict[AclPlace, list[StoredAcl] | None]:
    """Every access list, None for an unreadable one, which is reported. Unknown types are reported and left out."""
    places: list[AclPlace] = []
    for root, is_prefix in ((LITERAL, False), (PREFIXED, True)):
        for written in await store.children(root):
            kind = _BY_FOLDED.get(written.lower())
            if kind is None:
                unreadable(BadNode(f"{root}/{written}", "a type of resource that is not known here"))
                continue
            places += [AclPlace(kind, name, is_prefix) for name in await store.children(f"{root}/{written}")]
    nodes = await store.get_many([path(place) for place in places])
    found: dict[AclPlace, list[StoredAcl] | None] = {}
    for place, node in zip(places, nodes, strict=True):
        if node is not None:
            found[place] = None
            try:
                found[place] = decode_acls(node.path, node.data)
            except BadNode as error:
                unreadable(error)
    return found


async def update_acls(
    store: Store, place: AclPlace, edit: Callable[[Sequence[StoredAcl]], Sequence[StoredAcl]]
) -> list[StoredAcl]:
    """Replace the access list of a place by `edit(list)` and notify all brokers. Returns the new one.

    `edit` may be called again after a conflict with another writer, up to ten times. The node of an empty list is
    removed, and an unchanged list is not written. Raises TooManyConflicts, BadNode.
    """
    where = path(place)
    changes = PREFIXED_CHANGES if place.is_prefix else LITERAL_CHANGES
    for _ in range(_TRIES):
        node = await store.get(where)
        before = [] if node is None else decode_acls(where, node.data)
        after = list(edit(before))
        if set(after) == set(before):
            return after
        notice = Create(f"{changes}/{_CHANGE}", encode_change(place), sequential=True)
        try:
            await store.commit([_write(where, node, after), notice])
        except (NodeExists, NoSuchNode, VersionMoved):
            continue
        return after
    raise TooManyConflicts(f"{where} was changed by others {_TRIES} times")


def _write(where: str, node: Node | None, acls: Sequence[StoredAcl]) -> Op:
    if node is None:
        return Create(where, encode_acls(acls))
    if not acls:
        return Delete(where, node.version)
    return Set(where, encode_acls(acls), node.version)


def _object(path: str, data: bytes) -> dict[str, object]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadNode(path, f"no JSON: {data[:80]!r}") from exc
    if not isinstance(content, dict):
        raise BadNode(path, f"no JSON object: {data[:80]!r}")
    return content


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise BadNode(path, f"no text: {data[:80]!r}") from exc


def _type(path: str, text: str) -> str:
    kind = _BY_FOLDED.get(text.replace("_", "").lower())
    if kind is None:
        raise BadNode(path, f"{text[:80]!r} is no type of resource")
    return kind

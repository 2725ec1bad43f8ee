"""Settings of users, client ids and addresses in the coordination tree, as Apache Kafka 3.x lays them out.

    /config/users/<user>                    quotas, and the user's SCRAM credentials
    /config/users/<user>/clients/<client>   quotas of a user's client
    /config/clients/<client>                quotas of a client id of any user
    /config/ips/<host>                      how fast an address may connect

A name is escaped (`paths.escape`), or `<default>` for all that have none of their own. Here an entity is identified by
its kind and name; the kind of a user's clients is `paths.user_clients(user)`. A node without settings and without
children is removed, with empty nodes above it. Source: `AdminZkClient.scala` (3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.replication.store.store import Delete, Node, Op, Set, Store
from barnabas.replication.tree import paths
from barnabas.replication.tree.paths import BadNode, user_clients, user_of_clients

__all__ = ["Entities", "emptied", "is_client_kind", "read_clients", "user_clients", "user_of_clients"]

_KINDS = (paths.USER_CONFIG, paths.CLIENT_CONFIG, paths.IP_CONFIG)

Entities = dict[tuple[str, str], Mapping[str, str]]
"""Settings by kind and name."""


def is_client_kind(kind: str) -> bool:
    """Whether these are settings of users, client ids or addresses."""
    return kind in _KINDS or user_of_clients(kind) is not None


async def read_clients(store: Store, unreadable: Callable[[BadNode], None]) -> Entities:
    """All of them. Nodes that cannot be read are left out."""
    found: Entities = {}
    for kind in _KINDS:
        names = await _read_kind(store, kind, found, unreadable)
        if kind == paths.USER_CONFIG:
            for name in names:
                await _read_kind(store, f"{kind}/{name}/{paths.CLIENT_CONFIG}", found, unreadable)
    return found


async def _read_kind(store: Store, kind: str, found: Entities, unreadable: Callable[[BadNode], None]) -> list[str]:
    root = paths.config_kind(kind)
    names = await store.children(root)
    if not names:
        return names
    for name, node in zip(names, await store.get_many([f"{root}/{name}" for name in names]), strict=True):
        if node is None:
            continue
        try:
            found[kind, paths.unescape(name)] = paths.decode_config(node.path, node.data)
        except BadNode as error:
            unreadable(error)
    return names


async def emptied(store: Store, kind: str, node: Node) -> list[Op]:
    """The operations on a node that has no settings left. The commit is refused if a setting is added meanwhile."""
    if await store.children(node.path):
        return [Set(node.path, paths.encode_config({}), node.version)]
    ops: list[Op] = [Delete(node.path, node.version)]
    if user_of_clients(kind) is None:
        return ops
    above = paths.config_kind(kind)
    if len(await store.children(above)) > 1:
        return ops
    ops.append(Delete(above))
    user = await store.get(above.rpartition("/")[0])
    if user is None or paths.decode_config(user.path, user.data):
        return ops
    if await store.children(user.path) == [paths.CLIENT_CONFIG]:
        ops.append(Delete(user.path, user.version))
    return ops

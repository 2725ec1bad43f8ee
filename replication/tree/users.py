"""Users in the coordination tree.

    /config/users/<name>      {"version":1,"config":{"SCRAM-SHA-256":"salt=…","producer_byte_rate":"1024"}}
    /barnabas/stand_in_secret 32 random bytes

The first is Apache Kafka's: SCRAM credentials beside the user's quotas, so every writer keeps what he does not change
(`cluster_tree.write_config`). The second is ours: what unknown users are shown is derived from it, and is to be the
same on every broker. It is as secret as the credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.replication.store.store import Create, NodeExists, Store
from barnabas.replication.tree import paths
from barnabas.replication.tree.cluster_tree import make_paths
from barnabas.replication.tree.paths import BadNode

SECRET_BYTES = 32


async def read_users(store: Store, unreadable: Callable[[BadNode], None]) -> dict[str, Mapping[str, str]]:
    """What is stored of each user, by name; not of '<default>'. Nodes that cannot be read are left out."""
    root = paths.config_kind(paths.USER_CONFIG)
    names = await store.children(root)
    users: dict[str, Mapping[str, str]] = {}
    for name, node in zip(names, await store.get_many([f"{root}/{name}" for name in names]), strict=True):
        if node is None or name == paths.DEFAULT_ENTITY:
            continue
        try:
            users[paths.unescape(name)] = paths.decode_config(node.path, node.data)
        except BadNode as error:
            unreadable(error)
    return users


async def settle_secret(store: Store, make: Callable[[], bytes]) -> bytes:
    """The secret behind the answers to unknown users; made by the first that needs it. make: `SECRET_BYTES` random
    bytes.
    """
    while True:
        node = await store.get(paths.STAND_IN_SECRET)
        if node is not None:
            return node.data
        await make_paths(store, (paths.STAND_IN_SECRET.rpartition("/")[0],))
        try:
            await store.commit([Create(paths.STAND_IN_SECRET, make())])
        except NodeExists:
            pass

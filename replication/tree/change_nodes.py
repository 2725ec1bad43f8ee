"""Change notices: sequential nodes under one place, each of which says what was changed somewhere else in the tree.

    /config/changes/config_change_N                  settings
    /kafka-acl-changes/acl_changes_N                 access lists, by name
    /kafka-acl-extended-changes/acl_changes_N        access lists, by prefix

A change is written, then a notice. Every broker reads what notices name, and removes those that all
have had time to see. What a notice says is `decode`'s to know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from barnabas.replication.store.store import Delete, NoSuchNode, Store
from barnabas.replication.tree.paths import BadNode

T = TypeVar("T")


async def read_changes(
    store: Store,
    place: str,
    decode: Callable[[str, bytes], T],
    seen: Collection[str],
    unreadable: Callable[[BadNode], None],
) -> dict[str, T | None]:
    """The notices under `place` by name, without those `seen`: what changed, None if unreadable.

    decode(path, data): what a notice says; raises BadNode.
    """
    names = [name for name in await store.children(place) if name not in seen]
    nodes = await store.get_many([f"{place}/{name}" for name in names])
    changes: dict[str, T | None] = {}
    for name, node in zip(names, nodes, strict=True):
        changes[name] = None
        if node is not None:
            try:
                changes[name] = decode(node.path, node.data)
            except BadNode as exc:
                unreadable(exc)
    return changes


async def drop_changes(store: Store, place: str, names: Iterable[str]) -> None:
    """Remove notices that every broker has had time to see."""
    for name in names:
        try:
            await store.commit([Delete(f"{place}/{name}")])
        except NoSuchNode:  # another broker cleans up as well
            pass

"""Commits without a response: were they carried out?"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.replication.store.store import ANY_VERSION, Create, Delete, Node, Op, Set, Store


async def done_already(store: Store, ops: Sequence[Op]) -> list[Node | None] | None:
    """What `commit(ops)` would have returned if it was carried out; None if it was not, or that is not known.

    A commit is done wholly or not at all, and leaves each node with the data given and the version after the one
    required; nodes that were changed since look as if it had not been done. Sequential nodes leave no trace to
    recognise. Raises StoreError.
    """
    writes = [op for op in ops if isinstance(op, Create | Set | Delete)]
    if not writes or any(isinstance(op, Create) and op.sequential for op in writes):
        return None
    nodes = dict(zip((op.path for op in writes), await store.get_many([op.path for op in writes]), strict=True))
    for op in writes:
        node = nodes[op.path]
        if isinstance(op, Delete):
            if node is not None:
                return None
        elif node is None or node.data != op.data:
            return None
        elif isinstance(op, Create):
            if node.version != 0 or node.ephemeral != op.ephemeral:
                return None
        elif op.version != ANY_VERSION and node.version != op.version + 1:
            return None
    return [nodes[op.path] if isinstance(op, Create | Set) else None for op in ops]

"""Delegation tokens in the coordination tree, as Apache Kafka 3.x lays them out.

    /delegation_token/tokens/<id>                     {"version":3,"owner":"User%3Aalice","tokenRequester":…,…}
    /delegation_token/token_changes/token_change_N    the id, as text

Principals are escaped like names in paths (`paths.escape`). Versions 1 and 2 have no requester: it is the owner. The
secret is not there. Who changes a token writes it and a notice in one commit. Source: `ZkData.scala`,
`DelegationTokenManagerZk.scala` (3.9).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.replication.store.store import Create, Delete, NoSuchNode, Op, Set, Store, VersionMoved
from barnabas.replication.tree.cluster_tree import make_paths
from barnabas.replication.tree.paths import BadNode, escape, unescape

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
_CHANGE: Final = "token_change_"
_TRIES: Final = 11


class StoredToken(NamedTuple):
    """A token as written: principals like `User:alice`, times in ms since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


class TooManyChanges(Exception):
    """Others change the same token again and again."""


def path(token_id: str) -> str:
    """Of a token's node."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: StoredToken) -> bytes:
    """Data of a token's node."""
    content = {
        "version": 3,
        "owner": escape(token.owner),
        "tokenRequester": escape(token.requester),
        "renewers": [escape(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> StoredToken:
    """What a token's node says. Raises BadNode."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadNode(path, f"no JSON: {data[:80]!r}") from exc
    if not isinstance(content, dict) or content.get("version") not in (1, 2, 3):
        raise BadNode(path, f"no token of version 1 to 3: {data[:80]!r}")
    owner = _principal(path, content.get("owner"))
    requester = _principal(path, content.get("tokenRequester")) if content["version"] >= 3 else owner
    renewers = content.get("renewers")
    if not isinstance(renewers, list):
        raise BadNode(path, f"renewers are {renewers!r:.80}")
    times = [content.get(key) for key in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")]
    if any(type(time) is not int for time in times):
        raise BadNode(path, f"times are {times!r:.80}")
    token_id = content.get("tokenId")
    if token_id != path.rpartition("/")[2]:
        raise BadNode(path, f"the token's id is {token_id!r:.80}")
    people = owner, requester, tuple(_principal(path, each) for each in renewers)
    return StoredToken(token_id, *people, *times)  # type: ignore[arg-type]


def decode_change(path: str, data: bytes) -> str:
    """The id of the token that a notice names. Raises BadNode."""
    try:
        token_id = data.decode()
    except UnicodeDecodeError as exc:
        raise BadNode(path, f"no text: {data[:80]!r}") from exc
    if not token_id or "/" in token_id:
        raise BadNode(path, f"no token's id: {data[:80]!r}")
    return token_id


async def make_token_roots(store: Store) -> None:
    """Make what every broker with tokens expects to be there."""
    await make_paths(store, [CHANGES, TOKENS])


async def read_token(store: Store, token_id: str) -> StoredToken | None:
    """A token; None if there is none. Raises BadNode."""
    node = await store.get(path(token_id))
    return None if node is None else decode_token(node.path, node.data)


async def read_all_tokens(store: Store, unreadable: Callable[[BadNode], None]) -> list[StoredToken]:
    """Every token. What cannot be read is reported and left out."""
    nodes = await store.get_many([path(token_id) for token_id in await store.children(TOKENS)])
    found = []
    for node in nodes:
        if node is not None:
            try:
                found.append(decode_token(node.path, node.data))
            except BadNode as error:
                unreadable(error)
    return found


async def create_token(store: Store, token: StoredToken) -> None:
    """Write a new token, and notify all brokers."""
    await store.commit([Create(path(token.token_id), encode_token(token)), _notice(token.token_id)])


async def update_token(
    store: Store, token_id: str, edit: Callable[[StoredToken], StoredToken | None]
) -> StoredToken | None:
    """Replace a token by `edit(token)`, or remove it (None), and notify all brokers. Returns the stored token.

    An unchanged token is not written. `edit` may be called again after a conflict with another writer, up to ten times.
    Raises NoSuchNode if there is no such token, TooManyChanges, BadNode.
    """
    where = path(token_id)
    for _ in range(_TRIES):
        node = await store.get(where)
        if node is None:
            raise NoSuchNode(where)
        before = decode_token(where, node.data)
        after = edit(before)
        if after == before:
            return after
        write: Op = Delete(where, node.version) if after is None else Set(where, encode_token(after), node.version)
        try:
            await store.commit([write, _notice(token_id)])
        except VersionMoved:
            continue
        return after
    raise TooManyChanges(f"{where} was changed by others {_TRIES} times")


def _notice(token_id: str) -> Create:
    return Create(f"{CHANGES}/{_CHANGE}", token_id.encode(), sequential=True)


def _principal(path: str, written: object) -> str:
    principal = unescape(written) if isinstance(written, str) else ""
    if ":" not in principal:
        raise BadNode(path, f"no principal: {written!r:.80}")
    return principal

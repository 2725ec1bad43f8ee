"""Every fast path against the slow path: the same random conversation with it and without, byte for byte.

A conversation is a function of (version, seed, a variation) that talks to a broker of its own and returns all that came
of it: the answers, and what is in the log. With BARNABAS_FAST_PATH_SEED=n it is another one.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest
import trio

from barnabas.kproto import ApiKey
from barnabas.server.apis import APIS
from barnabas.server.network.connection import Connection, Slot
from barnabas.server.requests.dispatch import Dispatcher
from barnabas.server.requests.fast_paths.fetch import FetchFastPath
from barnabas.server.requests.fast_paths.offset_commit import OffsetCommitFastPath
from barnabas.server.requests.fast_paths.produce import ProduceFastPath
from barnabas.server.tests.requests import test_fetch_fast_path as of_fetch
from barnabas.server.tests.requests import test_offset_commit_fast_path as of_commit
from barnabas.server.tests.requests import test_produce_fast_path as of_produce

SEED = int(os.environ.get("BARNABAS_FAST_PATH_SEED", "0"))


class Conversation(NamedTuple):
    """`taken_min`: so many requests, at least, are the fast path's. `method`: the one of its class that counts."""

    key: ApiKey
    talk: Callable[..., Awaitable[list[bytes]]]
    versions: range | tuple[int, ...]
    variations: tuple[dict[str, Any], ...]
    method: tuple[type, str]
    taken_min: int


CONVERSATIONS = {
    "produce": Conversation(
        ApiKey.PRODUCE,
        of_produce.conversation,
        range(5, 14),
        ({"acks": 1}, {"acks": -1}),
        (ProduceFastPath, "take"),
        11,
    ),
    "produce without acks": Conversation(
        ApiKey.PRODUCE, of_produce.silent_conversation, (5, 8, 9, 13), ({},), (ProduceFastPath, "take"), 11
    ),
    "produce to several partitions": Conversation(
        ApiKey.PRODUCE,
        of_produce.several_conversation,
        (5, 7, 8, 9, 10, 13),
        ({"acks": 1}, {"acks": -1}, {"acks": -1, "log_flush_interval_messages": "2"}),
        (ProduceFastPath, "_take_several"),
        20,
    ),
    "runs of produce": Conversation(
        ApiKey.PRODUCE,
        of_produce.burst_conversation,
        (5, 8, 9, 13),
        (
            {"acks": 1},
            {"acks": -1},
            {"acks": 1, "log_flush_interval_messages": "1"},
            {"acks": -1, "log_flush_interval_messages": "1"},
        ),
        (ProduceFastPath, "take_run"),
        20,
    ),
    "fetch": Conversation(
        ApiKey.FETCH,
        of_fetch.conversation,
        range(12, 19),
        ({"isolation_level": 0}, {"isolation_level": 1}),
        (FetchFastPath, "take"),
        30,
    ),
    "fetch that waits, of several partitions": Conversation(
        ApiKey.FETCH,
        of_fetch.several_conversation,
        (12, 13, 18),
        tuple(
            {"in_session": in_session, "isolation_level": isolation_level, "only_one": only_one}
            for in_session in (True, False)
            for isolation_level in (0, 1)
            for only_one in (True, False)
        ),
        (FetchFastPath, "take"),
        5,
    ),
    "commits": Conversation(
        ApiKey.OFFSET_COMMIT,
        of_commit.conversation,
        range(2, 11),
        ({"members": "none"}, {"members": "classic"}),
        (OffsetCommitFastPath, "take"),
        10,
    ),
    "commits of KIP-848 members": Conversation(
        ApiKey.OFFSET_COMMIT,
        of_commit.conversation,
        (9, 10),
        ({"members": "consumer"},),
        (OffsetCommitFastPath, "take"),
        10,
    ),
    "commits of several at once": Conversation(
        ApiKey.OFFSET_COMMIT, of_commit.joint_conversation, (2, 5, 6, 8, 10), ({},), (OffsetCommitFastPath, "take"), 10
    ),
}


def cases() -> Iterator[Any]:
    for name, each in CONVERSATIONS.items():
        for version in each.versions:
            for number, variation in enumerate(each.variations):
                shown = ", ".join(f"{key}={value}" for key, value in variation.items())
                yield pytest.param(name, version, number, id=f"{name} v{version} {shown}")


def test_every_api_that_learns_has_a_conversation() -> None:
    assert {api.key for api in APIS if api.load().learn is not None} == {each.key for each in CONVERSATIONS.values()}


@pytest.mark.parametrize(("name", "version", "variation"), list(cases()))
async def test_the_fast_path_does_what_the_slow_path_does(
    name: str, version: int, variation: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    each = CONVERSATIONS[name]
    seed = SEED + 16 * version + variation
    asked: list[str] = []
    kind, method = each.method
    dispatched = Dispatcher.__call__
    taken = getattr(kind, method)

    def noted(self: Any, *arguments: Any) -> Any:
        outcome = taken(self, *arguments)
        if outcome is not None:
            asked.append("fast")
        return outcome

    def dispatch(self: Dispatcher, connection: Connection, frame: memoryview) -> Slot:
        asked.append("slow")
        return dispatched(self, connection, frame)

    monkeypatch.setattr(Dispatcher, "__call__", dispatch)
    monkeypatch.setattr(kind, method, noted)
    fast = await each.talk(version, seed, **each.variations[variation])
    count = asked.count("fast")
    assert count >= each.taken_min, f"seed {seed}"
    assert "slow" in asked
    asked.clear()

    monkeypatch.setattr(Connection, "fast_paths", property(lambda self: [], lambda self, paths: None))
    slow = await each.talk(version, seed, **each.variations[variation])
    assert "fast" not in asked
    assert fast == slow, f"seed {seed}"

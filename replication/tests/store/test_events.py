"""Who wants which places of a session, and who is told what."""

from __future__ import annotations

from barnabas.replication.store.events import Subscribers
from barnabas.replication.store.store import Changed, SessionBack, SessionLost, path_of


def test_a_place_is_new_once_and_left_by_the_last() -> None:
    subscribers = Subscribers()
    first, added = subscribers.enter(["/a", "/b"])
    assert sorted(added) == ["/a", "/b"]
    second, added = subscribers.enter(["/b", "/c"])
    assert added == ["/c"]
    assert subscribers.leave(first) == ["/a"]
    assert sorted(subscribers.leave(second)) == ["/b", "/c"]
    assert sorted(subscribers.enter(["/a", "/b"])[1]) == ["/a", "/b"]


async def test_each_is_told_of_its_places_and_of_the_session() -> None:
    subscribers = Subscribers()
    first, _ = subscribers.enter(["/a"])
    second, _ = subscribers.enter(["/b"])
    gone, _ = subscribers.enter(["/a"])
    subscribers.leave(gone)
    subscribers.report([])
    subscribers.report(["/a/x", "/b"])
    subscribers.report(["/a"])
    subscribers.lost()
    subscribers.back()
    assert [await anext(first) for _ in range(3)] == [Changed(frozenset({"/a", "/a/x"})), SessionLost(), SessionBack()]
    assert await anext(second) == Changed(frozenset({"/b"}))


def test_paths_of_children() -> None:
    assert path_of("/", "a") == "/a"
    assert path_of("/a", "b") == "/a/b"

"""The messages of the store of one machine: what goes in comes out, and nothing else does harm."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.replication.store import socket_wire as wire
from barnabas.replication.store.socket_wire import Frames, Hello, Reader, Seen, Welcome, WireError
from barnabas.replication.store.store import (
    MAX_COMMIT_BYTES,
    AccessDenied,
    Check,
    CommitRefused,
    CommitTooLarge,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    Op,
    PathTooLong,
    Set,
    StoreError,
    VersionMoved,
    check_size,
)


def reader(frame: bytes) -> Reader:
    [view] = Frames(wire.MOST_BYTES).feed(frame)
    return Reader(view)


def view(frame: bytes) -> memoryview:
    [found] = Frames(wire.MOST_BYTES).feed(frame)
    return found


OPS: list[Op] = [
    Create("/a", b"\x00\xff" * 10, ephemeral=True),
    Create("/é", sequential=True),
    Set("/a", b"", 7),
    Set("/a", b"x"),
    Delete("/a", 2**31 - 1),
    Check("/a", 0),
]
NODES = [Node("/a", b"x\x00", 3, 2**62, 2**62 + 1, True), None, Node("/", b"", 0, 0, 0)]


def test_what_goes_in_comes_out() -> None:
    hello = Hello(2**62, 6000, "broker 1")
    assert wire.decode_hello(view(wire.encode_hello(hello))) == hello
    welcome = Welcome(5, 6000, True)
    assert wire.decode_welcome(reader(wire.encode_welcome(welcome))) == welcome
    assert wire.decode_commit(reader(wire.encode_commit(OPS))) == OPS
    assert wire.decode_paths(reader(wire.encode_paths(wire.GET, ["/", "/é"]))) == ["/", "/é"]
    assert wire.decode_path(reader(wire.encode_children("/é"))) == "/é"
    assert wire.decode_nodes(reader(wire.encode_nodes(NODES))) == NODES
    assert wire.decode_paths(reader(wire.encode_names(["b", "é"]))) == ["b", "é"]
    done = [Node("/a0000000001", b"x", 0, 9, 9), None]
    assert wire.decode_done(reader(wire.encode_done(done)), [Create("/a", b"x", sequential=True), Delete("/b")]) == done
    seen = {"/a": Seen(7, {"b": 8, "é": 9}), "/none": Seen(None, {})}
    assert wire.decode_watched(reader(wire.encode_watched(11, seen))) == (11, seen)
    changed = {"/a": True, "/b": False}
    assert wire.decode_changed(reader(wire.encode_changed(12, changed))) == (12, changed)


@pytest.mark.parametrize(
    "kind",
    [
        CommitRefused,
        VersionMoved,
        NoSuchNode,
        NodeExists,
        NodeNotEmpty,
        EphemeralParent,
        AccessDenied,
        CommitTooLarge,
        PathTooLong,
    ],
)
def test_errors_come_out_as_they_are(kind: type[CommitRefused]) -> None:
    error = kind("/a", 3, "version 2, not 1")
    found = wire.decode_failed(reader(wire.encode_failed(error)))
    assert type(found) is kind
    assert isinstance(found, CommitRefused)
    assert (found.path, found.index, str(found)) == ("/a", 3, str(error))
    other = wire.decode_failed(reader(wire.encode_failed(StoreError("no"))))
    assert (type(other), str(other)) == (StoreError, "no")


@pytest.mark.parametrize("size", [0, 1, 10_000, 900_000])
def test_the_largest_commit_fits(size: int) -> None:
    each = len("/000000") + 32 + size  # as check_size counts
    ops: list[Op] = [Create(f"/{number:06}", b"x" * size, True, True) for number in range(MAX_COMMIT_BYTES // each)]
    check_size(ops)
    with pytest.raises(CommitTooLarge):
        check_size([*ops, Create("/000000", b"x" * size)])
    assert len(wire.encode_commit(ops)) <= wire.REQUEST_BYTES


def test_nodes_are_cut_where_an_answer_is_full_but_never_to_none() -> None:
    half = Node("/h", b"x" * (wire.ANSWER_BYTES // 2), 0, 1, 1)
    assert wire.decode_nodes(reader(wire.encode_nodes([half, None, half, half, half]))) == [half, None]
    whole = Node("/w", b"x" * (wire.ANSWER_BYTES + 1), 0, 1, 1)
    assert wire.decode_nodes(reader(wire.encode_nodes([whole, half]))) == [whole]


@pytest.mark.parametrize("seed", range(5))
def test_frames_in_any_pieces(seed: int) -> None:
    rng = Random(seed)
    sent = [rng.randbytes(rng.choice((1, 2, 100, 70_000))) for _ in range(30)]
    stream = b"".join(wire.frame(each[0], each[1:]) for each in sent)
    frames, got = Frames(100_000), []
    while stream:
        cut = rng.choice((1, 3, 50, 5000, 200_000))
        got += [bytes(each) for each in frames.feed(stream[:cut])]
        stream = stream[cut:]
    assert got == sent, f"seed {seed}"
    with pytest.raises(WireError):
        list(frames.feed((100_001).to_bytes(4, "big")))


def test_damage_is_an_error_of_the_wire_and_of_no_other_kind() -> None:
    rng = Random(1)
    good = [
        (wire.encode_hello(Hello(1, 6000, "é")), lambda frame: wire.decode_hello(memoryview(frame))),
        (wire.encode_commit(OPS), lambda frame: wire.decode_commit(Reader(memoryview(frame)))),
        (wire.encode_paths(wire.GET, ["/", "/é"]), lambda frame: wire.decode_paths(Reader(memoryview(frame)))),
        (wire.encode_nodes(NODES), lambda frame: wire.decode_nodes(Reader(memoryview(frame)))),
        (wire.encode_done(NODES), lambda frame: wire.decode_done(Reader(memoryview(frame)), OPS[:3])),
        (wire.encode_failed(NodeExists("/a", 1)), lambda frame: wire.decode_failed(Reader(memoryview(frame)))),
        (wire.encode_watched(3, {"/a": Seen(1, {"b": 2})}), lambda f: wire.decode_watched(Reader(memoryview(f)))),
        (wire.encode_changed(3, {"/a": True}), lambda frame: wire.decode_changed(Reader(memoryview(frame)))),
        (wire.encode_welcome(Welcome(1, 2, False)), lambda frame: wire.decode_welcome(Reader(memoryview(frame)))),
    ]
    for encoded, decode in good:
        for _ in range(2000):
            frame = bytearray(encoded[4:])
            for _ in range(rng.randrange(1, 4)):
                frame[rng.randrange(len(frame))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
            if rng.random() < 0.3:
                del frame[rng.randrange(1, len(frame)) :]
            try:
                decode(bytes(frame))
            except WireError:
                pass

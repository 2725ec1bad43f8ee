"""Cutting streams into frames, and giving back what is another protocol."""

from __future__ import annotations

from random import Random

from barnabas.server.wire.frames import Frames, framed, kind_of


def test_frames_however_they_are_cut() -> None:
    rng = Random(17)
    sent = [rng.randbytes(rng.choice((0, 1, 4, 5, 1000, 70_000))) for _ in range(50)]
    stream = b"".join(map(framed, sent))
    for step in (1, 3, 4096, len(stream)):
        frames, found = Frames(), []
        for start in range(0, len(stream), step):
            complete, rest = frames.feed(stream[start : start + step])
            assert rest == b""
            found += complete
        assert found == sent
        assert frames.pending_bytes == 0


def test_another_protocol_is_given_back_whole() -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    frames = Frames()
    assert frames.feed(framed(b"frame") + hello[:3]) == ([b"frame"], b"")
    assert frames.feed(hello[3:]) == ([], hello)
    assert frames.is_opaque
    assert frames.feed(b"more") == ([], b"more")


def test_lengths_that_no_frame_has() -> None:
    for data in (b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n", b"\x7f\xff\xff\xff"):
        frames = Frames()
        assert frames.feed(data) == ([], data)
    assert Frames(max_bytes=10).feed(framed(bytes(11)))[0] == []
    assert Frames(max_bytes=10).feed(framed(bytes(10)))[0] == [bytes(10)]


def test_what_it_looks_like() -> None:
    assert kind_of(b"\x16\x03\x01").startswith("TLS")
    assert kind_of(b"GET /x") == "HTTP"
    assert kind_of(b"\x01\x02") == "not Kafka's protocol"

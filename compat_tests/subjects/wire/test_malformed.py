"""What cannot be a request is closed without an answer; what can be read is answered; nobody else notices."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.subjects.wire.raw import Closed, Wire, batch, compact, produce_answer, produce_body, record, text

pytestmark = pytest.mark.slow
AREA = "malformed input"


def case(title: str) -> pytest.MarkDecorator:
    return pytest.mark.case(AREA, title, client="raw socket")


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


HEADER = struct.pack(">hhi", 3, 1, 7) + text("wire")
UNREADABLE = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("160301020001fc0303") + bytes(100),
    "a negative length": struct.pack(">i", -5) + b"xxxx",
    "length 0": struct.pack(">i", 0),
    "a length over the limit": struct.pack(">i", 0x7FFFFFFF),
    "a frame of 3 bytes": frame(b"abc"),
    "an unknown API": frame(struct.pack(">hhi", 9999, 0, 7) + text("wire")),
    "an API of controllers": frame(struct.pack(">hhi", 52, 0, 7) + text("wire")),
    "a version out of range": frame(struct.pack(">hhi", 3, 99, 7) + text("wire")),
    "a negative version": frame(struct.pack(">hhi", 3, -1, 7) + text("wire")),
    "a body cut short": frame(HEADER + struct.pack(">i", 3) + text("a")),
    "an array longer than the frame": frame(HEADER + struct.pack(">i", 0x7FFFFFF0) + text("a")),
    "a string longer than the frame": frame(HEADER + struct.pack(">ih", 1, 0x7FFF) + b"a"),
}


@case("unreadable bytes close the connection")
@pytest.mark.parametrize("what", UNREADABLE)
def test_unreadable_bytes_close_the_connection(broker: Broker, what: str) -> None:
    with Wire(broker.address) as witness, Wire(broker.address) as wire:
        wire.raw(UNREADABLE[what])
        assert wire.closes(), what
        assert witness.works()


@case("extra bytes after the body are ignored")
def test_extra_bytes_are_ignored(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.request(18, 0, b"more than there should be")
        assert struct.unpack_from(">h", wire.answer())[0] == 0
        assert wire.works()


@case("a null client id is fine")
def test_null_client_id(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.request(18, 0, b"", client_id=None)
        assert struct.unpack_from(">h", wire.answer())[0] == 0


@case("ApiVersions: a bad software name gets error 42")
@pytest.mark.parametrize("name", ["", "bad name", "-x", "x-"])
def test_bad_software_name(broker: Broker, name: str) -> None:
    with Wire(broker.address) as wire:
        wire.request(18, 3, compact(name) + compact("1.0") + b"\0", flexible=True)
        assert struct.unpack_from(">h", wire.answer())[0] == 42
        assert wire.works()


@case("ApiVersions: an unknown version is answered in format 0")
def test_unknown_api_versions_version(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.request(18, 77, b"", flexible=True)
        answer = wire.answer()
        assert answer[:8] == bytes.fromhex("0023000000010012")
        first, last = struct.unpack_from(">hh", answer, 8)
        assert (first, last) == (0, 4)
        assert wire.works()


@case("Produce: acks=2 without topics")
def test_odd_acks_without_topics(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 3, text(None) + struct.pack(">hii", 2, 1000, 0))
        assert struct.unpack_from(">i", wire.answer())[0] == 0


@case("Produce: acks=0 to nothing stays silent and open")
def test_no_acks_is_silent(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.request(0, 3, text(None) + struct.pack(">hii", 0, 1000, 0))
        assert wire.is_silent(0.3)
        assert wire.works()


@case("Produce: an unknown topic is refused, not created")
def test_produce_to_an_unknown_topic(broker: Broker, unique: Callable[..., str]) -> None:
    name = unique()
    with Wire(broker.address) as wire:
        for _ in range(2):
            wire.request(0, 7, produce_body(name, 0, batch([record(0, b"x")])))
            assert produce_answer(wire.answer()) == (3, -1)


@case("FindCoordinator: an empty group is answered")
def test_find_coordinator_of_nobody(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.request(10, 0, text(""))
        (error,) = struct.unpack_from(">h", wire.answer())
        assert error in (0, 15)


@case("JoinGroup: an empty group is refused")
def test_join_an_empty_group(broker: Broker, unique: Callable[..., str]) -> None:
    with Wire(broker.address) as wire:
        wire.request(11, 0, text("") + struct.pack(">i", 10_000) + text("") + text("consumer") + struct.pack(">i", 0))
        assert struct.unpack_from(">h", wire.answer())[0] == 24


@case("SaslHandshake on a plaintext listener")
def test_sasl_on_plaintext(broker: Broker) -> None:
    """Apache Kafka says ILLEGAL_SASL_STATE; a broker that does not advertise SASL may close."""
    with Wire(broker.address) as wire:
        wire.request(17, 1, text("PLAIN"))
        try:
            assert struct.unpack_from(">h", wire.answer())[0] == 34
        except Closed:
            assert not advertises(broker, 17)


def advertises(broker: Broker, key: int) -> bool:
    with Wire(broker.address) as wire:
        wire.request(18, 0, b"")
        answer = wire.answer()
        (count,) = struct.unpack_from(">i", answer, 2)
        return any(struct.unpack_from(">h", answer, 6 + 6 * i)[0] == key for i in range(count))


@case("random garbage harms nobody")
@pytest.mark.parametrize("seed", range(3))
def test_random_garbage(broker: Broker, seed: int) -> None:
    rng = random.Random(seed)
    with Wire(broker.address) as witness:
        for _ in range(60):
            with Wire(broker.address) as wire:
                key, version = rng.randrange(0, 93), rng.randrange(0, 14)
                body = rng.randbytes(rng.randrange(0, 200))
                wire.request(key, version, body, flexible=rng.random() < 0.5)
                wire.raw(rng.randbytes(rng.randrange(0, 50)))
        assert witness.works(), f"seed {seed}"


@case("pipelined requests are answered in order")
def test_pipelined_requests(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        for i in range(50):
            if i % 2:
                wire.request(18, 0, b"", correlation_id=i)
            else:
                wire.request(3, 1, struct.pack(">i", 0), correlation_id=i)
        for i in range(50):
            wire.answer(i)


@case("a request in single bytes is answered")
def test_byte_by_byte(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        for byte in frame(struct.pack(">hhi", 18, 0, 7) + text("slow")):
            wire.raw(bytes([byte]))
        assert struct.unpack_from(">h", wire.answer())[0] == 0

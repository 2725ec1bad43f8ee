"""Strings that are no UTF-8: what is decoded can be encoded again, or it is refused.

U+FFFD has three bytes, so a string of 12,000 bytes that are no UTF-8 has 36,000 when it is written, more than a string
may have. Decoded all the same, it would fail wherever it is echoed or stored.
"""

import codecs
import random
import re
import struct
from typing import Any

import pytest

from barnabas import kproto
from barnabas.kproto import ApiKey, DecodeError
from barnabas.kproto.classes import Message, Record
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import HeartbeatRequest, MetadataRequest, ProduceRequest
from barnabas.kproto.primitives import BAD_UTF8, MAX_STRING
from barnabas.kproto.tests.randoms import every_message, random_message

EVERY = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in every_message()]
SIZES = [1, 2, 3, 40, 127, 128, MAX_STRING // 3, MAX_STRING // 3 + 1, 20_000, MAX_STRING]
PIECES = [b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x82", b"a", b"\x80", b"\xc0\x80", b"\x00"]


def hostile_bytes(rng: random.Random, size: int) -> bytes:
    pieces = rng.sample(PIECES, rng.randint(1, len(PIECES)))
    return b"".join([pieces[number % len(pieces)] for number in rng.randbytes(size)])[:size]


def with_placeholders(rng: random.Random, value: Any, version: int, left: list[int]) -> Any:
    """The message with other strings, of Zs; a few of them long."""
    if isinstance(value, str):
        left[0] -= 1
        return "Z" * rng.choice(SIZES if left[0] > 0 else SIZES[:4])
    if isinstance(value, list):
        return [with_placeholders(rng, one, version, left) for one in value]
    if isinstance(value, Record) and type(value).__setattr__ is object.__setattr__:
        for field in value.__struct__.fields:
            if field.versions.has(version):
                setattr(value, field.name, with_placeholders(rng, getattr(value, field.name), version, left))
    return value


def written_again(piece: bytes) -> int:
    return len(re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xff", piece).decode("utf-8", "replace").encode())


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_what_is_decoded_can_be_encoded(cls: type[Message], version: int) -> None:
    seed = f"{cls.__name__} {version} hostile strings"
    rng = random.Random(seed)
    for _ in range(3):
        message = with_placeholders(rng, random_message(rng, cls, version), version, [6])
        longest = 0

        def bad(run: re.Match[bytes]) -> bytes:
            nonlocal longest
            piece = hostile_bytes(rng, len(run[0])) if rng.random() < 0.7 else run[0]
            longest = max(longest, written_again(piece))
            return piece

        data = re.sub(rb"Z+", bad, kproto.encode(message, version))
        if longest > MAX_STRING:
            with pytest.raises(DecodeError, match="no UTF-8"):
                kproto.decode(cls, version, data)
            continue
        decoded = kproto.decode(cls, version, data)
        assert kproto.decode(cls, version, kproto.encode(decoded, version)) == decoded, f"seed {seed!r}"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param("61ff62", "a\ufffdb", id="one-byte"),
        pytest.param("c080", "\ufffd\ufffd", id="overlong-zero"),
        pytest.param("e28261", "\ufffda", id="cut-off"),
        pytest.param("e282", "\ufffd", id="cut-off-at-the-end"),
        pytest.param("eda080", "\ufffd", id="a-surrogate"),
        pytest.param("eda08061", "\ufffda", id="a-surrogate-and-more"),
        pytest.param("eda0ff", "\ufffd\ufffd", id="a-surrogate-cut-off"),
        pytest.param("edbf", "\ufffd", id="a-surrogate-cut-off-at-the-end"),
        pytest.param("eda080edb080", "\ufffd\ufffd", id="a-pair-of-surrogates"),
        pytest.param("f4908080", "\ufffd" * 4, id="beyond-unicode"),
        pytest.param("c3a9ff", "é\ufffd", id="behind-what-is-good"),
    ],
)
def test_replaced_as_java_does(data: str, text: str) -> None:
    """The values are what `new String(bytes, UTF_8)` of OpenJDK 17 gives."""
    raw = bytes.fromhex(data)
    classic = struct.pack(">h", len(raw)) + raw
    assert kproto.decode(HeartbeatRequest, 0, classic + bytes(6)).group_id == text
    # A message with records is read out of a memoryview.
    produce = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="Z" * len(raw), partition_data=[])])
    frame = kproto.encode(produce, 9).replace(b"Z" * len(raw), raw)
    assert kproto.decode(ProduceRequest, 9, frame).topic_data[0].name == text
    header = struct.pack(">hhi", ApiKey.HEARTBEAT, 0, 1) + classic
    assert parse_request_header(memoryview(header)).client_id == text


def test_at_the_limit() -> None:
    third = MAX_STRING // 3
    for size, tail in ((third, b"a" * (MAX_STRING % 3)), (third + 1, b"")):
        raw = b"\xff" * size + tail
        classic = struct.pack(">h", len(raw)) + raw
        header = struct.pack(">hhi", ApiKey.HEARTBEAT, 0, 1) + classic
        if size == third:
            decoded = kproto.decode(HeartbeatRequest, 0, classic + bytes(6))
            assert len(decoded.group_id.encode()) == MAX_STRING
            kproto.encode(decoded, 0)
            assert parse_request_header(header).client_id == decoded.group_id
        else:
            with pytest.raises(DecodeError):
                kproto.decode(HeartbeatRequest, 0, classic + bytes(6))
            with pytest.raises(DecodeError):
                parse_request_header(header)


def test_a_bad_string_is_looked_at_once() -> None:
    """Not once for every byte that is bad: a frame may have hundreds of such strings."""
    names = [f"{i:04}" + "Z" * 10_000 for i in range(20)]
    data = kproto.encode(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names]), 9)
    handler = codecs.lookup_error(BAD_UTF8)
    looked_at = 0

    def counting(error: UnicodeError) -> tuple[str | bytes, int]:
        nonlocal looked_at
        looked_at += 1
        return handler(error)

    codecs.register_error(BAD_UTF8, counting)
    try:
        decoded = kproto.decode(MetadataRequest, 9, data.replace(b"Z", b"\xff"))
    finally:
        codecs.register_error(BAD_UTF8, handler)
    assert [topic.name for topic in decoded.topics or ()] == [name.replace("Z", "\ufffd") for name in names]
    assert looked_at == len(names)

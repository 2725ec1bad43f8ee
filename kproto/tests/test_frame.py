"""Frames and headers: the ordinary ones, the exceptions, and what a hostile peer sends."""

import random
import struct

import pytest

from barnabas import kproto
from barnabas.kproto import ApiKey, DecodeError, EncodeError
from barnabas.kproto.frame import (
    FrameSplitter,
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_frame,
    response_frame,
)
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ControlledShutdownRequest,
    FetchRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetDeleteRequest,
    SaslHandshakeRequest,
)
from barnabas.kproto.stored import EndTxnMarker
from barnabas.kproto.tests.kafka_python import their_classes, to_theirs
from barnabas.kproto.tests.randoms import random_message


def header(data: str) -> RequestHeader:
    return parse_request_header(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param("000c 0000 00000007 0003 616263", (12, 0, 7, "abc", 13), id="v1"),
        pytest.param("000c 0000 00000007 ffff", (12, 0, 7, None, 10), id="null-client-id"),
        pytest.param("000c 0000 00000007 0000", (12, 0, 7, "", 10), id="empty-client-id"),
        pytest.param("000c 0004 00000007 0003 616263 00", (12, 4, 7, "abc", 14), id="v2-client-id-is-not-compact"),
        pytest.param("000c 0004 ffffffff ffff 00", (12, 4, -1, None, 11), id="v2-null-client-id"),
        pytest.param("000c 0004 00000007 0001 61 01 05 02 abcd", (12, 4, 7, "a", 16), id="v2-tags-skipped"),
        pytest.param("0007 0000 00000001", (7, 0, 1, None, 8), id="controlled-shutdown-0"),
        pytest.param("0007 0001 00000001 0001 62", (7, 1, 1, "b", 11), id="controlled-shutdown-1"),
        pytest.param("0012 0064 00000001 0001 62 00", (18, 100, 1, "b", 12), id="api-versions-of-the-future"),
        pytest.param("0012 8000 00000001 0001 62", (18, -32768, 1, "b", 11), id="negative-version"),
        pytest.param("7fff 0064 00000001 0001 62", (32767, 100, 1, "b", 11), id="unknown-key"),
        pytest.param("ffff 0000 00000001 0001 62", (-1, 0, 1, "b", 11), id="negative-key"),
        pytest.param("0011 0063 00000001 0001 62", (17, 99, 1, "b", 11), id="never-flexible"),
        pytest.param("000c 0000 00000007 0001 ff", (12, 0, 7, "\ufffd", 11), id="client-id-not-utf8"),
    ],
)
def test_request_headers(data: str, expected: tuple[int, int, int, str | None, int]) -> None:
    assert header(data) == expected
    raw = bytes.fromhex(data)
    shifted = parse_request_header(memoryview(b"\xff" * 5 + raw), 5)
    assert shifted == (*expected[:4], expected[4] + 5)
    # Every prefix that cuts the header is refused.
    for length in range(len(raw)):
        with pytest.raises(DecodeError):
            parse_request_header(raw[:length])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("000c 0000 00000007 7fff 616263", id="client-id-beyond-the-frame"),
        pytest.param("000c 0004 00000007 ffff 01 05 ffffffff0f", id="tag-beyond-the-frame"),
        pytest.param("000c 0004 00000007 ffff ffffffff0f", id="billions-of-tags"),
        pytest.param("000c 0004 00000007 ffff 808080808080", id="endless-varint"),
    ],
)
def test_malformed_request_headers(data: str) -> None:
    with pytest.raises(DecodeError):
        header(data)


def test_any_bytes_give_a_header_or_decode_error() -> None:
    rng = random.Random(20)
    parsed = 0
    for _ in range(20_000):
        data = struct.pack(">hh", rng.choice([0, 7, 12, 18, 99]), rng.randint(-1, 12)) + rng.randbytes(
            rng.randint(0, 20)
        )
        try:
            assert parse_request_header(data).body_offset <= len(data)
            parsed += 1
        except DecodeError:
            pass
    assert parsed > 100


def test_request_frames_are_those_of_kafka_python() -> None:
    for cls, version in ((HeartbeatRequest, 3), (HeartbeatRequest, 4), (FetchRequest, 11), (FetchRequest, 12)):
        message = random_message(random.Random(f"{cls.__name__} {version}"), cls, version)
        theirs = to_theirs(message, their_classes()[cls.__name__], version)
        theirs.with_header(correlation_id=77, client_id="me")
        frame = request_frame(version, 77, "me", message)
        assert frame == theirs.encode(version=version, header=True, framed=True)
        parsed = parse_request_header(frame, 4)
        assert parsed[:4] == (cls.__description__.api_key, version, 77, "me")
        assert kproto.decode(cls, version, frame, parsed.body_offset) == message


def test_request_frames_with_the_other_headers() -> None:
    assert request_frame(0, 1, "ignored", ControlledShutdownRequest(broker_id=3)).hex(" ", 4) == (
        "0000000c 00070000 00000001 00000003"
    )
    assert request_frame(0, 1, None, SaslHandshakeRequest(mechanism="PLAIN")).hex() == (
        "00000011" + "0011000000000001" + "ffff" + "0005504c41494e"
    )
    with pytest.raises(EncodeError, match="no request"):
        request_frame(0, 1, None, EndTxnMarker())


def test_response_headers() -> None:
    body = [b"body"]
    assert response_frame(ApiKey.HEARTBEAT, 3, 9, body) == [bytes.fromhex("00000008 00000009") + b"body"]
    assert response_frame(ApiKey.HEARTBEAT, 4, 9, body) == [bytes.fromhex("00000009 00000009 00") + b"body"]
    # However new the version: a client that asked too much must be able to read the answer.
    for version in (0, 3, 4, 99):
        assert response_frame(ApiKey.API_VERSIONS, version, 9, body) == [bytes.fromhex("00000008 00000009") + b"body"]
    assert response_frame(ApiKey.OFFSET_DELETE, 0, 9, []) == [bytes.fromhex("00000004 00000009")]


def test_response_headers_come_back() -> None:
    for api_key in ApiKey:
        first, last = kproto.schema_versions(api_key)
        for version in range(first, last + 1):
            response = kproto.response_class(api_key)()
            parts = response_frame(api_key, version, -5, kproto.encoder(type(response), version)(response))
            frame = b"".join(parts)  # type: ignore[arg-type]
            assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
            correlation_id, body = parse_response_header(api_key, version, frame, 4)
            assert correlation_id == -5
            assert kproto.decoder(type(response), version)(frame, body) == (response, len(frame))
            with pytest.raises(DecodeError):
                parse_response_header(api_key, version, frame[: body - 1], 4)


def test_api_versions_answer_to_an_unknown_version() -> None:
    """Golden bytes: error 35 in the format of version 0, with the one range the client needs to try again."""
    only = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)
    response = ApiVersionsResponse(error_code=35, api_keys=[only])
    (frame,) = response_frame(ApiKey.API_VERSIONS, 99, 0x11223344, kproto.encoder(ApiVersionsResponse, 0)(response))
    assert frame == bytes.fromhex("00000010 11223344 0023 00000001 0012 0000 0004")


class Slice:
    def __len__(self) -> int:
        return 1000


def test_response_frame_keeps_large_and_foreign_parts() -> None:
    foreign, large = Slice(), bytes(100_000)
    assert response_frame(ApiKey.FETCH, 4, 1, [b"head", foreign, b"tail"]) == [
        struct.pack(">ii", 4 + 4 + 1000 + 4, 1) + b"head",
        foreign,
        b"tail",
    ]
    parts = response_frame(ApiKey.FETCH, 4, 1, [large])
    assert len(parts) == 2
    assert parts[1] is large


def test_splitter_at_every_cut() -> None:
    rng = random.Random(5)
    frames = [rng.randbytes(rng.choice([1, 2, 3, 4, 5, 100, 5000])) for _ in range(50)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    for step in (1, 2, 3, 5, 7, 1000, len(stream)):
        splitter = FrameSplitter(max_bytes=5000)
        found = []
        for start in range(0, len(stream), step):
            found += splitter.feed(stream[start : start + step])
        assert found == frames
        assert splitter.pending_bytes == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 101, 2**31 - 1, int.from_bytes(b"GET ", "big")])
def test_splitter_refuses_a_length_before_it_keeps_anything(size: int) -> None:
    splitter = FrameSplitter(max_bytes=100)
    assert list(splitter.feed(struct.pack(">i", 100) + bytes(100))) == [bytes(100)]
    with pytest.raises(DecodeError, match=str(size)):
        list(splitter.feed(struct.pack(">i", size)))


def test_splitter_tells_a_cut_stream() -> None:
    splitter = FrameSplitter(max_bytes=100)
    assert list(splitter.feed(b"\x00\x00\x00\x05abc")) == []
    assert splitter.pending_bytes == 7


def test_heartbeat_by_hand() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (
        request_frame(0, 2, "c", request).hex()
        == "00000015" + "000c000000000002000163" + "000167" + "00000001" + "00016d"
    )
    response = HeartbeatResponse(error_code=27)
    assert kproto.encode(response, 4).hex() == "00000000" + "001b" + "00"
    assert kproto.encode(ApiVersionsRequest(), 0) == b""
    assert kproto.decode(OffsetDeleteRequest, 0, bytes.fromhex("000167 00000000")).group_id == "g"

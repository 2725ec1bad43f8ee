"""Codecs: what is written is read again, for every message in every version, and what does not fit is refused."""

import copy
import random
import struct
import traceback

import pytest

from barnabas import kproto
from barnabas.kproto import DecodeError, EncodeError
from barnabas.kproto.classes import Message
from barnabas.kproto.codec.compile import source
from barnabas.kproto.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
    UpdateFeaturesRequest,
)
from barnabas.kproto.tests.randoms import every_message, random_message

EVERY = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in every_message()]


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_default_and_random_values_come_back(cls: type[Message], version: int) -> None:
    assert kproto.decode(cls, version, kproto.encode(cls(), version)) == cls()
    for seed in range(6):
        rng = random.Random(f"{cls.__name__} {version} {seed}")
        message = random_message(rng, cls, version, unknown_tags=seed % 2 == 1)
        data = kproto.encode(message, version)
        # Not at offset 0 and with bytes behind: a decoder must mind neither.
        for buf in (b"\xff\xff\xff" + data + b"trailer", bytearray(b"abc" + data), memoryview(b"\x00\x00\x00" + data)):
            again, end = kproto.decoder(cls, version)(buf, 3)
            assert again == message, f"seed {seed}"
            assert end == 3 + len(data), f"seed {seed}"
        assert kproto.encode(again, version) == data, f"seed {seed}"


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_ignorable_fields_a_version_lacks_are_dropped(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version} absent")
    message = random_message(rng, cls, version, absent=True)
    data = kproto.encode(message, version)
    assert kproto.encode(kproto.decode(cls, version, data), version) == data


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_a_field_that_a_version_lacks_and_that_matters_is_refused(cls: type[Message], version: int) -> None:
    struct_ = cls.__description__.struct
    absent = [field for field in struct_.fields if not field.versions.has(version) and not field.ignorable]
    for field in absent:
        at = field.versions.first
        rng = random.Random(f"{cls.__name__} {field.name}")
        default = getattr(cls(), field.name)
        value = default
        while value == default:
            value = getattr(random_message(rng, cls, at), field.name)
        with pytest.raises(EncodeError, match=field.name):
            kproto.encode(cls(**{field.name: value}), version)
    assert all(not field.versions.has(version) for field in absent)


def test_nested_absent_field_is_refused() -> None:
    member = LeaveGroupRequest.MemberIdentity(member_id="m", reason="why")
    kproto.encode(LeaveGroupRequest(group_id="g", members=[member]), 5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(topic_id=b"t" * 16)
    kproto.encode(OffsetCommitRequest(topics=[topic]), 10)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="f", allow_downgrade=True)
    with pytest.raises(EncodeError, match="allow_downgrade"):
        kproto.encode(UpdateFeaturesRequest(feature_updates=[update]), 1)


def test_version_out_of_range() -> None:
    for version in (-1, 5, 32767):
        with pytest.raises(ValueError, match="versions 0 to 4"):
            kproto.decoder(HeartbeatRequest, version)
        with pytest.raises(ValueError, match="versions 0 to 4"):
            kproto.encoder(HeartbeatRequest, version)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (HeartbeatRequest(generation_id=2**31), 0),
        (HeartbeatRequest(generation_id="1"), 0),  # type: ignore[arg-type]
        (HeartbeatRequest(generation_id=1.5), 0),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=None), 0),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=b"bytes"), 0),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="x" * 32768), 0),
        (HeartbeatRequest(group_id="x" * 32768), 4),
        (HeartbeatRequest(group_id="é" * 16384), 4),
        (HeartbeatRequest(group_id="\ud800"), 4),
        (LeaveGroupRequest(members=None), 3),  # type: ignore[arg-type]
        (LeaveGroupRequest(members=["m"]), 3),  # type: ignore[list-item]
        (MetadataRequest(topics=None), 0),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t", topic_id=b"short")]), 10),
        (JoinGroupRequest(protocols=[JoinGroupRequest.JoinGroupRequestProtocol(metadata="text")]), 0),  # type: ignore[arg-type]
        (HeartbeatRequest(unknown_tags={7: b"x"}), 3),
        (FetchRequest(cluster_id="c", unknown_tags={0: b"x"}), 12),
    ],
)
def test_values_that_do_not_fit(message: Message, version: int) -> None:
    with pytest.raises(EncodeError):
        kproto.encode(message, version)


def test_longest_string() -> None:
    for version in (3, 4):
        message = HeartbeatRequest(group_id="x" * 32767)
        assert kproto.decode(HeartbeatRequest, version, kproto.encode(message, version)) == message


def test_null_where_allowed() -> None:
    message = MetadataRequest(topics=None)
    assert kproto.encode(message, 1) == b"\xff\xff\xff\xff"
    assert kproto.decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    # Any negative count is null to Apache Kafka.
    assert kproto.decode(MetadataRequest, 1, b"\x80\x00\x00\x00").topics is None
    with pytest.raises(DecodeError, match="null"):
        kproto.decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(DecodeError, match="null"):
        kproto.decode(HeartbeatRequest, 0, b"\xff\xff\x00\x00\x00\x00\x00\x00")


def test_text_that_is_not_utf8_is_replaced() -> None:
    data = struct.pack(">h3sih1s", 3, b"a\xffb", 7, 1, b"m")
    assert kproto.decode(HeartbeatRequest, 0, data).group_id == "a\N{REPLACEMENT CHARACTER}b"


def test_unknown_tags_are_kept_and_sorted() -> None:
    message = HeartbeatRequest(group_id="g", member_id="m", unknown_tags={300: b"b", 2: b"a"})
    data = kproto.encode(message, 4)
    assert data.endswith(b"\x02" + b"\x02\x01a" + b"\xac\x02\x01b")
    assert kproto.decode(HeartbeatRequest, 4, data).unknown_tags == {2: b"a", 300: b"b"}


def test_tagged_field_of_the_wrong_length() -> None:
    good = kproto.encode(FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), 15)
    assert good.endswith(b"\x01\x01\x0d" + struct.pack(">iqx", 1, -1))
    kproto.decode(FetchRequest, 15, good)
    with pytest.raises(DecodeError, match="tag"):
        kproto.decode(FetchRequest, 15, good[:-14] + b"\x0e" + good[-13:] + b"\x00")


def test_records_are_not_copied() -> None:
    batch = b"r" * 100_000
    partition = ProduceRequest.PartitionProduceData(records=batch)
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])
    frame = bytearray(kproto.encode(request, 9))
    decoded = kproto.decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded == batch
    # A view over the frame, through which the log writes offsets in place.
    decoded[0] = ord("R")
    assert bytes(frame).count(b"R") == 1


class FileSlice:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("version", [4, 12, 18])
def test_records_that_are_no_bytes_are_passed_through(version: int) -> None:
    slices = [FileSlice(1), FileSlice(5000), FileSlice(0)]
    partitions = [FetchResponse.PartitionData(partition_index=n, records=part) for n, part in enumerate(slices)]
    topic = FetchResponse.FetchableTopicResponse(topic="t" if version < 13 else "", partitions=partitions)
    parts = kproto.encoder(FetchResponse, version)(FetchResponse(responses=[topic]))
    assert [part for part in parts if isinstance(part, FileSlice)] == slices
    data = b"".join(bytes(len(part)) if isinstance(part, FileSlice) else bytes(part) for part in parts)  # type: ignore[arg-type]
    decoded = kproto.decode(FetchResponse, version, data).responses[0].partitions
    assert [len(partition.records or b"") for partition in decoded] == [1, 5000, 0]
    with pytest.raises(EncodeError, match="no bytes"):
        kproto.encode(FetchResponse(responses=[topic]), version)


def test_large_bytes_are_a_part_of_their_own() -> None:
    large, small = b"l" * 100_000, b"s" * 100
    partitions = [FetchResponse.PartitionData(records=large), FetchResponse.PartitionData(records=small)]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=partitions)])
    parts = kproto.encoder(FetchResponse, 13)(response)
    assert any(part is large for part in parts)
    assert len(parts) == 3
    assert kproto.decode(FetchResponse, 13, kproto.encode(response, 13)) == response


def test_arrays_are_fresh_and_shared_defaults_closed() -> None:
    one, two = FetchResponse.PartitionData(), FetchResponse.PartitionData()
    assert FetchResponse().responses is not FetchResponse().responses
    assert one.current_leader is two.current_leader
    with pytest.raises(AttributeError, match=r"FetchResponse\.LeaderIdAndEpoch"):
        one.current_leader.leader_id = 3
    own = copy.copy(one.current_leader)
    own.leader_id = 3
    two.current_leader = own
    assert one != two
    assert copy.deepcopy(two) == two
    two.current_leader = FetchResponse.LeaderIdAndEpoch()
    assert one == two
    assert kproto.encode(FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[one])]), 12) == (
        kproto.encode(FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[two])]), 12)
    )


def test_equality_and_repr() -> None:
    member = LeaveGroupRequest.MemberIdentity(member_id="m")
    assert member == LeaveGroupRequest.MemberIdentity(member_id="m")
    assert member != LeaveGroupRequest.MemberIdentity(member_id="n")
    assert member != "m"
    assert repr(member) == "MemberIdentity(member_id='m', group_instance_id=None, reason=None)"
    assert repr(LeaveGroupRequest(group_id="g", members=[member])).startswith("LeaveGroupRequest(group_id='g', ")
    assert LeaveGroupRequest.MemberIdentity.__qualname__ == "LeaveGroupRequest.MemberIdentity"
    with pytest.raises(TypeError):
        hash(member)
    with pytest.raises(AttributeError):
        member.membre_id = "typo"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        LeaveGroupRequest.MemberIdentity(membre_id="typo")  # type: ignore[call-arg]


def test_codecs_are_made_once_and_show_in_tracebacks() -> None:
    assert kproto.decoder(HeartbeatRequest, 2) is kproto.decoder(HeartbeatRequest, 2)
    try:
        kproto.decode(HeartbeatRequest, 2, b"\x00")
    except DecodeError:
        text = traceback.format_exc()
    assert "buf, o)" in text
    assert "def decode(buf, o, room=" in source(HeartbeatRequest, 2, "decode")


def test_neighbours_of_fixed_width_share_one_call() -> None:
    text = source(FetchRequest, 12, "decode")
    assert text.count("S1_iiqiqiB(buf, o)") == 1


def test_unknown_names() -> None:
    import barnabas.kproto.messages

    for name in ("NoSuchRequest", "Heartbeat", "heartbeatRequest", "VoteRequest"):
        with pytest.raises(AttributeError):
            getattr(barnabas.kproto.messages, name)
    with pytest.raises(ValueError):
        kproto.request_class(52)
    assert kproto.request_class(12) is HeartbeatRequest
    assert kproto.response_class(12).__name__ == "HeartbeatResponse"
    assert kproto.schema_versions(0) == (0, 13)
    assert kproto.flexible_from(0) == 9
    assert kproto.flexible_from(17) is None

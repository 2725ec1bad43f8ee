"""XXH3 against its reference implementation, and the hash of topics against Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from barnabas.coordinator import Topic, Topics
from barnabas.coordinator.group.topics import group_hash, topic_hash
from barnabas.coordinator.group.xxh3 import xxh3_64

REFERENCE = {
    0: 0x2D06800538D394C2, 1: 0xC44BDFF4074EECDB, 3: 0x5F4299FC161C9CBB, 4: 0x60DAB036A58211F2, 8: 0x3A1C2D7C85AF88F8,
    9: 0xE9612598145BB9DC, 16: 0x8355E3A6F61770DB, 17: 0x9EF341A99DE37328, 64: 0x6187EB9089B0ED55,
    65: 0x6928C76CE90422D0, 128: 0x85C6174C7FF4C46B, 129: 0xEC7642B431BA3E5A, 240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02, 1024: 0xE5D78BAFA45B2AA5, 1025: 0xE95C42288F28186E, 3000: 0x1B846747012C24AA,
}  # fmt: skip
"""Of the bytes i mod 251, by length: from xxHash 0.8."""


@pytest.mark.parametrize("length", REFERENCE)
def test_xxh3(length: int) -> None:
    assert xxh3_64(bytes(i % 251 for i in range(length))) == REFERENCE[length]


def test_topics_are_looked_at_as_apache_kafka_does() -> None:
    topic_id = bytes.fromhex("c693d31ee71b449a929c3deb7e4546bd")
    plain = Topic("A", topic_id, 3)
    assert group_hash({"A": topic_hash(plain)}) == 699236304751139011
    with_racks = Topic("racked", bytes.fromhex("8045c3e3587c4a97aac10b89397a9feb"), 2, (("rack-1",), ("rack-1",)))
    assert group_hash({"racked": topic_hash(with_racks)}) == 3901992493622252448


def test_any_difference_shows() -> None:
    topic = Topic("t", bytes(16), 2, (("a",), ("b", "a")))
    others = [
        topic._replace(name="u"),
        topic._replace(topic_id=bytes(15) + b"\1"),
        topic._replace(partition_count=3),
        topic._replace(racks=()),
        topic._replace(racks=(("b",), ("a", "b"))),
    ]
    assert len({topic_hash(each) for each in [topic, *others]}) == 6
    assert topic_hash(topic) == topic_hash(topic._replace(racks=(("a",), ("a", "b"))))
    assert group_hash({}) == 0


def test_a_picture_makes_the_next() -> None:
    first = Topics(1, {"t": Topic("t", b"t" * 16, 2), "u": Topic("u", b"u" * 16, 1)})
    second = first.with_changes(2, {"t": None, "v": Topic("v", b"v" * 16, 3)})
    assert (second.version, sorted(second.by_name), second.by_id[b"v" * 16].name) == (2, ["u", "v"], "v")
    assert second.ids(["t", "u"]) == {b"u" * 16}
    assert sorted(first.by_name) == ["t", "u"]

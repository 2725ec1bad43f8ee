"""Whole requests: which API and version, who asks, what is wrong with it.

    grammar = Grammar(random.Random(7), Pools(), served={0: (0, 13), ...})
    request = grammar.request(correlation_id=5)     # request.frame, request.key, request.is_clean, ...

`is_clean` says that the frame is well-formed, of a version that the broker advertises and within every limit, so an
answer is owed, and a closed connection is a finding.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey, schema_versions
from barnabas.kproto.frame import request_header_version
from compat_tests.fuzz import values
from compat_tests.fuzz.batches import Batches
from compat_tests.fuzz.damage import damaged_frame
from compat_tests.fuzz.pools import FIXED_TOPICS, INTERNAL_TOPICS, Member, Pools, Producer, Sent
from compat_tests.fuzz.schema_writer import LIES, Form, Shape, Writer, form

CLIENT_IDS = (None, b"", b"client", b"client", b"client", b"__admin_client", "ß".encode() * 100)
LONG_CLIENT_IDS = (b"x" * 32_767, b"\xff" * 30_000, "€".encode() * 10_000)
BETWEEN_BROKERS = frozenset(
    map(
        int,
        (
            ApiKey.LEADER_AND_ISR,
            ApiKey.STOP_REPLICA,
            ApiKey.UPDATE_METADATA,
            ApiKey.CONTROLLED_SHUTDOWN,
            ApiKey.ALTER_PARTITION,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.WRITE_TXN_MARKERS,
        ),
    )
)
"""Who may send these may take a cluster apart, with Apache Kafka as well: they are only sent to a broker alone."""
WAITING = frozenset(
    map(
        int,
        (
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_RECORDS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.UPDATE_FEATURES,
        ),
    )
)
"""An answer to one of these may take as long as the request says."""


UNREADABLE_ZEROS = frozenset(map(int, (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)))
"""A zero where an ACL has a number cannot be read."""


class Request(NamedTuple):
    frame: bytes
    key: int
    version: int
    is_clean: bool
    is_damaged: bool
    is_answered: bool
    sent: Sent

    def __str__(self) -> str:
        return f"{api_name(self.key)} v{self.version}"


class Limits(NamedTuple):
    """How far the grammar goes."""

    odd_texts: bool = True
    """Strings that are no UTF-8, strings of 32 kB, long client ids."""
    huge_bytes: int = 200_000
    """How large the arrays become that are made of one element again and again; 0: there are none."""
    lies: bool = True
    damage: float = 0.12
    unserved: float = 0.01


class Grammar:
    """Makes requests from a seed; see the module."""

    def __init__(
        self,
        rng: random.Random,
        pools: Pools,
        served: Mapping[int, tuple[int, int]],
        limits: Limits | None = None,
        left_out: Iterable[int] = (),
    ) -> None:
        self.rng = rng
        self.pools = pools
        self.batches = Batches(rng)
        self.limits = limits if limits is not None else Limits()
        self.served = {key: within for key, versions in served.items() if (within := _known(key, versions)) is not None}
        self._keys = sorted(self.served.keys() - set(left_out))
        # What carries most of what can go wrong is sent more often.
        self._keys += [key for key in _OFTEN if key in self.served]
        self._writer = Writer(self)
        self.lie_rate = 0.0
        self.key = self.version = 0
        self.member: Member = pools.members.all[0]
        self.producer: Producer = pools.producers.all[0]
        self.topic = b"t0"
        self.resource = values.TOPIC
        self.setting: tuple[str, str] | None = None
        self.session = (0, -1)
        self.acks = 1
        self.lone = False
        self._odd = False
        self._plausible = 1.0
        self._odd_rate = 0.0
        self._huge = self.room = 0
        self.chance = rng.random

    # -- one request -----------------------------------------------------------------------------------------------

    def request(self, correlation_id: int, *, lone: bool = False) -> Request:
        """`lone`: nothing is in front of it on its connection or comes behind it."""
        rng = self.rng
        self.lone = lone
        if rng.random() < self.limits.unserved:
            return self._unserved(correlation_id)
        key = rng.choice(self._keys)
        return self.request_of(key, rng.randint(*self.served[key]), correlation_id, lone=lone)

    def request_of(self, key: int, version: int, correlation_id: int, *, lone: bool = False) -> Request:
        """One of an API and version."""
        rng, limits, pools = self.rng, self.limits, self.pools
        self.lone = lone
        self.key, self.version = key, version
        self.member = rng.choice(pools.members.all)
        self.producer = rng.choice(pools.producers.all)
        self.session = (
            rng.choice(pools.sessions.all) if rng.random() < 0.9 else (rng.choice((1, -1)), rng.choice((0, 5)))
        )
        self.topic = rng.choice(pools.topics.all).encode()
        if rng.random() < 0.05 and key not in values.DELETING:
            self.topic = rng.choice(INTERNAL_TOPICS).encode()
        self.acks, self._odd = 1, False
        # A kind of mood: sensible, with something strange in it, or wild.
        mood = rng.random()
        self._plausible = 0.97 if mood < 0.6 else 0.85 if mood < 0.9 else 0.3
        self._odd_rate = 0.0 if mood < 0.5 or not limits.odd_texts else 0.03 if mood < 0.9 else 0.1
        self.lie_rate = 0.02 if limits.lies and mood > 0.93 else 0.0
        self._huge = 0
        self.room = 20_000
        if limits.huge_bytes and rng.random() < 0.004:
            self._huge = rng.choice((limits.huge_bytes // 10, limits.huge_bytes // 10, limits.huge_bytes))
            self.room = self._huge
        shape = form(key, version)
        body = self._writer.body(shape)
        client_id = rng.choice(CLIENT_IDS)
        if limits.odd_texts and rng.random() < 0.01:
            client_id = rng.choice(LONG_CLIENT_IDS)
            self._odd = True
        frame = framed(key, version, correlation_id, client_id, body, self._header_tags(key, version))
        # After a wrong length nobody knows what is read, acks=0 perhaps, which is not answered.
        damage = self._writer.lied
        if rng.random() < limits.damage:
            damage = True
            frame = damaged_frame(rng, frame)
        clean = not (damage or self._odd or self._huge)
        answered = not (key == ApiKey.PRODUCE and self.acks == 0)
        return Request(frame, key, version, clean, damage, answered, self._sent())

    def _sent(self) -> Sent:
        return Sent(self.member.group, self.member.instance, self.producer.transactional_id)

    def _header_tags(self, key: int, version: int) -> bytes:
        if request_header_version(key, version) < 2:
            return b""
        if self.rng.random() < 0.98:
            return b"\0"
        size = self.rng.choice((0, 1, 100, 120))
        return b"\x01\x4d" + bytes((size,)) + bytes(size)

    def _unserved(self, correlation_id: int) -> Request:
        rng = self.rng
        key = rng.choice((*map(int, ApiKey), -1, 999, 32_767))
        if key in self.served and rng.random() < 0.8:
            first, last = self.served[key]
            version = rng.choice((first - 1, last + 1, -1, 32_767))
        else:
            version = rng.choice((0, 1, -1, 32_767))
        frame = framed(key, version, correlation_id, b"client", rng.randbytes(rng.choice((0, 10, 100))), b"\0")
        return Request(frame, key, version, False, True, True, Sent())

    # -- a chooser for the writer ------------------------------------------------------------------------------------

    def value(self, shape: Shape) -> Any:
        value = self._value(shape)
        if shape.type == "i8" and value & 0xFF == 0 and self.key in UNREADABLE_ZEROS:
            if not self._odd_rate:
                return 1
            self._odd = True
        return value

    def _value(self, shape: Shape) -> Any:
        rng = self.rng
        maker = values.MAKERS.get(shape.name)
        if maker is None or rng.random() >= self._plausible:
            if shape.type == "str":
                return self._text(shape)
            if shape.type == "records":
                return values.records(self, shape)
            if shape.name == "acks":
                return values.acks(self, shape)
            return values.anything(self, shape)
        if self._odd_rate and shape.type == "str" and rng.random() < self._odd_rate:
            return self._text(shape)
        found = maker(self, shape)
        # A name means the same wherever it is served; elsewhere it may be of another type.
        return found if values.fits(shape.type, found) else values.anything(self, shape)

    def _text(self, shape: Shape) -> bytes | None:
        rng = self.rng
        if not self._odd_rate or rng.random() < 0.5:
            return rng.choice((b"", b"x", b"client", None))
        self._odd = True
        if rng.random() < 0.02:
            return values.grown(rng, rng.choice(values.TOO_LONG))
        return values.text(self, shape)

    def count(self, shape: Shape, depth: int) -> tuple[int, int]:
        rng = self.rng
        if self._huge and rng.random() < (0.6 if depth == 0 else 0.3):
            # Elements are some bytes each; one level may be huge, not two.
            times, self._huge = self._huge // (4 if shape.inner is not None else 2), 0
            self._odd = True
            return 1, times
        dice = rng.random()
        if dice < 0.05:
            return 1, rng.choice((2, 2, 3, 16, 17, 126, 127, 128)) if depth < 2 else 2
        if dice < 0.1:
            return 0, 1
        return rng.choice((1, 1, 1, 2, 3)), 1

    def is_null(self, shape: Shape) -> bool:
        return self.rng.random() < 0.15

    def has_tag(self, shape: Shape) -> bool:
        return self.rng.random() < 0.3

    def unknown_tags(self) -> list[tuple[int, bytes]]:
        rng = self.rng
        if rng.random() < 0.97:
            return []
        # Small ones may be tags that the schema knows, and then the bytes are nonsense.
        self._odd = self._odd or self._odd_rate > 0
        tags = rng.sample((0, 1, 5, 100, 1000) if self._odd else (100, 1000, 100_000, 2**31 - 1), rng.randint(1, 3))
        return [(tag, rng.randbytes(rng.choice((0, 1, 5, 200)))) for tag in tags]

    def lie(self, length: int) -> int:
        return self.rng.choice((length + 1, length - 1, *LIES))


_OFTEN = tuple(
    map(
        int,
        (
            ApiKey.PRODUCE,
            ApiKey.PRODUCE,
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
            ApiKey.OFFSET_COMMIT,
        ),
    )
)


def _known(key: int, versions: tuple[int, int]) -> tuple[int, int] | None:
    """The versions that the peer serves and the schemas know."""
    if key not in set(map(int, ApiKey)):
        return None
    known = schema_versions(key)
    first, last = max(known[0], versions[0]), min(known[1], versions[1])
    return (first, last) if first <= last else None


def framed(
    key: int, version: int, correlation_id: int, client_id: bytes | None, body: bytes | bytearray, tags: bytes = b""
) -> bytes:
    """Length, header and body; `tags` is what a header of the second form ends with."""
    head = struct.pack(">hhi", key, version, correlation_id)
    if not (key == ApiKey.CONTROLLED_SHUTDOWN and version == 0):
        head += b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    head += tags
    return struct.pack(">i", len(head) + len(body)) + head + body


def api_name(key: int) -> str:
    """`FETCH`, or the number of an API that nobody knows."""
    try:
        return ApiKey(key).name
    except ValueError:
        return f"API {key}"


__all__ = ["BETWEEN_BROKERS", "FIXED_TOPICS", "WAITING", "Form", "Grammar", "Limits", "Request", "api_name", "framed"]

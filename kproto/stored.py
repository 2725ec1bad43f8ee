"""Layouts that live inside logs and inside other messages' bytes fields: coordinator records, control records, the
consumer protocol.

Each is an int16 version and a body. In the keys of `__consumer_offsets` that number says which kind of record it is
(OffsetCommitKey 0 and 1, GroupMetadataKey 2, KIP-848 from 3 on, share groups 10 to 15, streams groups 17 and 19 to 23),
and so it is in `__share_group_state`: it is the "version" of those classes. Classes are made on first use as in
`barnabas.kproto.messages`.
"""

import re
from enum import IntEnum
from functools import cache
from struct import Struct
from typing import TypeVar

from barnabas.kproto.classes import Message, message_class
from barnabas.kproto.codec.compile import decoder, encode
from barnabas.kproto.errors import DecodeError
from barnabas.kproto.notation import SCHEMA_DIR, parse
from barnabas.kproto.primitives import Buffer

__all__ = ["ControlRecordType", "decode_versioned", "encode_versioned"]

M = TypeVar("M", bound=Message)
VERSION = Struct(">h")


class ControlRecordType(IntEnum):
    """The second int16 of a control record's key (the first is its version, 0)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_versioned(message: Message, version: int) -> bytes:
    """int16 version, then the body. EncodeError as in `barnabas.kproto.encode`."""
    return VERSION.pack(version) + encode(message, version)


def decode_versioned(cls: type[M], data: Buffer) -> tuple[int, M]:
    """(version, message). DecodeError if the data is no `cls`, a version unknown here included: a record of a newer
    release must not be half read.
    """
    if len(data) < 2:
        raise DecodeError(f"{cls.__name__}: {len(data)} bytes hold no version")
    (version,) = VERSION.unpack_from(data)
    first, last = cls.__description__.versions
    if not first <= version <= last:
        raise DecodeError(f"{cls.__name__} has versions {first} to {last}, not {version}")
    return version, decoder(cls, version)(data, 2)[0]


@cache
def _classes(stem: str) -> dict[str, type[Message]]:
    path = SCHEMA_DIR / "stored" / f"{stem}.rec"
    if not path.exists():
        return {}
    found = {description.name: message_class(description, __name__) for description in parse(path)}
    globals().update(found)
    return found


def __getattr__(name: str) -> type[Message]:
    if re.fullmatch(r"[A-Z][A-Za-z0-9]+", name):
        # A key and its value share a file.
        stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"(Key|Value)$", "", name)).lower()
        cls = _classes(stem).get(name)
        if cls is not None:
            return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

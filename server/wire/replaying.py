"""A recorded request made valid for another broker, and the answers of both compared; without IO.

A broker gives out ids and epochs, and another one gives out others. What it gives out in an answer takes the place of
what the recorded one gave, in all requests that follow: topic ids, member ids, generations and member epochs, producer
ids and epochs (in batches too, with their CRC), fetch sessions, client instances and their subscriptions. An epoch is
told by the id that stands beside it.

What cannot be known stays as it was, and is said (`Prepared.as_recorded`): leader epochs, which the other broker may
not have reached; offsets; log-ins, which are left out; ids that no recorded answer has given.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.kproto import (
    ZERO_UUID,
    ApiKey,
    DecodeError,
    EncodeError,
    ErrorCode,
    Message,
    Record,
    decoder,
    encoder,
    request_class,
    response_class,
    schema_versions,
)
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.frame import LENGTH, parse_request_header, parse_response_header
from barnabas.kproto.records import CorruptRecords, iter_headers
from barnabas.server.wire.conversation import name_of
from barnabas.server.wire.shown import error_counts

NEVER_SENT: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_KEYS: Final = frozenset(map(int, ApiKey))

IDS: Final = {
    "topic_id": "topic id",
    "topic_ids": "topic id",
    "member_id": "member id",
    "member_ids": "member id",
    "leader": "member id",
    "session_id": "fetch session",
    "producer_id": "producer id",
    "v3_and_below_producer_id": "producer id",
    "client_instance_id": "client instance id",
    "subscription_id": "telemetry subscription",
}
EPOCHS: Final = {
    "generation_id": "member_id",
    "member_epoch": "member_id",
    "generation_id_or_member_epoch": "member_id",
    "producer_epoch": "producer_id",
    "v3_and_below_producer_epoch": "v3_and_below_producer_id",
}
"""Epochs, and the field beside them whose id they belong to."""
_LEADER_EPOCHS: Final = frozenset({"current_leader_epoch", "leader_epoch", "last_fetched_epoch"})
_NOTHING: Final = {"fetch session": 0, "producer id": -1, "topic id": ZERO_UUID, "client instance id": ZERO_UUID}
"""Values that name nothing, and are what they are everywhere; of other kinds none and empty ones."""

_PRODUCER: Final = struct.Struct(">qh")
_CRC: Final = struct.Struct(">I")


class Prepared(NamedTuple):
    """A request to be sent. name: its API. replaced: how many ids of which kind were replaced. as_recorded: what was
    left as it was, though another broker may know nothing of it. answered: whether there will be an answer.
    """

    frame: bytes
    name: str
    key: int
    version: int
    correlation_id: int
    replaced: dict[str, int]
    as_recorded: list[str]
    answered: bool


class Compared(NamedTuple):
    """Two answers. differences: what differs in what matters, errors and numbers of records."""

    recorded: dict[str, Any]
    now: dict[str, Any]
    differences: list[str]


class Replaying:
    """One replay: what the other broker has given out so far."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, object], object] = {}

    # -- requests ----------------------------------------------------------------------------------------------------

    def prepare(self, frame: bytes) -> Prepared:
        """A recorded request, without its length, for the other broker. Raises DecodeError if it cannot be read."""
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        as_it_was = Prepared(frame, name_of(key), key, version, header.correlation_id, {}, [], True)
        if not _is_known(key, version):
            return as_it_was._replace(as_recorded=["this program does not know the version: nothing is replaced"])
        cls = request_class(key)
        message, end = decoder(cls, version)(frame, header.body_offset, 1 << 62)
        replaced: Counter[str] = Counter()
        kept: dict[str, None] = {}
        self._replace(message, version, replaced, kept)
        answered = not (key == ApiKey.PRODUCE and message.acks == 0)  # type: ignore[attr-defined]
        prepared = as_it_was._replace(replaced=dict(replaced), as_recorded=list(kept), answered=answered)
        if not replaced:
            return prepared
        try:
            parts = encoder(cls, version)(message)
        except EncodeError as error:
            return prepared._replace(replaced={}, as_recorded=[*kept, f"ids, as it cannot be written anew: {error}"])
        return prepared._replace(frame=b"".join([frame[: header.body_offset], *parts, frame[end:]]))  # type: ignore[list-item]

    def _replace(self, record: Record, version: int, replaced: Counter[str], kept: dict[str, None]) -> None:
        # Epochs first, by the ids as they were recorded.
        for name, beside in EPOCHS.items():
            if name in record.__fields__ and beside in record.__fields__:
                scope = (name_of_epoch(name), getattr(record, beside), getattr(record, name))
                value = self._given.get(("epoch", scope))
                if value is not None and value != getattr(record, name):
                    setattr(record, name, value)
                    replaced[name_of_epoch(name)] += 1
        for field in record.__struct__.fields:
            if not field.versions.has(version):
                continue
            value = getattr(record, field.name)
            if field.type == "records" and value is not None:
                _set(record, field.name, self._in_batches(value, replaced, kept))
            elif field.name in IDS and not isinstance(value, list):
                _set(record, field.name, self._id(IDS[field.name], value, replaced, kept))
            elif isinstance(value, Record):
                self._replace(value, version, replaced, kept)
            elif isinstance(value, list):
                if field.name in IDS and field.struct is None:
                    value[:] = [self._id(IDS[field.name], each, replaced, kept) for each in value]
                for each in value:
                    if isinstance(each, Record):
                        self._replace(each, version, replaced, kept)
            elif field.name in _LEADER_EPOCHS and isinstance(value, int) and value >= 0:
                kept["leader epochs"] = None

    def _id(self, kind: str, value: Any, replaced: Counter[str], kept: dict[str, None]) -> Any:
        if _is_nothing(kind, value) or (kind == "member id" and not isinstance(value, str)):
            return value
        given = self._given.get((kind, value))
        if given is None:
            kept[f"a {kind} that no recorded answer has given"] = None
            return value
        if given != value:
            replaced[kind] += 1
        return given

    def _in_batches(self, value: Any, replaced: Counter[str], kept: dict[str, None]) -> Any:
        """Producer ids and epochs in the headers of batches."""
        data = bytearray(value)
        changed = False
        try:
            for position, header in iter_headers(data):
                if header.producer_id < 0:
                    continue
                producer_id = self._id("producer id", header.producer_id, replaced, kept)
                scope = ("producer epoch", header.producer_id, header.producer_epoch)
                epoch = self._given.get(("epoch", scope), header.producer_epoch)
                if (producer_id, epoch) != (header.producer_id, header.producer_epoch):
                    _PRODUCER.pack_into(data, position + 43, producer_id, epoch)
                    checked = memoryview(data)[position + 21 : position + header.size]
                    _CRC.pack_into(data, position + 17, crc32c(checked))
                    changed = True
        except CorruptRecords:
            pass  # of an old format, which has none; or damaged, and so it stays
        return bytes(data) if changed else value

    # -- answers -----------------------------------------------------------------------------------------------------

    def compare(self, request: Prepared, recorded: bytes | None, now: bytes | None) -> Compared:
        """The recorded answer to a request and the present one, both without length, None where there was none. Learns
        what ids took whose place.
        """
        before, told_before = _read(request, recorded)
        after, told_now = _read(request, now)
        if before is not None and after is not None:
            self._learn(before, after, request.version)
        differences = []
        if (recorded is None) is not (now is None):
            differences.append("there was no answer then" if recorded is None else "there is no answer now")
        for what in ("errors", "records", "unreadable"):
            then, present = told_before.get(what), told_now.get(what)
            if then != present and recorded is not None and now is not None:
                differences.append(f"{what}: {_words(then)} then, {_words(present)} now")
        return Compared(told_before, told_now, differences)

    def _learn(self, before: Record, after: Record, version: int) -> None:
        for name, beside in EPOCHS.items():
            if name in before.__fields__ and beside in before.__fields__:
                scope = (name_of_epoch(name), getattr(before, beside), getattr(before, name))
                self._given["epoch", scope] = getattr(after, name)
        for field in before.__struct__.fields:
            if not field.versions.has(version):
                continue
            then, now = getattr(before, field.name), getattr(after, field.name)
            if field.name in IDS and not isinstance(then, list):
                # Of topics only by their names: others stand in any order.
                is_sure = IDS[field.name] != "topic id" or _name(before) is not None
                kind = IDS[field.name]
                if is_sure and not _is_nothing(kind, then) and not _is_nothing(kind, now):
                    self._given.setdefault((kind, then), now)
            elif isinstance(then, Record) and isinstance(now, Record):
                self._learn(then, now, version)
            elif isinstance(then, list) and isinstance(now, list):
                for one, other in _paired(then, now):
                    self._learn(one, other, version)


def _is_nothing(kind: str, value: object) -> bool:
    return value is None or value == _NOTHING.get(kind, "")


def _set(record: Record, name: str, value: Any) -> None:
    """What does not change may be shared by all."""
    if getattr(record, name) is not value:
        setattr(record, name, value)


def name_of_epoch(field: str) -> str:
    """Fields that mean the same have the same name here."""
    if "producer" in field:
        return "producer epoch"
    return "generation or member epoch"


def _paired(then: list[Any], now: list[Any]) -> Iterator[tuple[Record, Record]]:
    """The entries of two arrays that are about the same: by name if they have one, else by place."""
    named = {key: each for each in now if isinstance(each, Record) and (key := _name(each)) is not None}
    for number, each in enumerate(then):
        if not isinstance(each, Record):
            continue
        other = named.get(_name(each)) if _name(each) is not None else (now[number] if number < len(now) else None)
        if isinstance(other, Record):
            yield each, other


def _name(record: Record) -> object:
    for field in ("name", "topic", "transactional_id", "group_id"):
        if field in record.__fields__ and getattr(record, field):
            return getattr(record, field)
    return None


def _read(request: Prepared, frame: bytes | None) -> tuple[Message | None, dict[str, Any]]:
    """An answer, and what matters in it."""
    if frame is None:
        return None, {}
    told: dict[str, Any] = {"bytes": len(frame) + 4}
    if not _is_known(request.key, request.version):
        return None, told
    version = request.version
    if request.key == ApiKey.API_VERSIONS and frame[4:6] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big"):
        version = 0
    try:
        _, offset = parse_response_header(request.key, version, frame)
        message, _ = decoder(response_class(request.key), version)(frame, offset, 1 << 62)
    except DecodeError as error:
        return None, {**told, "unreadable": str(error)}
    errors = error_counts(message)
    if errors:
        told["errors"] = dict(sorted(errors.items()))
    records = sum(_record_counts(message))
    if request.key in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
        told["records"] = records
    return message, told


def _record_counts(record: Record) -> Iterator[int]:
    for field in record.__struct__.fields:
        value = getattr(record, field.name)
        if field.type == "records" and value is not None:
            try:
                yield sum(header.record_count for _, header in iter_headers(value))
            except CorruptRecords:
                pass
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Record):
                    yield from _record_counts(each)


def _words(value: Any) -> str:
    if not value:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in value.items())
    return str(value)


def _is_known(key: int, version: int) -> bool:
    if key not in _KEYS:
        return False
    first, last = schema_versions(key)
    return first <= version <= last


def correlation_id_of(frame: bytes) -> int | None:
    """Which request an answer belongs to."""
    return int(LENGTH.unpack_from(frame)[0]) if len(frame) >= 4 else None

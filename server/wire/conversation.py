"""One connection between a client and a broker, without IO: frames in, events out.

A broker answers the requests of a connection in the order in which they came, each once, but for Produce with acks=0.
So what is wrong can be told by correlation ids alone: an answer that came before others, one that belongs to no
request, a request that was never answered.

What is odd about a request: a version that the broker has not offered, or that this program does not know; fields that
it does not know; bytes behind its end; records that do not check; a correlation id that is in use. About an answer:
the same, and its place in the order.

Raw tokens of SASL (SaslHandshake v0, Kafka before 1.0) have no header. After such a handshake frames with an unknown
API key are taken for tokens until a request comes.

Times are seconds, of any clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from barnabas.kproto import (
    ApiKey,
    DecodeError,
    EncodeError,
    ErrorCode,
    Message,
    decoder,
    encoder,
    request_class,
    response_class,
    schema_versions,
)
from barnabas.kproto.frame import (
    LENGTH,
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header_version,
    response_frame,
)
from barnabas.server.wire.addresses import Address, addresses_in, put
from barnabas.server.wire.shown import Limits, seen

Event: TypeAlias = dict[str, Any]
Offered: TypeAlias = dict[int, tuple[int, int]]
"""First and last version by API key, as a broker has said in ApiVersions."""

ELEMENTS_MAX: Final = 10_000_000
UNANSWERED_SHOWN: Final = 20
_KEYS: Final = frozenset(map(int, ApiKey))


@dataclass(slots=True)
class Asked:
    """A request that is to be answered. key None: a raw token."""

    key: int | None
    version: int
    correlation_id: int
    name: str
    at: float


@dataclass(slots=True)
class Answer:
    """An answer: its event, the frame as the broker sent it, and the addresses in it, to be put in another form by
    `Conversation.rewritten`.
    """

    event: Event
    frame: bytes
    addresses: list[Address] = field(default_factory=list)
    message: Message | None = None
    key: int = -1
    version: int = -1


def name_of(key: int) -> str:
    """An API's name as Apache Kafka spells it."""
    if key not in _KEYS:
        return f"API {key}"
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


TOKEN: Final = "SASL token"
UNREADABLE: Final = "unreadable"
NAMES: Final = frozenset({*map(name_of, _KEYS), TOKEN, UNREADABLE})
"""What requests are called in events, beside those of APIs that this program does not know."""


class Conversation:
    """See the module. number: of the connection, for its events. broker: where it leads. offered: shared by all
    connections to a broker, filled in by its answers.
    """

    def __init__(self, number: int, broker: str, offered: Offered, limits: Limits | None = None) -> None:
        self._number = number
        self._broker = broker
        self._offered = offered
        self._limits = limits or Limits()
        self._asked: deque[Asked] = deque()
        self._tokens = False

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(self, frame: bytes, now: float) -> Event:
        """A client's frame, without its length."""
        event = self._event(now)
        odd: list[str] = []
        try:
            header = parse_request_header(frame)
        except DecodeError as error:
            if self._tokens:
                return self._token(event, frame, now)
            event.update(request=UNREADABLE, bytes=len(frame) + 4, odd=[str(error)])
            return event
        if self._tokens and header.api_key not in _KEYS:
            return self._token(event, frame, now)
        self._tokens = False
        name = name_of(header.api_key)
        event.update(
            request=name,
            version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            bytes=len(frame) + 4,
        )
        if any(each.correlation_id == header.correlation_id and each.key is not None for each in self._asked):
            odd.append("its correlation id is that of a request that waits")
        message = self._read_request(frame, header, event, odd)
        asked = Asked(header.api_key, header.api_version, header.correlation_id, name, now)
        if not (header.api_key == ApiKey.PRODUCE and message is not None and message.acks == 0):  # type: ignore[attr-defined]
            self._asked.append(asked)
        return _with_odd(event, odd)

    def _read_request(self, frame: bytes, header: RequestHeader, event: Event, odd: list[str]) -> Message | None:
        key, version = header.api_key, header.api_version
        if key not in _KEYS:
            odd.append("this program does not know the API")
            return None
        first, last = self._offered.get(key, (version, version))
        if not first <= version <= last:
            odd.append(f"the broker offers version {first} to {last}")
        elif self._offered and key not in self._offered:
            odd.append("the broker does not offer this API")
        if not _is_known(key, version):
            odd.append("this program does not know the version")
            return None
        if tags := _header_tags(frame, header):
            odd.append(f"its header has {tags} tagged fields, none of which is known")
        return self._read(request_class(key), version, frame, header.body_offset, event, odd, is_answer=False)

    def _token(self, event: Event, frame: bytes, now: float) -> Event:
        event.update(request=TOKEN, bytes=len(frame) + 4)
        self._asked.append(Asked(None, 0, 0, TOKEN, now))
        return event

    # -- answers -----------------------------------------------------------------------------------------------------

    def answer(self, frame: bytes, now: float) -> Answer:
        """A broker's frame, without its length."""
        event = self._event(now)
        odd: list[str] = []
        if self._asked and self._asked[0].key is None:
            asked = self._asked.popleft()
            event.update(answer=asked.name, bytes=len(frame) + 4, ms=_ms(now - asked.at))
            return Answer(event, frame)
        if len(frame) < 4:
            event.update(answer="unreadable", bytes=len(frame) + 4, odd=[f"a frame of {len(frame)} bytes"])
            return Answer(event, frame)
        (correlation_id,) = LENGTH.unpack_from(frame)
        found = self._take(correlation_id, odd)
        if found is None:
            event.update(answer="unknown", correlation_id=correlation_id, bytes=len(frame) + 4)
            return Answer(_with_odd(event, ["it answers no request that waits"]), frame)
        event.update(
            answer=found.name,
            version=found.version,
            correlation_id=correlation_id,
            bytes=len(frame) + 4,
            ms=_ms(now - found.at),
        )
        assert found.key is not None
        message, version = self._read_answer(found.key, found.version, frame, event, odd)
        answer = Answer(_with_odd(event, odd), frame, key=found.key, version=version)
        if message is not None:
            self._learn(found, message)
            answer.addresses = addresses_in(found.key, message)
            answer.message = message
        return answer

    def _take(self, correlation_id: int, odd: list[str]) -> Asked | None:
        for number, each in enumerate(self._asked):
            if each.key is not None and each.correlation_id == correlation_id:
                if number:
                    before = ", ".join(one.name for one in list(self._asked)[: min(number, 3)])
                    odd.append(f"it comes before the answers to {number} older requests: {before}")
                del self._asked[number]
                return each
        return None

    def _read_answer(
        self, key: int, version: int, frame: bytes, event: Event, odd: list[str]
    ) -> tuple[Message | None, int]:
        if not _is_known(key, version):
            return None, version
        try:
            _, offset = parse_response_header(key, version, frame)
        except DecodeError as error:
            odd.append(f"its header cannot be read: {error}")
            return None, version
        if key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED:
            version = 0  # so that every client can read it (KIP-511)
        return self._read(response_class(key), version, frame, offset, event, odd, is_answer=True), version

    def _read(
        self,
        cls: type[Message],
        version: int,
        frame: bytes,
        offset: int,
        event: Event,
        odd: list[str],
        *,
        is_answer: bool,
    ) -> Message | None:
        try:
            message, end = decoder(cls, version)(frame, offset, ELEMENTS_MAX)
        except DecodeError as error:
            odd.append(f"it cannot be read: {error}")
            return None
        if end < len(frame):
            odd.append(f"{len(frame) - end} bytes follow its end")
        found = seen(message, version, self._limits, is_answer=is_answer)
        odd += found.odd
        if is_answer:
            if found.errors:
                event["errors"] = dict(found.errors)
            if found.throttle_ms:
                event["throttle_ms"] = found.throttle_ms
        event["body"] = found.body
        return message

    def _learn(self, asked: Asked, message: Any) -> None:
        if asked.key == ApiKey.API_VERSIONS and message.error_code == ErrorCode.NONE:
            self._offered.clear()
            self._offered.update({row.api_key: (row.min_version, row.max_version) for row in message.api_keys})
        elif asked.key == ApiKey.SASL_HANDSHAKE and asked.version == 0:
            self._tokens = message.error_code == ErrorCode.NONE

    def rewritten(self, answer: Answer, instead: Mapping[Address, Address]) -> bytes:
        """The frame for the client, with other addresses; the event says which. The broker's frame if none changes."""
        if answer.message is None or not answer.addresses:
            return answer.frame
        changed = put(answer.message, instead)
        if not changed:
            return answer.frame
        (correlation_id,) = LENGTH.unpack_from(answer.frame)
        try:
            body = encoder(type(answer.message), answer.version)(answer.message)
            parts = response_frame(answer.key, answer.version, correlation_id, body)
        except EncodeError as error:
            answer.event.setdefault("odd", []).append(f"its addresses are left as they are: {error}")
            return answer.frame
        answer.event["rewritten"] = changed
        return b"".join(parts)[4:]  # type: ignore[arg-type]

    # -- the end -----------------------------------------------------------------------------------------------------

    def ended(self, by: str, now: float) -> Event:
        """The connection is closed. by: client or broker."""
        event = {**self._event(now), "closed_by": by}
        unanswered = [each.name for each in self._asked]
        if unanswered:
            more = len(unanswered) - UNANSWERED_SHOWN
            event["odd"] = [
                f"{len(unanswered)} requests are not answered: {', '.join(unanswered[:UNANSWERED_SHOWN])}"
                + (f" and {more} more" if more > 0 else "")
            ]
        return event

    def _event(self, now: float) -> Event:
        return {"at": round(now, 6), "connection": self._number, "broker": self._broker}


_UNSUPPORTED: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def _is_known(key: int, version: int) -> bool:
    if key not in _KEYS:
        return False
    first, last = schema_versions(key)
    return first <= version <= last


def _header_tags(frame: bytes, header: RequestHeader) -> int:
    """How many tagged fields a flexible header has, 0 in others; up to 127, as more are read but not counted."""
    if request_header_version(header.api_key, header.api_version) != 2:
        return 0
    length = int.from_bytes(frame[8:10], "big", signed=True)
    return frame[10 + max(0, length)] & 0x7F


def _with_odd(event: Event, odd: list[str]) -> Event:
    """What is odd stands before the body."""
    if odd:
        body = event.pop("body", None)
        event["odd"] = odd
        if body is not None:
            event["body"] = body
    return event


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)

"""Frames as clients and brokers write them, without their lengths."""

from __future__ import annotations

from typing import Any

from barnabas.kproto import Message, encode
from barnabas.kproto.frame import request_frame, response_frame
from barnabas.kproto.records import Record, build_batch
from barnabas.server.wire.conversation import Answer, Conversation, Event


def asks(message: Message, version: int, correlation_id: int = 1, client_id: str | None = "app") -> bytes:
    return request_frame(version, correlation_id, client_id, message)[4:]


def answers(message: Message, version: int, correlation_id: int = 1) -> bytes:
    key = message.__description__.api_key
    assert key is not None
    return b"".join(response_frame(key, version, correlation_id, [encode(message, version)]))[4:]  # type: ignore[arg-type]


def batch(*values: bytes, **options: Any) -> bytes:
    return bytes(build_batch([Record(number, 0, b"k", value) for number, value in enumerate(values)], **options))


class Line:
    """A conversation, and what it says."""

    def __init__(self) -> None:
        self.offered: dict[int, tuple[int, int]] = {}
        self.talk = Conversation(7, "b:9092", self.offered)
        self.now = 0.0

    def ask(self, message: Message, version: int, correlation_id: int = 1, **header: Any) -> Event:
        self.now += 0.001
        return self.talk.request(asks(message, version, correlation_id, **header), self.now)

    def answer(self, message: Message, version: int, correlation_id: int = 1) -> Answer:
        self.now += 0.002
        return self.talk.answer(answers(message, version, correlation_id), self.now)

"""OffsetCommit requests like an earlier one of their connection but for the offsets and the leader epochs: same group,
member and generation, same partitions and metadata.

The coordinator's machine checks the member and hears of it, writes, and answers as it does for all commits; what it
refuses, and commits while topics or the coordinator are missing, is left to the slow path. A write that fails is
answered here, with one error for all partitions.

Only what is stored with the broker's own time and retention (version 2 and later, without a retention time), and names
each topic once; one request of at most `FRAME_BYTES_MAX` is remembered for each connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

from barnabas.coordinator import CommitLayout, RepeatedCommit
from barnabas.kproto import ErrorCode, KafkaError, uvarint
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import OffsetCommitRequest, OffsetCommitResponse
from barnabas.replication import TopicImage
from barnabas.server.network.connection import Connection
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.examples import (
    INT_BYTES,
    LONG_BYTES,
    Form,
    Repeated,
    around_marks,
    fast_path_of,
)
from barnabas.server.requests.services import Services

LEARNT_FROM = 2
EPOCHS_FROM = 6
INSTANCES_FROM = 7
FLEXIBLE_FROM = 8
BY_ID_FROM = 10
RETENTION = range(2, 5)
"""Versions with a retention time."""

_Place = tuple[int, str]


class _Example:
    """A request, and the answer for success. An `Example`. Its form has an offset and, where the version has them, a
    leader epoch for each partition.
    """

    __slots__ = (
        "_answer",
        "_commit",
        "_no_epochs",
        "_tail",
        "_topics",
        "client_id",
        "form",
        "request",
        "route",
        "svc",
        "version",
    )

    def __init__(
        self,
        svc: Services,
        ctx: RequestContext,
        request: OffsetCommitRequest,
        names: list[str],
        form: Form,
    ) -> None:
        self.svc = svc
        self.form = form
        self.route = ctx.route
        self.version = version = ctx.api_version
        self.client_id = ctx.client_id
        self.request = request
        by_id = version >= BY_ID_FROM
        self._topics = [
            (topic.topic_id if by_id else topic.name, name, max(each.partition_index for each in topic.partitions))
            for topic, name in zip(request.topics, names, strict=True)
        ]
        places = [
            (name, partition)
            for topic, name in zip(request.topics, names, strict=True)
            for partition in topic.partitions
        ]
        layout = CommitLayout(
            request.group_id,
            tuple((name, partition.partition_index) for name, partition in places),
            tuple(partition.committed_metadata or "" for _, partition in places),
        )
        layout.prepare()
        self._commit = RepeatedCommit(
            layout, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id, version
        )
        self._no_epochs = (-1,) * len(places)
        (self._tail,) = around_marks(ctx.route, self.response(ErrorCode.NONE))
        self._answer = Struct(f">ii{len(self._tail)}s").pack

    def take(self, connection: Connection, numbers: tuple[int, ...]) -> RequestContext | None:
        """Part of `Example`."""
        version = self.version
        image = self.svc.current_image()
        known_topics: Mapping[Any, TopicImage] = image.topics_by_id if version >= BY_ID_FROM else image.topics
        for key, name, last_index in self._topics:
            known = known_topics.get(key)
            if known is None or known.name != name or last_index >= len(known.partitions):
                return None
        if version >= EPOCHS_FROM:
            offsets, leader_epochs = numbers[1::2], numbers[2::2]
        else:
            offsets, leader_epochs = numbers[1:], self._no_epochs
        ctx = _Commit(connection, self.route, version, numbers[0], self.client_id)
        ctx.example = self
        try:
            is_taken = self.svc.groups.commit_again(self._commit, offsets, leader_epochs, ctx)
        except KafkaError:
            return None
        return ctx if is_taken else None

    def answer(self, correlation_id: int) -> bytes:
        """The frame for success."""
        tail = self._tail
        return self._answer(INT_BYTES + len(tail), correlation_id, tail)

    def response(self, code: ErrorCode) -> OffsetCommitResponse:
        """The answer with one code for all partitions."""
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponse.OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponse.OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in self.request.topics
            ]
        )


class _Commit(RequestContext):
    """A request like its example; the coordinator's token."""

    __slots__ = ("example",)
    example: _Example

    def reply(self, response: ErrorCode) -> None:
        """The coordinator's answer: one code for all partitions."""
        if response == ErrorCode.NONE:
            self.reply_encoded(self.example.answer(self.correlation_id))
        else:
            super().reply(self.example.response(response))


class OffsetCommitFastPath(Repeated[_Example]):
    """The last request of a connection that may be an example. A `FastPath`."""

    __slots__ = ()

    FRAME_BYTES_MAX = 4096
    """Room for some 200 partitions."""


def learn(svc: Services, ctx: RequestContext, frame: memoryview, request: OffsetCommitRequest) -> None:
    """Remember this request as the connection's example. Part of `barnabas.server.requests.api.Api`."""
    version = ctx.api_version
    topics = request.topics
    if (
        len(frame) > OffsetCommitFastPath.FRAME_BYTES_MAX
        or request.retention_time_ms != -1
        or not topics
        or not all(topic.partitions for topic in topics)
        or len({topic.topic_id if version >= BY_ID_FROM else topic.name for topic in topics}) != len(topics)
    ):
        return
    path = fast_path_of(ctx.connection, OffsetCommitFastPath)
    if path is not None and not path.may_learn(frame):
        return
    names = [topic.name for topic in topics]
    if version >= BY_ID_FROM:
        known = [svc.image.topics_by_id.get(topic.topic_id) for topic in topics]
        names = [topic.name for topic in known if topic is not None]
    places = _places(version, bytes(frame), request)
    if places is None or len(names) != len(topics):
        return
    if path is None:
        path = OffsetCommitFastPath(svc)
        ctx.connection.fast_paths.append(path)
    path.remember(_Example(svc, ctx, request, names, Form(bytes(frame), places)))


def _places(version: int, frame: bytes, request: OffsetCommitRequest) -> list[_Place] | None:
    """Where the offsets and leader epochs are. None: lengths are not encoded as briefly as they can be, or there are
    tagged fields, which makes the frame longer than is expected.
    """
    tags = 1 if version >= FLEXIBLE_FROM else 0
    at = parse_request_header(frame).body_offset
    at += _text_bytes(version, request.group_id) + INT_BYTES + _text_bytes(version, request.member_id)
    if version >= INSTANCES_FROM:
        at += _text_bytes(version, request.group_instance_id)
    if version in RETENTION:
        at += LONG_BYTES
    at += _count_bytes(version, len(request.topics))
    places: list[_Place] = []
    for topic in request.topics:
        at += len(topic.topic_id) if version >= BY_ID_FROM else _text_bytes(version, topic.name)
        at += _count_bytes(version, len(topic.partitions))
        for partition in topic.partitions:
            at += INT_BYTES
            places.append((at, "q"))
            at += LONG_BYTES
            if version >= EPOCHS_FROM:
                places.append((at, "i"))
                at += INT_BYTES
            at += _text_bytes(version, partition.committed_metadata) + tags
        at += tags
    return places if at + tags == len(frame) else None


def _text_bytes(version: int, text: str | None) -> int:
    """The bytes that a text takes with its length."""
    size = 0 if text is None else len(text.encode())
    if version < FLEXIBLE_FROM:
        return 2 + size
    return (1 if text is None else len(uvarint(size + 1))) + size


def _count_bytes(version: int, count: int) -> int:
    """The bytes of an array's length."""
    return len(uvarint(count + 1)) if version >= FLEXIBLE_FROM else INT_BYTES

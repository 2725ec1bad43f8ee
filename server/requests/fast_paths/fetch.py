"""Fetch requests of one partition, like the one before on their connection but for the session's epoch and the offset.

Only if enough records are there already. Anything else (an aborted transaction to report, another partition in the
session) is left to the slow path: `barnabas.server.requests.fetch`.

Only flexible versions (12 and later) by consumers without a rack, one partition, in an incremental session or without
any.
"""

from __future__ import annotations

from struct import Struct

from barnabas.kproto import KafkaError, uvarint
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.network.connection import Connection
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.examples import (
    LONG_BYTES,
    MARKS,
    Form,
    Repeated,
    around_marks,
    fast_path_of,
    int_at,
    long_at,
)
from barnabas.server.requests.fetch.consumers import READ_COMMITTED
from barnabas.server.requests.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.server.requests.fetch.targets import ask, find_partition, targets_of
from barnabas.server.requests.services import Services

FLEXIBLE_FROM = 12
BY_ID_FROM = 13
REPLICA_TAGGED_FROM = 15
"""Earlier versions start with the replica id."""

_MIDDLE_BYTES = 5
"""After high watermark, last stable offset and log start offset: the list of aborted transactions, null or empty, and
the preferred replica. Then the records' length.
"""


class _Example:
    """A request, and the constant parts of its answer. An `Example`. Its form has session epoch and offset."""

    __slots__ = (
        "answer",
        "client_id",
        "form",
        "head",
        "middle",
        "request",
        "route",
        "svc",
        "tail",
        "target",
        "version",
    )

    def __init__(self, svc: Services, ctx: RequestContext, request: FetchRequest, form: Form) -> None:
        self.svc = svc
        self.form = form
        self.route = ctx.route
        self.version = ctx.api_version
        self.client_id = ctx.client_id
        self.request = request
        ((_, self.target),) = targets_of(request.topics, self.version >= BY_ID_FROM)
        topic = request.topics[0]
        marked = FetchResponse.PartitionData(
            partition_index=topic.partitions[0].partition,
            aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
            records=b"",
        )
        marked.high_watermark, marked.last_stable_offset, marked.log_start_offset = MARKS
        response = FetchResponse(
            session_id=request.session_id,
            responses=[
                FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[marked])
            ],
        )
        self.head, rest = around_marks(ctx.route, response)
        self.middle, self.tail = rest[:_MIDDLE_BYTES], rest[_MIDDLE_BYTES + 1 :]
        self.answer = Struct(f">ii{len(self.head)}sqqq{_MIDDLE_BYTES}s").pack

    def take(self, connection: Connection, numbers: tuple[int, ...]) -> RequestContext | None:
        """Part of `Example`: only if records are there already."""
        correlation_id, epoch, offset = numbers
        svc = self.svc
        request = self.request
        requested = request.topics[0].partitions[0]
        target = self.target
        session = None
        try:
            if request.session_id:
                session = svc.fetch_sessions.use(request.session_id, epoch, self.version >= BY_ID_FROM, svc.now())
                if len(session.targets) != 1 or target.key not in session.targets:
                    return None
                target = session.targets[target.key]
            elif epoch != FINAL_EPOCH:
                return None
            partition = target.partition
            if partition is None or not partition.is_leader:
                partition = target.partition = find_partition(svc, target)
            partition.check_leader_epoch(requested.current_leader_epoch)
            high_watermark = partition.high_watermark
            last_stable_offset = partition.last_stable_offset
            upper_offset = last_stable_offset if request.isolation_level == READ_COMMITTED else high_watermark
            if offset >= upper_offset:
                return None
            max_bytes = min(request.max_bytes, svc.config.get_int("fetch.max.bytes"))
            records = partition.read(
                offset, min(requested.partition_max_bytes, max_bytes), upper_offset=upper_offset, min_one_batch=True
            )
            if (
                records is None
                or len(records) < min(request.min_bytes, max_bytes)
                or (
                    request.isolation_level == READ_COMMITTED
                    and partition.log.aborted_in(records, offset, last_stable_offset)
                )
            ):
                return None
        except KafkaError:
            return None
        log_start_offset = partition.log_start_offset
        if session is not None:
            session.advance()
            requested.fetch_offset = offset
            ask(target, requested)
            target.sent_high_watermark = high_watermark
            target.sent_log_start_offset = log_start_offset
        ctx = RequestContext(connection, self.route, self.version, correlation_id, self.client_id)
        head, tail = self.head, self.tail
        length = uvarint(len(records) + 1)
        size = 4 + len(head) + 3 * LONG_BYTES + _MIDDLE_BYTES + len(length) + len(records) + len(tail)
        answer = self.answer(
            size, correlation_id, head, high_watermark, last_stable_offset, log_start_offset, self.middle
        )
        ctx.reply_encoded(answer + length, records, tail)
        return ctx


class FetchFastPath(Repeated[_Example]):
    """The last request of a connection that may be an example. A `FastPath`."""

    __slots__ = ()


def learn(svc: Services, ctx: RequestContext, frame: memoryview, request: FetchRequest) -> None:
    """Remember this request as the connection's example. Part of `barnabas.server.requests.api.Api`."""
    version = ctx.api_version
    if (
        version < FLEXIBLE_FROM
        or len(frame) > FetchFastPath.FRAME_BYTES_MAX
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or request.forgotten_topics_data
        or request.rack_id
        or request.session_epoch == INITIAL_EPOCH
        or (request.session_epoch == FINAL_EPOCH) != (request.session_id == 0)
        or (request.replica_state.replica_id if version >= REPLICA_TAGGED_FROM else request.replica_id) != -1
        or request.topics[0].partitions[0].last_fetched_epoch >= 0
    ):
        return
    path = fast_path_of(ctx.connection, FetchFastPath)
    if path is not None and path.knows(frame):
        return
    name_bytes = 16
    if version < BY_ID_FROM:
        name = request.topics[0].topic.encode()
        name_bytes = len(uvarint(len(name) + 1)) + len(name)
    # The session's epoch precedes the topics, the offset follows the partition's index and leader epoch;
    # arrays of one element have a length of one byte.
    start = bytes(frame)
    epoch_at = parse_request_header(start).body_offset + (17 if version >= REPLICA_TAGGED_FROM else 21)
    offset_at = epoch_at + 4 + 1 + name_bytes + 1 + 8
    if (
        int_at(start, epoch_at)[0] == request.session_epoch
        and long_at(start, offset_at)[0] == request.topics[0].partitions[0].fetch_offset
    ):
        if path is None:
            path = FetchFastPath(svc)
            ctx.connection.fast_paths.append(path)
        path.remember(_Example(svc, ctx, request, Form(start, [(epoch_at, "i"), (offset_at, "q")])))

"""A Produce request from its first append to its answer, also where it is held, or waits for a commit or a flush."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.allowance import Allowance, TooMuchWork
from barnabas.kproto.messages import ProduceRequest, ProduceResponse
from barnabas.kproto.records import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_OFFSET, TRANSACTIONAL, RecordsRefused
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE, entry_bytes
from barnabas.logdir import AppendInfo, AppendOrigin, LogConfig
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.leader_hints import HINTED_IN_PRODUCE, LeaderHints
from barnabas.server.requests.produce.held import BATCHES_PER_TURN
from barnabas.server.requests.produce.transactional import Admission
from barnabas.server.requests.services import Services

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.PartitionProduceResponse

ADMIN_CLIENT_ID = "__admin_client"
_ACKS = (-1, 0, 1)


class Nothing(Enum):
    """What an old client has sent for a partition, when it is no whole message."""

    WHOLE = "nothing whole"
    """A success without an append."""


Outcome = bytearray | memoryview | KafkaError | Nothing | None
"""Of the conversion of an old client's records for a partition; None: there were none."""

ZSTD = 4
ZSTD_FROM = 7
"""From this version on batches may have that codec."""


class PendingProduce:
    """A Produce request from its first append to its answer.

    `appended`: partition, answer and end offset of staged batches that are not yet known to be written. `commits`: what
    must be committed, or synced, before the answer. The request itself is not kept: it is larger than its answer, and
    there may be many.
    """

    __slots__ = (
        "acks",
        "admission",
        "appended",
        "commits",
        "ctx",
        "failed",
        "response",
        "svc",
        "timeout_ms",
        "timer",
        "waits",
    )

    def __init__(
        self,
        svc: Services,
        ctx: RequestContext,
        req: ProduceRequest,
        response: ProduceResponse,
        admission: Admission | None = None,
    ) -> None:
        self.svc = svc
        self.ctx = ctx
        self.acks = req.acks
        self.timeout_ms = req.timeout_ms
        self.response = response
        self.admission = admission
        self.appended: list[tuple[Partition, ProduceResponse.PartitionProduceResponse, int]] = []
        self.commits: dict[_Commit, None] = {}
        self.failed = False
        self.timer: Any = None
        self.waits = False

    # -- its batches

    def begin(
        self,
        req: ProduceRequest,
        converted: Sequence[Outcome] | None = None,
        staged: Sequence[tuple[Partition, AppendInfo]] = (),
    ) -> None:
        """Append all batches; those from the first on that would take too long, later. converted: batches to append
        instead of the request's, in its order. staged: what became of the first ones, which are staged already.
        """
        svc = self.svc
        now_ms = svc.wall_ms()
        allowance = svc.partitions.allowance
        responses = self.response.responses
        number = 0
        try:
            for topic in req.topic_data:
                answers: list[ProduceResponse.PartitionProduceResponse] = []
                responses.append(_TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
                for data in topic.partition_data:
                    if number == BATCHES_PER_TURN:
                        raise TooMuchWork(is_for_now=True)
                    if number < len(staged):
                        answers.append(self._note(*staged[number]))
                    else:
                        records = data.records if converted is None else converted[number]
                        self.append(req, topic, data, records, answers, now_ms, allowance)
                    number += 1
        except TooMuchWork as error:
            svc.held.hold(_Rest(self, req, converted), is_stuck=not error.is_for_now)
        else:
            svc.partitions.after_write(self.written)

    def append(
        self,
        req: ProduceRequest,
        topic: ProduceRequest.TopicProduceData,
        data: ProduceRequest.PartitionProduceData,
        records: Any,
        answers: list[_PartitionResponse],
        now_ms: int,
        allowance: Allowance,
    ) -> None:
        """Stage a batch, or record its error. records: the batch, or an `Outcome`. Raises `TooMuchWork`, without any
        change.
        """
        acks = self.acks
        version = self.ctx.api_version
        try:
            if acks not in _ACKS:
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
            partition = _partition(self.svc, version, topic, data)
            if type(records) is not memoryview:
                if isinstance(records, KafkaError):
                    raise records
                if records is Nothing.WHOLE:
                    answers.append(_PartitionResponse(index=data.index, base_offset=-1))
                    return
            if allowance.prepared_for is None:
                records = _one_batch(records, version, req.transactional_id)
            if partition.topic.startswith("__"):
                _refuse_internal(self.svc, partition, self.ctx)
            info = partition.append(
                records,
                origin=AppendOrigin.CLIENT,
                now_ms=now_ms,
                required_acks=acks,
                in_txn=None if self.admission is None else self.admission(partition),
                allowance=allowance,
            )
        except KafkaError as error:
            self.failed = True
            answer = _PartitionResponse(index=data.index)
            _fill_error(answer, error.as_value(), version)  # it may be stored as an outcome
        else:
            answer = self._note(partition, info)
        answers.append(answer)

    def _note(self, partition: Partition, info: AppendInfo) -> ProduceResponse.PartitionProduceResponse:
        """A batch is staged. Returns its answer."""
        answer = _PartitionResponse(
            index=partition.index,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        self.appended.append((partition, answer, info.last_offset + 1))
        return answer

    # -- its answer

    def settle(self) -> None:
        """What was staged so far was written, or the write failed."""
        for partition, answer, end_offset in self.appended:
            if end_offset > partition.log.state.log_end_offset:
                error = partition.outcome_of(end_offset - 1)
                assert error is not None
                self.failed = True
                _fill_error(answer, error, self.ctx.api_version)
            elif self.acks == -1:
                if partition.high_watermark < end_offset:
                    partition.when_committed(end_offset, self._commit(answer, partition))
            elif self.acks and partition.held_at is not None and partition.held_at < end_offset:
                partition.when_flushed(end_offset, self._commit(answer, partition))
        self.appended.clear()

    def _commit(self, answer: ProduceResponse.PartitionProduceResponse, partition: Partition) -> _Commit:
        commit = _Commit(self, answer, partition)
        self.commits[commit] = None
        return commit

    def written(self) -> None:
        """The round's write is done, and all batches are appended."""
        self.settle()
        if self.acks == 0:
            self._finish_silently()
        elif self.commits:
            self.waits = True
            if self.acks == -1:
                self.timer = self.svc.timers.after(max(self.timeout_ms, 0) / 1000, self._timed_out)
        else:
            self._reply()

    def _reply(self) -> None:
        if self.failed and self.ctx.api_version >= 10:
            _add_hints(self.svc, self.ctx, self.response)
        self.ctx.reply(self.response)

    def _finish_silently(self) -> None:
        if self.failed:
            self.ctx.connection.abort()
        else:
            self.ctx.no_reply()

    def committed(self, commit: _Commit, code: ErrorCode) -> None:
        del self.commits[commit]
        if code != ErrorCode.NONE:
            self.failed = True
            _fill_error(commit.answer, KafkaError(code), self.ctx.api_version)
        if not self.commits and self.waits:
            if self.timer is not None:
                self.timer.cancel()
            self._reply()

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self.ctx.release_waiters()

    def _timed_out(self) -> None:
        for commit in self.commits:
            _fill_error(commit.answer, KafkaError(ErrorCode.REQUEST_TIMED_OUT), self.ctx.api_version)
            commit.partition.drop_commit(commit)
        self.commits = {}
        self._reply()


class _Rest:
    """The batches of a request that were not appended in its round: an `Appending` of
    `barnabas.server.requests.produce.held`.
    """

    def __init__(self, pending: PendingProduce, req: ProduceRequest, converted: Sequence[Outcome] | None) -> None:
        self._pending = pending
        self._req = req
        self.ctx = pending.ctx
        self.now_ms = pending.svc.wall_ms
        responses = pending.response.responses
        for topic in req.topic_data[len(responses) :]:
            responses.append(_TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[]))
        self._batches = [
            (topic, data, answered.partition_responses)
            for topic, answered in zip(req.topic_data, responses, strict=True)
            for data in topic.partition_data[len(answered.partition_responses) :]
        ]
        self.count = len(self._batches)
        self._records: list[Any]
        if converted is None:
            self._records = [data.records for _, data, _ in self._batches]
        else:
            self._records = list(converted[len(converted) - self.count :])

    def append(self, number: int, allowance: Allowance) -> None:
        topic, data, answers = self._batches[number]
        self._pending.append(self._req, topic, data, self._records[number], answers, self.now_ms(), allowance)

    def records(self, number: int) -> memoryview | None:
        records = self._records[number]
        if isinstance(records, bytearray):
            return memoryview(records)
        return records if isinstance(records, memoryview) else None

    def replace(self, number: int, records: memoryview | KafkaError) -> None:
        self._records[number] = records
        self._batches[number][1].records = None  # the request's records are not needed any more

    def config(self, number: int) -> LogConfig | None:
        topic, data, _ = self._batches[number]
        try:
            return _partition(self._pending.svc, self.ctx.api_version, topic, data).log.config
        except KafkaError:
            return None

    def pause(self) -> None:
        self._pending.svc.partitions.after_write(self._pending.settle)

    def finish(self) -> None:
        self._pending.svc.partitions.after_write(self._pending.written)


class _Commit:
    """The callback of one partition of a waiting request."""

    __slots__ = ("answer", "partition", "pending")

    def __init__(
        self, pending: PendingProduce, answer: ProduceResponse.PartitionProduceResponse, partition: Partition
    ) -> None:
        self.pending = pending
        self.answer = answer
        self.partition = partition

    def __call__(self, code: ErrorCode) -> None:
        self.pending.committed(self, code)

    def release_waiters(self) -> str:
        return self.pending.release_waiters()


def finish_staged(
    svc: Services, ctx: RequestContext, req: ProduceRequest, staged: Sequence[tuple[Partition, AppendInfo]]
) -> None:
    """A request whose batches, all of one topic, a fast path has staged, and they are written: complete it."""
    topic = req.topic_data[0]
    pending = PendingProduce(svc, ctx, req, ProduceResponse(responses=[]))
    answers = [pending._note(partition, info) for partition, info in staged]
    pending.response.responses = [_TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)]
    pending.written()


def go_on_behind(
    svc: Services, ctx: RequestContext, req: ProduceRequest, staged: Sequence[tuple[Partition, AppendInfo]]
) -> None:
    """A request of which a fast path has staged the first batches: append the others, and complete it."""
    PendingProduce(svc, ctx, req, ProduceResponse(responses=[])).begin(req, staged=staged)


def _partition(
    svc: Services, version: int, topic: ProduceRequest.TopicProduceData, data: ProduceRequest.PartitionProduceData
) -> Partition:
    if version >= 13:
        return svc.partitions.get_by_id(topic.topic_id, data.index)
    return svc.partitions.get(topic.name, data.index)


def _one_batch(records: object, version: int, transactional_id: str | None) -> memoryview:
    """Exactly one batch of format 2, as Produce 3+ demands. Raises KafkaError INVALID_RECORD,
    UNSUPPORTED_COMPRESSION_TYPE or TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if not isinstance(records, memoryview) or len(records) < BATCH_OVERHEAD:
        if isinstance(records, bytearray):
            return memoryview(records)  # an old client's records, converted
        raise KafkaError(ErrorCode.INVALID_RECORD, "one record batch per partition is expected, none was sent")
    if records[MAGIC_OFFSET] != 2:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"record format 2 is expected, {records[MAGIC_OFFSET]} was sent")
    if LOG_OVERHEAD <= entry_bytes(records) < len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "one record batch per partition is expected, more were sent")
    attributes = records[ATTRIBUTES_LOW_BYTE]
    if attributes & 0x17:
        if attributes & 0x07 == ZSTD and version < ZSTD_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        if attributes & TRANSACTIONAL and transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "The request has no transactional id.")
    return records


def _refuse_internal(svc: Services, partition: Partition, ctx: RequestContext) -> None:
    topic = svc.image.topics.get(partition.topic)
    if topic is not None and topic.is_internal and ctx.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is an internal topic")


def _fill_error(answer: ProduceResponse.PartitionProduceResponse, error: KafkaError, version: int) -> None:
    answer.error_code = error.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    if version >= 8:
        answer.error_message = error.message
        if isinstance(error, RecordsRefused):
            answer.record_errors = [
                ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in error.record_errors
            ]


def _add_hints(svc: Services, ctx: RequestContext, response: ProduceResponse) -> None:
    hints = None
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code in HINTED_IN_PRODUCE:
                if hints is None:
                    hints = LeaderHints(svc, ctx.listener)
                answer.current_leader = ProduceResponse.LeaderIdAndEpoch()
                hints.fill(answer.current_leader, topic.name or None, topic.topic_id, answer.index)
    if hints is not None:
        response.node_endpoints = hints.endpoints(ProduceResponse.NodeEndpoint)

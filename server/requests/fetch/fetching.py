"""Fetches: what one request reads, from which partitions, and what it waits for.

`Fetch` is a consumer's: it reads up to the high watermark, or the last stable offset, from the leader and (v11+) from
any other replica. `RackFetch` asks the leader in addition whether a replica in the consumer's rack serves as well
(KIP-392). `FollowerFetch` is that of another broker: it reads up to the log's end, and where it fetches from is how
the leader learns what the follower has.

A fetch that finds too little waits as a callback on its partitions plus a timer. Nothing can slip in between the look
and the wait: there is no checkpoint between the two. Looking again never reports a follower's progress again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.logdir import FileSlice, StorageError
from barnabas.replication import BrokerImage, LeaderState
from barnabas.server.partitions.host import ProgressWaiter
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.api import PENDING
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fetch.sessions import NOT_SENT, FetchSession, FetchTarget, TargetKey
from barnabas.server.requests.fetch.targets import find_partition
from barnabas.server.requests.leader_hints import HINTED_IN_FETCH, LeaderHints
from barnabas.server.requests.services import Services

READ_COMMITTED = 1
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

PartitionData = FetchResponse.PartitionData
AbortedTransaction = FetchResponse.AbortedTransaction
Answer = tuple[FetchTarget, FetchResponse.PartitionData]
Plan = tuple[list[Answer], int, bool]
"""What to answer, its bytes, and whether it must be told at once."""


class Fetch:
    """One request: its targets, and while it waits the partitions that shall tell of progress."""

    __slots__ = (
        "ctx",
        "incremental",
        "max_bytes",
        "min_bytes",
        "missing_bytes",
        "only_leader",
        "read_committed",
        "session",
        "svc",
        "targets",
        "timer",
        "watched",
    )

    def __init__(
        self,
        svc: Services,
        ctx: RequestContext,
        req: FetchRequest,
        targets: dict[TargetKey, FetchTarget],
        session: FetchSession | None,
        incremental: bool,
    ) -> None:
        self.svc = svc
        self.incremental = incremental
        self.ctx = ctx
        self.targets = targets
        self.session = session
        self.max_bytes = min(req.max_bytes, svc.config.get_int("fetch.max.bytes"))
        self.min_bytes = min(req.min_bytes, self.max_bytes)
        self.read_committed = req.isolation_level == READ_COMMITTED
        self.only_leader = ctx.api_version < 11
        self.timer: Any = None
        self.watched: list[Partition] = []
        self.missing_bytes = 0

    def start(self, max_wait_ms: int) -> object:
        answers, size, at_once = self._plan()
        if size >= self.min_bytes or at_once or max_wait_ms <= 0 or not self.targets or (size and has_more(answers)):
            return self.respond(answers)
        self.missing_bytes = self.min_bytes - size
        self._watch()
        self.timer = self.svc.timers.after(max_wait_ms / 1000, self.answer_now)
        self.ctx.on_close(self._unlink)
        return PENDING

    def _watch(self) -> None:
        for partition in self.watched:
            self.watch_one(partition, self)

    def watch_one(self, partition: Partition, waiter: ProgressWaiter) -> None:
        partition.add_waiter(waiter)

    def progress(self, added_bytes: int) -> None:
        """Part of `ProgressWaiter`."""
        if not self.watched:
            return  # answered a moment ago, by what told us first
        self.missing_bytes -= added_bytes
        # The end of a transaction is a few bytes, and makes all of it readable.
        if added_bytes and self.missing_bytes > 0 and not self.read_committed:
            return
        answers, size, at_once = self._plan()
        if size >= self.min_bytes or at_once or (size and has_more(answers)):
            self._finish(answers)
        else:
            self.missing_bytes = self.min_bytes - size

    def answer_now(self) -> None:
        """Part of `ProgressWaiter`: the time is over, or the broker stops."""
        self._finish(self._plan()[0])

    def _finish(self, answers: list[Answer]) -> None:
        self._unlink()
        self.ctx.reply(self.respond(answers))

    def let_go(self) -> str:
        """Part of `Concerned`."""
        self._unlink()
        return self.ctx.let_go()

    def _unlink(self) -> None:
        for partition in self.watched:
            partition.remove_waiter(self)
        self.watched = []
        if self.timer is not None:
            self.timer.cancel()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        """Read everything once: the answers, their bytes, and whether something must be told at once."""
        return self.look(self.targets.values(), 0, not self.watched)

    def look(self, targets: Iterable[FetchTarget], size: int, first_wait: bool) -> Plan:
        """As `_plan`, of some targets, after others that gave `size` bytes. first_wait: note whom to wait for."""
        left_bytes = self.max_bytes - size
        at_once = False
        answers: list[Answer] = []
        incremental = self.incremental
        anybody = not self.only_leader
        for target in targets:
            try:
                partition = target.partition
                if partition is None or not partition.is_leader:
                    partition = target.partition = find_partition(self.svc, target)
                if first_wait:
                    self.watched.append(partition)
                if incremental and (partition.is_leader or anybody) and _is_quiet(partition, target):
                    continue
                data = self._read(partition, target, left_bytes, size == 0)
            except KafkaError as error:
                at_once = True
                data = self._failed(target, error, size)
            else:
                read = len(data.records)
                size += read
                left_bytes -= read
                if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                    at_once = True
            answers.append((target, data))
        return answers, size, at_once

    def _failed(self, target: FetchTarget, error: KafkaError, size: int) -> Any:
        """size: how many bytes were found in other partitions."""
        code = error.code
        partition = target.partition
        if size and partition is not None and isinstance(error, StorageError) and error.is_ours:
            # As many files are open as may be: what there is goes first, as when an answer is full.
            return PartitionData(
                partition_index=target.index,
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=partition.log_start_offset,
                aborted_transactions=None,
                records=b"",
            )
        if code == ErrorCode.KAFKA_STORAGE_ERROR and self.ctx.api_version < 6:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # which older clients know to retry
        return partition_error(target, code)

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        if not partition.is_leader or target.current_leader_epoch >= 0:
            partition.check_leader_epoch(target.current_leader_epoch, only_leader=self.only_leader)
        high_watermark = partition.high_watermark
        last_stable_offset = partition.last_stable_offset
        offset = target.fetch_offset
        # A session may have been begun by a newer request than this one, which has no place for such an answer.
        if target.last_fetched_epoch >= 0 and self.ctx.api_version >= 12:
            diverging = _diverging(partition, target)
            if diverging is not None:
                return diverging
        records = partition.read(
            offset,
            min(target.max_bytes, left_bytes),
            upper_offset=last_stable_offset if self.read_committed else high_watermark,
            min_one_batch=first,
        )
        aborted = _aborted(partition, records, offset, last_stable_offset) if self.read_committed else None
        return PartitionData(
            partition_index=target.index,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=aborted,
            records=b"" if records is None else records,
        )

    def begin_plan(self) -> None:
        """Before a plan is made, maybe in parts."""

    # -- answering ---------------------------------------------------------------------------------------------------

    def respond(self, answers: list[Answer]) -> FetchResponse:
        session = self.session
        session_id = 0
        if session is not None:
            session_id = session.session_id
            answers = _note_sent(session, answers, self.incremental)
        by_topic: dict[Any, Any] = {}
        responses = []
        hints = None
        for target, data in answers:
            name = target.key[0]
            topic = by_topic.get(name)
            if topic is None:
                topic = by_topic[name] = FetchResponse.FetchableTopicResponse(
                    topic=target.topic or "", topic_id=target.topic_id, partitions=[]
                )
                responses.append(topic)
            topic.partitions.append(data)
            if data.error_code and data.error_code in HINTED_IN_FETCH and self.ctx.api_version >= 16:
                if hints is None:
                    hints = LeaderHints(self.svc, self.ctx.listener)
                data.current_leader = FetchResponse.LeaderIdAndEpoch()
                hints.fill(data.current_leader, target.topic, target.topic_id, target.index)
        response = FetchResponse(session_id=session_id, responses=responses)
        if hints is not None:
            response.node_endpoints = hints.endpoints(FetchResponse.NodeEndpoint)
        return response


class FetchBelow10(Fetch):
    """By clients who do not know zstd. Of a topic that takes any codec they get what there is, as from Apache
    Kafka.
    """

    __slots__ = ()

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        if partition.log.state.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return super()._read(partition, target, left_bytes, first)


class AnyReplicaFetch(Fetch):
    """By Apache Kafka's tool that compares replicas (replica id -2): from any of them, up to its log's end."""

    __slots__ = ()

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        partition.check_leader_epoch(target.current_leader_epoch, only_leader=False)
        return _up_to_the_end(partition, target, left_bytes, first)


class RackFetch(Fetch):
    """By a consumer that says in which rack it is, where `replica.selector.class` is `RackAwareReplicaSelector`."""

    __slots__ = ("rack",)

    def __init__(self, *fetch: Any) -> None:
        super().__init__(*fetch)
        self.rack = ""

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        leader = partition.leader
        if leader is not None:
            preferred = self._preferred(leader, target.fetch_offset)
            if preferred is not None:
                partition.check_leader_epoch(target.current_leader_epoch)
                return PartitionData(
                    partition_index=target.index,
                    high_watermark=partition.high_watermark,
                    last_stable_offset=partition.last_stable_offset,
                    log_start_offset=partition.log_start_offset,
                    aborted_transactions=None,
                    preferred_read_replica=preferred,
                    records=b"",
                )
        return super()._read(partition, target, left_bytes, first)

    def _preferred(self, leader: LeaderState, offset: int) -> int | None:
        """The in-sync replica of that rack which has the offset and most of what follows; None: the leader."""
        brokers = self.svc.image.brokers
        if self._is_near(brokers.get(leader.broker_id)):
            return None
        best = None
        for broker_id, follower in leader.followers.items():
            if (
                broker_id in leader.isr
                and follower.log_start_offset <= offset <= follower.log_end_offset
                and self._is_near(brokers.get(broker_id))
            ):
                rank = (follower.log_end_offset, follower.caught_up_at, broker_id)
                if best is None or rank > best:
                    best = rank
        return None if best is None else best[2]

    def _is_near(self, broker: BrokerImage | None) -> bool:
        return broker is not None and broker.rack == self.rack and broker.endpoint(self.ctx.listener) is not None


class FollowerFetch(Fetch):
    """By another broker that replicates. Its first look reports the follower's progress.

    `tell_high_watermark`: answer as soon as the follower can be told a new high watermark, because consumers read
    from it; without them it hears of it with the next records, or after its `max_wait_ms`, as from Apache Kafka.
    """

    __slots__ = ("broker_epoch", "replica_id", "report", "reported", "tell_high_watermark", "throttled_bytes")

    def __init__(self, *fetch: Any) -> None:
        super().__init__(*fetch)
        self.replica_id = -1
        self.broker_epoch = -1
        self.report = True
        self.reported = False
        self.tell_high_watermark = False
        self.throttled_bytes = 0

    def watch_one(self, partition: Partition, waiter: ProgressWaiter) -> None:
        partition.add_waiter(waiter, at_log_end=True)
        if self.tell_high_watermark:
            partition.add_waiter(waiter)

    def begin_plan(self) -> None:
        self.report, self.reported = not self.reported, True
        self.throttled_bytes = 0

    def _plan(self) -> Plan:
        self.begin_plan()
        return super()._plan()

    def look(self, targets: Iterable[FetchTarget], size: int, first_wait: bool) -> Plan:
        left_bytes = self.max_bytes - size
        at_once = False
        answers: list[Answer] = []
        incremental = self.incremental
        report = self.report
        replica_id = self.replica_id
        broker_epoch = self.broker_epoch
        now = self.svc.now()
        throttle = self.svc.partitions.leader_throttle
        for target in targets:
            if target.settled and _is_still_settled(target, replica_id, report, now):
                if first_wait:
                    self.watched.append(target.partition)  # type: ignore[arg-type]
                continue
            try:
                partition = target.partition
                if partition is None or not partition.is_leader:
                    partition = target.partition = find_partition(self.svc, target)
                if first_wait:
                    self.watched.append(partition)
                partition.check_follower(replica_id, target.current_leader_epoch)
                data = self._read(partition, target, left_bytes, size == 0)
                if report and data.diverging_epoch.epoch < 0:
                    partition.follower_fetched(
                        replica_id, broker_epoch, target.fetch_offset, target.log_start_offset, now
                    )
                    data.high_watermark = partition.high_watermark
                if throttle.limited and len(data.records) and throttle.covers(partition):
                    if replica_id not in partition.isr and throttle.exceeded(now):
                        data.records = b""
                    self.throttled_bytes += len(data.records)
            except KafkaError as error:
                at_once = True
                data = self._failed(target, error, size)
            else:
                read = len(data.records)
                size += read
                left_bytes -= read
                news = data.high_watermark > target.known_high_watermark
                if self.tell_high_watermark:
                    news |= data.high_watermark > target.sent_high_watermark
                if news or data.diverging_epoch.epoch >= 0:
                    at_once = True
                elif (
                    incremental
                    and not read
                    and data.high_watermark == target.sent_high_watermark
                    and data.log_start_offset == target.sent_log_start_offset
                ):
                    target.settled = True
                    continue
            answers.append((target, data))
        return answers, size, at_once

    def _read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
        version = self.ctx.api_version
        if version < 10 and partition.log.state.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if target.last_fetched_epoch >= 0 and version >= 12:
            diverging = _diverging(partition, target)
            if diverging is not None:
                return diverging
        return _up_to_the_end(partition, target, left_bytes, first)

    def respond(self, answers: list[Answer]) -> FetchResponse:
        if self.throttled_bytes:
            self.svc.partitions.leader_throttle.record(self.throttled_bytes, self.svc.now())
            self.throttled_bytes = 0  # a large answer is made in parts
        return super().respond(answers)


def _is_still_settled(target: FetchTarget, replica_id: int, report: bool, now: float) -> bool:
    """The follower had everything the last time, and nothing has happened since: most partitions of a follower's
    session, most of the time. With `report` this, too, is a sign of life.
    """
    partition = target.partition
    leader = partition.leader if partition is not None else None
    if leader is None or partition is None or leader.leader_epoch != target.current_leader_epoch:
        return False
    follower = leader.followers.get(replica_id)
    log = partition.log.state
    if (
        follower is None
        or not follower.log_end_offset == target.fetch_offset == log.log_end_offset
        or partition.high_watermark != target.sent_high_watermark
        or log.log_start_offset != target.sent_log_start_offset
        or replica_id not in leader.maximal_isr
    ):
        return False
    if report:
        follower.fetched_at = follower.caught_up_at = now
    return True


def has_more(answers: list[Answer]) -> bool:
    """A slice ends where its segment does and the log goes on in another: no use in waiting for more of it."""
    return any(
        isinstance(data.records, FileSlice)
        and target.partition is not None
        and not target.partition.log.is_at_end(data.records)
        for target, data in answers
    )


def _aborted(partition: Partition, records: FileSlice | None, offset: int, last_stable_offset: int) -> Any:
    """What a `read_committed` consumer has to leave out of `records`, in the order of the transactions' ends."""
    if records is None:
        return []
    found = partition.log.aborted_in(records, offset, last_stable_offset)
    return [AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found]


def _up_to_the_end(partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
    records = partition.read(
        target.fetch_offset,
        min(target.max_bytes, left_bytes),
        upper_offset=partition.log.state.log_end_offset,
        min_one_batch=first,
    )
    return PartitionData(
        partition_index=target.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.state.log_start_offset,
        aborted_transactions=None,
        records=b"" if records is None else records,
    )


def _diverging(partition: Partition, target: FetchTarget) -> Any:
    """The fetcher's last epoch ended earlier here than it believes (KIP-595): tell it where to truncate to."""
    epoch, end_offset = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
    if epoch < 0 or target.fetch_offset < partition.log.state.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
        return PartitionData(
            partition_index=target.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=None,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset),
            records=b"",
        )
    return None


def partition_error(target: FetchTarget, code: ErrorCode) -> Any:
    """The answer for a partition that cannot be read."""
    return PartitionData(partition_index=target.index, error_code=code, high_watermark=-1, records=b"")


def _is_quiet(partition: Partition, target: FetchTarget) -> bool:
    """Nothing to read and nothing new to tell: most partitions of a large session, most of the time."""
    return (
        target.fetch_offset == partition.high_watermark == target.sent_high_watermark
        and target.sent_log_start_offset == partition.log.state.log_start_offset
        and target.current_leader_epoch in (-1, partition.leader_epoch)
        and target.last_fetched_epoch in (-1, partition.leader_epoch)
    )


def _note_sent(session: FetchSession, answers: list[Answer], incremental: bool) -> list[Answer]:
    """Remember what the session's client will know; of an incremental answer keep only what is new to it."""
    kept = []
    targets = session.targets
    for answer in answers:
        target, data = answer
        news = not incremental
        if data.records is not None and len(data.records):
            news = True
            # Whoever got data goes to the end of the queue, so that a response limit does not starve the others.
            if target.key in targets:
                targets[target.key] = targets.pop(target.key)
        if data.error_code:
            news = True
            target.sent_high_watermark = NOT_SENT  # mentioned again when the error is over
        else:
            if (
                data.high_watermark != target.sent_high_watermark
                or data.log_start_offset != target.sent_log_start_offset
            ):
                news = True
                target.sent_high_watermark = data.high_watermark
                target.sent_log_start_offset = data.log_start_offset
            if data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                news = True
        if news:
            kept.append(answer)
    return kept

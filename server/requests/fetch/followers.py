"""The reader for followers: other brokers, which replicate from this leader."""

from __future__ import annotations

from barnabas.kproto.messages import FetchRequest
from barnabas.server.partitions.host import ProgressWaiter
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fetch.reader import (
    ZSTD_FROM,
    Answer,
    Found,
    diverging_answer,
    read_to_log_end,
    refuse_zstd,
)
from barnabas.server.requests.fetch.sessions import FetchTarget
from barnabas.server.requests.fetch.targets import REPLICA_STATE_FROM
from barnabas.server.requests.services import Services


class FollowerReader:
    """For a follower: up to the log end offset. Its first read reports the follower's progress, since the fetch offset
    is the follower's log end offset; later reads never do.

    `incremental`: partitions without changes are left out. `notify_high_watermark`: answer as soon as the high
    watermark rises, because consumers read from the follower; otherwise it gets the high watermark with the next
    records, or after its `max_wait_ms`, as from Apache Kafka.
    """

    __slots__ = (
        "broker_epoch",
        "incremental",
        "notify_high_watermark",
        "now",
        "replica_id",
        "report",
        "svc",
        "throttle",
        "throttled_bytes",
        "version",
    )
    read_committed = False

    def __init__(
        self,
        svc: Services,
        version: int,
        req: FetchRequest,
        replica_id: int,
        incremental: bool,
        notify_high_watermark: bool,
    ) -> None:
        self.svc = svc
        self.version = version
        self.replica_id = replica_id
        self.broker_epoch = req.replica_state.replica_epoch if version >= REPLICA_STATE_FROM else -1
        self.incremental = incremental
        self.notify_high_watermark = notify_high_watermark
        self.report = True
        self.now = svc.now()
        self.throttle = svc.partitions.leader_throttle
        self.throttle.refresh(svc.config)
        self.throttled_bytes = 0

    def read_again(self) -> None:
        """Part of `Reader`."""
        self.report = False
        self.now = self.svc.now()
        self.throttled_bytes = 0

    def next_part(self) -> None:
        """Part of `Reader`."""
        self.now = self.svc.now()

    def is_quiet(self, partition: Partition, target: FetchTarget) -> bool:
        """Part of `Reader`. The follower was caught up, and nothing has changed since. Reports that it still is."""
        leader = partition.leader
        if not target.settled or leader is None or leader.leader_epoch != target.current_leader_epoch:
            return False
        follower = leader.followers.get(self.replica_id)
        log = partition.log.state
        if (
            follower is None
            or not follower.log_end_offset == target.fetch_offset == log.log_end_offset
            or partition.high_watermark != target.sent_high_watermark
            or log.log_start_offset != target.sent_log_start_offset
            or self.replica_id not in leader.maximal_isr
        ):
            return False
        if self.report:
            follower.fetched_at = follower.caught_up_at = self.now
        return True

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Part of `Reader`."""
        replica_id = self.replica_id
        partition.check_follower(replica_id, target.current_leader_epoch)
        if self.version < ZSTD_FROM:
            refuse_zstd(partition)
        if target.last_fetched_epoch >= 0 and self.version >= 12:
            diverging = diverging_answer(partition, target)
            if diverging is not None:
                return diverging, True
        data = read_to_log_end(partition, target, left_bytes, first)
        if self.report:
            partition.follower_fetched(
                replica_id, self.broker_epoch, target.fetch_offset, target.log_start_offset, self.now
            )
            data.high_watermark = partition.high_watermark
        throttle = self.throttle
        if throttle.limited and len(data.records) and throttle.covers(partition.topic, partition.index):
            if replica_id not in partition.isr and throttle.exceeded(self.now):
                data.records = b""
            self.throttled_bytes += len(data.records)
        high_watermark = data.high_watermark
        if high_watermark > target.known_high_watermark or (
            self.notify_high_watermark and high_watermark > target.sent_high_watermark
        ):
            return data, True
        if (
            self.incremental
            and high_watermark == target.sent_high_watermark
            and data.log_start_offset == target.sent_log_start_offset
            and not len(data.records)
        ):
            target.settled = True
            return None, False
        return data, False

    def watch(self, partition: Partition, waiter: ProgressWaiter) -> None:
        """Part of `Reader`."""
        partition.add_waiter(waiter, at_log_end=True)
        if self.notify_high_watermark:
            partition.add_waiter(waiter)

    def answering(self, answers: list[Answer]) -> None:
        """Part of `Reader`."""
        for target, data in answers:
            if data.records and target.partition is not None:
                target.partition.traffic.replication_bytes_out += len(data.records)
        if self.throttled_bytes:
            self.throttle.record(self.throttled_bytes, self.svc.now())
            self.throttled_bytes = 0  # a large response is made in parts

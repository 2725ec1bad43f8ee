"""Readers for consumers, and for a tool that looks like one."""

from __future__ import annotations

from typing import Any

from barnabas.kproto.messages import FetchResponse
from barnabas.logdir import FileSlice
from barnabas.replication import BrokerImage, LeaderState
from barnabas.server.partitions.host import ProgressWaiter
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fetch.reader import (
    Answer,
    Found,
    PartitionData,
    diverging_answer,
    read_to_log_end,
    refuse_zstd,
    without_records,
)
from barnabas.server.requests.fetch.sessions import FetchTarget
from barnabas.server.requests.services import Services

READ_COMMITTED = 1
FOLLOWERS_FROM = 11
"""From this version on consumers may read from followers."""

AbortedTransaction = FetchResponse.AbortedTransaction


class ConsumerReader:
    """For a consumer: up to the high watermark, or the last stable offset. `version`: of the request. Stateless."""

    __slots__ = ("read_committed", "version")

    def __init__(self, version: int, read_committed: bool) -> None:
        self.version = version
        self.read_committed = read_committed

    def read_again(self) -> None:
        """Part of `Reader`."""

    def next_part(self) -> None:
        """Part of `Reader`."""

    def is_quiet(self, partition: Partition, target: FetchTarget) -> bool:
        """Part of `Reader`."""
        return (
            target.fetch_offset == partition.high_watermark == target.sent_high_watermark
            and target.sent_log_start_offset == partition.log.state.log_start_offset
            and (target.current_leader_epoch < 0 or target.current_leader_epoch == partition.leader_epoch)
            and (target.last_fetched_epoch < 0 or target.last_fetched_epoch == partition.leader_epoch)
            and (partition.is_leader or self.version >= FOLLOWERS_FROM)
        )

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Part of `Reader`."""
        if not partition.is_leader or target.current_leader_epoch >= 0:
            partition.check_leader_epoch(target.current_leader_epoch, only_leader=self.version < FOLLOWERS_FROM)
        high_watermark = partition.high_watermark
        last_stable_offset = partition.last_stable_offset
        offset = target.fetch_offset
        # The session may have been opened by a newer version; this one has no field for such an answer.
        if target.last_fetched_epoch >= 0 and self.version >= 12:
            diverging = diverging_answer(partition, target)
            if diverging is not None:
                return diverging, True
        records = partition.read(
            offset,
            min(target.max_bytes, left_bytes),
            upper_offset=last_stable_offset if self.read_committed else high_watermark,
            min_one_batch=first,
        )
        aborted = _aborted(partition, records, offset, last_stable_offset) if self.read_committed else None
        data = PartitionData(
            partition_index=target.index,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=aborted,
            records=b"" if records is None else records,
        )
        return data, False

    def watch(self, partition: Partition, waiter: ProgressWaiter) -> None:
        """Part of `Reader`."""
        partition.add_waiter(waiter)

    def answering(self, answers: list[Answer]) -> None:
        """Part of `Reader`."""
        for target, data in answers:
            if data.records and target.partition is not None:
                target.partition.traffic.bytes_out += len(data.records)


class ReaderWithoutZstd(ConsumerReader):
    """For consumers without zstd. Of a topic with compression.type=producer they get the batches as they are, as from
    Apache Kafka.
    """

    __slots__ = ()

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Part of `Reader`."""
        refuse_zstd(partition)
        return super().read(partition, target, left_bytes, first)


class AnyReplicaReader(ConsumerReader):
    """For Apache Kafka's tool that compares replicas: from any replica, up to its log end offset."""

    __slots__ = ()

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Part of `Reader`."""
        partition.check_leader_epoch(target.current_leader_epoch, only_leader=False)
        return read_to_log_end(partition, target, left_bytes, first), False


class RackReader(ConsumerReader):
    """For a consumer with a rack, where `replica.selector.class` is `RackAwareReplicaSelector`. `listener`: the one
    that it uses, and would use at the other replica.
    """

    __slots__ = ("listener", "rack", "svc")

    def __init__(self, version: int, read_committed: bool, svc: Services, rack: str, listener: str) -> None:
        super().__init__(version, read_committed)
        self.svc = svc
        self.rack = rack
        self.listener = listener

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Part of `Reader`."""
        leader = partition.leader
        if leader is not None:
            preferred = self._preferred(leader, target.fetch_offset)
            if preferred is not None:
                partition.check_leader_epoch(target.current_leader_epoch)
                data = without_records(partition, target)
                data.preferred_read_replica = preferred
                return data, True
        return super().read(partition, target, left_bytes, first)

    def _preferred(self, leader: LeaderState, offset: int) -> int | None:
        """The in-sync replica of that rack with the offset and the highest log end offset; None: the leader."""
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
        return broker is not None and broker.rack == self.rack and broker.endpoint(self.listener) is not None


def _aborted(partition: Partition, records: FileSlice | None, offset: int, last_stable_offset: int) -> Any:
    """The aborted transactions in `records`, for a `read_committed` consumer, in the order of their ends."""
    if records is None:
        return []
    found = partition.log.aborted_in(records, offset, last_stable_offset)
    return [AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found]

"""The interface of readers, and what several of them share."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import FetchResponse
from barnabas.server.partitions.host import ProgressWaiter
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fetch.sessions import FetchTarget

ZSTD_FROM = 10
"""Clients of lower versions do not know zstd."""

PartitionData = FetchResponse.PartitionData
Answer = tuple[FetchTarget, FetchResponse.PartitionData]
Found = tuple[Any, bool]
"""A partition's answer (`PartitionData`), None if an incremental fetch can leave it out; and whether to send it
immediately, even without records.
"""


class Reader(Protocol):
    """Reads for one kind of fetcher. `read_committed`: the end of a transaction may make many records readable."""

    @property
    def read_committed(self) -> bool: ...

    def read_again(self) -> None:
        """Called before all partitions are read again."""

    def next_part(self) -> None:
        """Called before each part of the partitions: time has passed since the last one."""

    def is_quiet(self, partition: Partition, target: FetchTarget) -> bool:
        """Whether there are no records and no changes to report: true of most partitions of a large session, most of
        the time. Called for incremental fetches only, which leave such partitions out.
        """

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Read at most `left_bytes` of records, but at least a batch if this is the `first` partition with records.
        Raises KafkaError.
        """

    def watch(self, partition: Partition, waiter: ProgressWaiter) -> None:
        """Notify `waiter` of what this fetcher may read."""

    def answering(self, answers: list[Answer]) -> None:
        """Called with what goes into the response, or into a part of it."""


def refuse_zstd(partition: Partition) -> None:
    """Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE if the topic's codec is zstd."""
    if partition.log.state.config.compression_type == "zstd":
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def read_to_log_end(partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Any:
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


def diverging_answer(partition: Partition, target: FetchTarget) -> Any:
    """The answer with the diverging epoch, to which the fetcher truncates (KIP-595); None: its log does not diverge."""
    epoch, end_offset = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
    if epoch < 0 or target.fetch_offset < partition.log.state.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
        data = without_records(partition, target)
        data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return data
    return None


def without_records(partition: Partition, target: FetchTarget) -> Any:
    """The partition's answer with its offsets only."""
    return PartitionData(
        partition_index=target.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def partition_error(target: FetchTarget, code: ErrorCode) -> Any:
    """The answer for a partition that cannot be read."""
    return PartitionData(partition_index=target.index, error_code=code, high_watermark=-1, records=b"")

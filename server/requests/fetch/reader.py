"""What a fetch asks of whoever reads for it, and what several readers share."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import FetchResponse
from barnabas.server.partitions.host import ProgressWaiter
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fetch.sessions import FetchTarget

ZSTD_FROM = 10
"""Who speaks lower versions does not know that codec."""

PartitionData = FetchResponse.PartitionData
Answer = tuple[FetchTarget, FetchResponse.PartitionData]
Found = tuple[Any, bool]
"""A partition's answer (`PartitionData`), None if an incremental fetch need not mention it; and whether it must be told
at once, even if it is no bytes.
"""


class Reader(Protocol):
    """How one kind of fetcher is read for. `read_committed`: the end of a transaction may make much readable."""

    @property
    def read_committed(self) -> bool: ...

    def begin_again(self) -> None:
        """All partitions were read once, and are read again."""

    def go_on(self) -> None:
        """Some time has passed between one part of the partitions and the next."""

    def is_quiet(self, partition: Partition, target: FetchTarget) -> bool:
        """Whether there is nothing to read and nothing new to tell: most partitions of a large session, most of the
        time. Asked of incremental fetches alone, which need not mention those.
        """

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """What the partition has, at most `left_bytes` of records, but for the first batch if it is the `first` one
        that has any. Raises KafkaError.
        """

    def watch(self, partition: Partition, waiter: ProgressWaiter) -> None:
        """Have `waiter` told of what this fetcher may read."""

    def answering(self, answers: list[Answer]) -> None:
        """These become the answer, or a part of it."""


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
    """The fetcher's last epoch ended earlier here than it believes (KIP-595): tell it where to truncate to."""
    epoch, end_offset = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
    if epoch < 0 or target.fetch_offset < partition.log.state.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
        data = without_records(partition, target)
        data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return data
    return None


def without_records(partition: Partition, target: FetchTarget) -> Any:
    """The partition's answer, with its offsets alone."""
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

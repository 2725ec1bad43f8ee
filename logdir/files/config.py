"""What a log needs to know of its topic's configuration.

Field names are Apache Kafka's topic-level keys in snake_case, units last. Parsing text and laying the broker's
defaults under it is the server's business; a change of configuration is a new value put in place of the old one
(`PartitionLog.config`).

Not here: tiered storage (`remote.*`, `local.*`) and replication throttles, which do not concern the log.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_MAX = 2**63 - 1

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""`compression.type` to codec number; `producer` is not a codec: batches stay as they come."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one topic. Times are milliseconds, sizes bytes; -1 stands for no limit where Kafka says so."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    validate_records: bool = True
    """Not a key of Kafka's. Check every record of every batch, as Apache Kafka does; else only where the header does
    not suffice. It costs about 0.1 to 0.6 us a record, more if compressed. Without it a producer that lies inside of a
    batch with a right checksum is found out by the consumers."""

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Records carry the broker's time, not the producer's."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def codec(self) -> int | None:
        """The codec that stored batches must have; None keeps the producer's."""
        return CODECS.get(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """Level for `codec`; None is the library's default."""
        if self.compression_type == "gzip":
            return None if self.compression_gzip_level == -1 else self.compression_gzip_level
        if self.compression_type == "lz4":
            return self.compression_lz4_level
        if self.compression_type == "zstd":
            return self.compression_zstd_level
        return None

    @property
    def max_segment_ms(self) -> int:
        """Age at which a segment is rolled: compaction must get at it in time."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

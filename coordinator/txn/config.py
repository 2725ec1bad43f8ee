"""The settings that the transaction machine reads; named as Apache Kafka's, units last."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TxnConfig:
    """Defaults are Apache Kafka's. All `_ms` are milliseconds.

    `transaction_version`: the level at which the feature is finalised. 0 writes records of value version 0, 1 of
    value version 1 (tagged fields), 2 also bumps the epoch when the coordinator itself aborts (KIP-890).
    `transaction_abort_timed_out_transaction_cleanup_interval_ms`: Apache Kafka looks for transactions that are out of
    time this often. Here each has its own deadline, and this is how long an abort that could not be written waits for
    the next try.
    """

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_two_phase_commit_enable: bool = False
    transaction_version: int = 0

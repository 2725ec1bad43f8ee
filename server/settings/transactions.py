"""Settings of transactions and of the internal topic that holds their states."""

from __future__ import annotations

from barnabas.server.settings.model import (
    LEAST_SEGMENT_BYTES,
    PARTITIONS_AT_ONCE,
    Scope,
    Setting,
    Type,
    at_least,
    between,
    no_effect,
    only,
    works,
)

_BY_CLIENT = "a producer that comes too early gets CONCURRENT_TRANSACTIONS, and asks again"

SETTINGS: tuple[Setting, ...] = (
    works(
        "transaction.max.timeout.ms",
        Type.INT,
        900000,
        "Longest time-out that a transactional producer may ask for. A transaction that is open for longer than its "
        "time-out is aborted.",
        at_least(1),
    ),
    works(
        "transactional.id.expiration.ms",
        Type.INT,
        604800000,
        "How long an unused transactional id is kept.",
        at_least(1),
    ),
    works(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Type.INT,
        10000,
        "How long an abort that could not be written waits for the next attempt. Every transaction is aborted "
        "when its own time is up.",
        at_least(1),
    ),
    works(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Type.INT,
        3600000,
        "How often the broker removes expired transactional ids.",
        at_least(1),
    ),
    works(
        "transaction.partition.verification.enable",
        Type.BOOLEAN,
        True,
        "Whether the leader of a partition asks the coordinator if a transaction that it does not know is open.",
        scope=Scope.CLUSTER,
    ),
    works(
        "transaction.state.log.num.partitions",
        Type.INT,
        50,
        "How many partitions __transaction_state is created with. It must not change afterwards.",
        between(1, PARTITIONS_AT_ONCE),
    ),
    works(
        "transaction.state.log.replication.factor",
        Type.SHORT,
        1,
        "How many replicas __transaction_state is created with. Without this setting it is 3 in a cluster, and 1 on a "
        "broker that runs alone. With fewer brokers alive it is not made, and transactions must wait.",
        at_least(1),
        kafka_default="3",
    ),
    works(
        "transaction.state.log.min.isr",
        Type.INT,
        1,
        "The min.insync.replicas that __transaction_state is created with. Without this setting it is 2 in a cluster, "
        "and 1 on a broker that runs alone.",
        at_least(1),
        kafka_default="2",
    ),
    works(
        "transaction.state.log.segment.bytes",
        Type.INT,
        104857600,
        "Size of a log file of __transaction_state in bytes.",
        at_least(LEAST_SEGMENT_BYTES),
    ),
    no_effect(
        "transaction.state.log.load.buffer.size",
        Type.INT,
        5242880,
        "stored transactions are read in pieces of a fixed size",
        at_least(1),
    ),
    no_effect("add.partitions.to.txn.retry.backoff.ms", Type.INT, 20, _BY_CLIENT, at_least(1)),
    no_effect("add.partitions.to.txn.retry.backoff.max.ms", Type.INT, 100, _BY_CLIENT, at_least(0)),
    only(
        "transaction.two.phase.commit.enable",
        Type.BOOLEAN,
        False,
        "Whether transactions may take part in a two-phase commit.",
        "two-phase commit (KIP-939) is not served",
    ),
)

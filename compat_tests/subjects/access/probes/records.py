"""Records: Produce, Fetch, and what else is asked of a partition's leader."""

from __future__ import annotations

import time

from barnabas.kproto import ApiKey
from barnabas.kproto.records import Record, build_batch
from barnabas.kproto.records_legacy import build_message_set
from compat_tests.subjects.access.acls import Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import Of, cluster, three, three_names, topic, transaction

NOW_MS = int(time.time() * 1000)
PRODUCER = 1 << 40
"""An id that nobody was given."""


def batch(*, transactional: bool = False) -> bytes:
    records = [Record(0, NOW_MS, b"k", b"v")]
    if transactional:
        return bytes(build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True))
    return bytes(build_batch(records))


def _old_records() -> bytes:
    return bytes(build_message_set([Record(0, NOW_MS, b"k", b"v")], magic=0))


def _produce(acks: int = 1, *, transactional: bool = False, with_id: bool = False, old: bool = False) -> Of:
    def values(names: Names) -> Values:
        partition = {"index": 0, "records": _old_records() if old else batch(transactional=transactional)}
        topics = three(names, partition_data=[partition])
        return {
            "transactional_id": names.transaction if with_id else None,
            "acks": acks,
            "timeout_ms": 1000,
            "topic_data": topics if acks else topics[:1],
        }

    return values


def _fetch(replica: int = -1) -> Of:
    def values(names: Names) -> Values:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
        return {
            "replica_id": replica,
            "replica_state": {"replica_id": replica, "replica_epoch": -1},
            "max_bytes": 1000,
            "topics": three(names, "topic", partitions=[partition]),
        }

    return values


PROBES = (
    Probe("Produce", ApiKey.PRODUCE, _produce(), (topic(Op.WRITE),), versions=(3, 99)),
    Probe("Produce, acks=0", ApiKey.PRODUCE, _produce(0), (topic(Op.WRITE),), versions=(3, 99), answered=False),
    Probe(
        "Produce in a transaction",
        ApiKey.PRODUCE,
        _produce(-1, transactional=True, with_id=True),
        (transaction(Op.WRITE), topic(Op.WRITE)),
        versions=(3, 99),
    ),
    Probe(
        "Produce in a transaction, acks=0",
        ApiKey.PRODUCE,
        _produce(0, transactional=True, with_id=True),
        (transaction(Op.WRITE), topic(Op.WRITE)),
        versions=(3, 99),
        answered=False,
    ),
    Probe(
        "Produce in a transaction, without its id",
        ApiKey.PRODUCE,
        _produce(-1, transactional=True),
        (topic(Op.WRITE),),
        versions=(3, 99),
    ),
    Probe("Fetch", ApiKey.FETCH, _fetch(), (topic(Op.READ),)),
    Probe("Fetch of a follower", ApiKey.FETCH, _fetch(77), (cluster(Op.CLUSTER_ACTION),)),
    Probe(
        "ListOffsets",
        ApiKey.LIST_OFFSETS,
        lambda names: {
            "replica_id": -1,
            "topics": three_names(names, partitions=[{"partition_index": 0, "timestamp": -1}]),
        },
        (topic(Op.DESCRIBE),),
    ),
    Probe(
        "DeleteRecords",
        ApiKey.DELETE_RECORDS,
        lambda names: {
            "topics": three_names(names, partitions=[{"partition_index": 0, "offset": 0}]),
            "timeout_ms": 1000,
        },
        (topic(Op.DELETE),),
    ),
    Probe(
        "OffsetForLeaderEpoch",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        lambda names: {
            "replica_id": -1,
            "topics": three_names(names, "topic", partitions=[{"partition": 0, "leader_epoch": 0}]),
        },
        (topic(Op.DESCRIBE),),
    ),
)
OF_OLD_CLIENTS = (
    Probe("Produce of old records", ApiKey.PRODUCE, _produce(old=True), (topic(Op.WRITE),), versions=(0, 2)),
    Probe(
        "Produce of old records, acks=0",
        ApiKey.PRODUCE,
        _produce(0, old=True),
        (topic(Op.WRITE),),
        versions=(0, 2),
        answered=False,
    ),
)

"""Transactions. The producer ids are nobody's: whoever may ask is told so."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import DENY, Acl, Kind, Op, Pattern
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import cluster, group, three_names, topic, transaction
from compat_tests.subjects.access.probes.records import PRODUCER
from compat_tests.subjects.access.world import World

TIMEOUT_MS = 600_000


def _of_transaction(names: Names) -> Values:
    return {"transactional_id": names.transaction, "producer_id": PRODUCER, "producer_epoch": 0}


def _add_partitions(names: Names) -> Values:
    asked = {**_of_transaction(names), "topics": three_names(names, partitions=[0])}
    return {f"v3_and_below_{name}": value for name, value in asked.items()}


def _verify_partitions(names: Names) -> Values:
    topics = three_names(names, partitions=[0])
    return {"transactions": [{**_of_transaction(names), "verify_only": True, "topics": topics}]}


def _commit(names: Names) -> Values:
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return {
        **_of_transaction(names),
        "group_id": names.group,
        "topics": three_names(names, partitions=[partition]),
    }


def _markers(names: Names) -> Values:
    """Of a topic that is not there, so that nothing is written."""
    marker = {
        "producer_id": PRODUCER,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": names.no_topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


def _open(world: World, names: Names) -> None:
    """A transaction of each id, in both topics."""
    for name in (names.transaction, names.other_transaction):
        values = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS}
        made = world.until_served(ApiKey.INIT_PRODUCER_ID, 3, values)
        topics = [{"name": each, "partitions": [0]} for each in (names.topic, names.other_topic)]
        asked = {
            "transactional_id": name,
            "producer_id": made.producer_id,
            "producer_epoch": made.producer_epoch,
            "topics": topics,
        }
        world.until_served(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, {f"v3_and_below_{field}": value for field, value in asked.items()}
        )


def _on_topics(*acls: tuple[str, int, Pattern]) -> Callable[[Names], list[Acl]]:
    def make(names: Names) -> list[Acl]:
        return [
            Acl(Kind.TOPIC, text.replace("stem", names.stem), Op.WRITE, permission, pattern)
            for text, permission, pattern in acls
        ]

    return make


_LITERAL, _PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
_ALLOW = 3

IDEMPOTENT = {
    "WRITE on some topic": _on_topics(("stem-any", _ALLOW, _LITERAL)),
    "WRITE on topics with a prefix": _on_topics(("stem-", _ALLOW, _PREFIXED)),
    "WRITE on all topics": _on_topics(("*", _ALLOW, _LITERAL)),
    "WRITE on a topic that is denied": _on_topics(("stem-any", _ALLOW, _LITERAL), ("stem-any", DENY, _LITERAL)),
    "WRITE on one topic, another is denied": _on_topics(("stem-any", _ALLOW, _LITERAL), ("stem-x", DENY, _LITERAL)),
    "WRITE on a topic, its prefix is denied": _on_topics(("stem-any", _ALLOW, _LITERAL), ("stem-", DENY, _PREFIXED)),
    "WRITE on a prefix, a shorter one is denied": _on_topics(("stem-a", _ALLOW, _PREFIXED), ("stem-", DENY, _PREFIXED)),
    "WRITE on a prefix, a longer one is denied": _on_topics(("stem-", _ALLOW, _PREFIXED), ("stem-a", DENY, _PREFIXED)),
    "WRITE on a topic, all are denied": _on_topics(("stem-any", _ALLOW, _LITERAL), ("*", DENY, _LITERAL)),
    "WRITE on all topics, a prefix is denied": _on_topics(("*", _ALLOW, _LITERAL), ("stem-", DENY, _PREFIXED)),
    "WRITE on a literal that a prefix names, denied": _on_topics(
        ("stem-", _ALLOW, _PREFIXED), ("stem-", DENY, _LITERAL)
    ),
    "ALL on some topic": lambda names: [Acl(Kind.TOPIC, f"{names.stem}-any", Op.ALL)],
    "READ on some topic": lambda names: [Acl(Kind.TOPIC, f"{names.stem}-any", Op.READ)],
    "WRITE on some topic, ALL on it denied": lambda names: [
        Acl(Kind.TOPIC, f"{names.stem}-any", Op.WRITE),
        Acl(Kind.TOPIC, f"{names.stem}-any", Op.ALL, DENY),
    ],
    "WRITE on some topic, from another host": lambda names: [
        Acl(Kind.TOPIC, f"{names.stem}-any", Op.WRITE, host="192.0.2.1")
    ],
}
"""An idempotent producer may be one where there is a topic that it may write to."""

PROBES = (
    Probe(
        "InitProducerId",
        ApiKey.INIT_PRODUCER_ID,
        lambda names: {"transactional_id": None, "transaction_timeout_ms": TIMEOUT_MS},
        (cluster(Op.IDEMPOTENT_WRITE),),
        also=IDEMPOTENT,
    ),
    Probe(
        "InitProducerId with a transactional id",
        ApiKey.INIT_PRODUCER_ID,
        lambda names: {"transactional_id": names.transaction, "transaction_timeout_ms": TIMEOUT_MS},
        (transaction(Op.WRITE),),
        own=True,
        has_topic=False,
    ),
    Probe(
        "AddPartitionsToTxn",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        _add_partitions,
        (transaction(Op.WRITE), topic(Op.WRITE)),
        versions=(0, 3),
    ),
    Probe(
        "AddPartitionsToTxn of brokers",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        _verify_partitions,
        (cluster(Op.CLUSTER_ACTION),),
        versions=(4, 99),
    ),
    Probe(
        "AddOffsetsToTxn",
        ApiKey.ADD_OFFSETS_TO_TXN,
        lambda names: {**_of_transaction(names), "group_id": names.group},
        (transaction(Op.WRITE), group(Op.READ)),
    ),
    Probe(
        "EndTxn",
        ApiKey.END_TXN,
        lambda names: {**_of_transaction(names), "committed": True},
        (transaction(Op.WRITE),),
    ),
    Probe("WriteTxnMarkers", ApiKey.WRITE_TXN_MARKERS, _markers, (cluster(Op.CLUSTER_ACTION),)),
    Probe(
        "TxnOffsetCommit",
        ApiKey.TXN_OFFSET_COMMIT,
        _commit,
        (transaction(Op.WRITE), group(Op.READ), topic(Op.READ)),
    ),
    Probe(
        "DescribeProducers",
        ApiKey.DESCRIBE_PRODUCERS,
        lambda names: {"topics": three_names(names, partition_indexes=[0])},
        (topic(Op.READ),),
    ),
    Probe(
        "DescribeTransactions",
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda names: {"transactional_ids": [names.transaction, names.other_transaction, names.no_transaction]},
        (transaction(Op.DESCRIBE), topic(Op.DESCRIBE)),
        prepare=_open,
    ),
    Probe(
        "ListTransactions",
        ApiKey.LIST_TRANSACTIONS,
        lambda names: {"state_filters": []},
        (transaction(Op.DESCRIBE),),
        prepare=_open,
        of_others=False,
    ),
)

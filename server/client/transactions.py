"""Transactions: which there are, what holds a partition's last stable offset, and an end to one that hangs.

ListTransactions, DescribeTransactions, DescribeProducers (KIP-664), WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from barnabas.server.client.client import TRANSACTION, Client, Job, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import by_topic


class ListedTransaction(NamedTuple):
    """`state`: as Apache Kafka names it (Ongoing, CompleteCommit, …)."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(NamedTuple):
    """`start_ms`: -1 if none is open. `partitions`: that take part."""

    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """`start_offset` -1: no transaction of it is open here. `last_ms`: of its last batch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_ms: int
    coordinator_epoch: int
    start_offset: int


async def list_transactions(
    client: Client, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
) -> tuple[dict[str, ListedTransaction], dict[int, Failed]]:
    """By transactional id, of these states and producers (none: all); and the brokers that could not be asked. Raises
    ClientError.
    """
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))

    def read(answer: Any, ids: list[int]) -> Iterator[tuple[int, list[Any] | Failed]]:
        yield ids[0], Failed.of(answer.error_code) if answer.error_code else answer.transaction_states

    job: Job[int, list[Any]] = Job(ApiKey.LIST_TRANSACTIONS, lambda ids, version: request, read)
    found: dict[str, ListedTransaction] = {}
    failed: dict[int, Failed] = {}
    for broker_id, rows in (await client.by_broker((await client.refresh([])).brokers, job)).items():
        if isinstance(rows, Failed):
            failed[broker_id] = rows
            continue
        for row in rows:
            found[row.transactional_id] = ListedTransaction(
                row.transactional_id, row.producer_id, row.transaction_state, broker_id
            )
    return dict(sorted(found.items())), failed


async def describe_transactions(client: Client, names: Iterable[str]) -> dict[str, Transaction | Failed]:
    """These transactional ids. Raises ClientError."""

    def read(answer: Any, items: list[str]) -> Iterator[tuple[str, Transaction | Failed]]:
        for row in answer.transaction_states:
            partitions = tuple((topic.topic, index) for topic in row.topics for index in topic.partitions)
            described = Transaction(
                row.transactional_id,
                row.transaction_state,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                row.producer_id,
                row.producer_epoch,
                partitions,
            )
            yield row.transactional_id, Failed.of(row.error_code) if row.error_code else described

    def make(items: list[str], version: int) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=items)

    return await client.by_coordinator(TRANSACTION, names, Job(ApiKey.DESCRIBE_TRANSACTIONS, make, read))


async def describe_producers(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer] | Failed]:
    """Who writes, and whose transactions are open, by each partition's leader. Raises ClientError."""

    def make(items: list[TopicPartition], version: int) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(items).items()
            ]
        )

    def read(
        answer: Any, items: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, list[ActiveProducer] | Failed]]:
        for topic in answer.topics:
            for row in topic.partitions:
                producers = [
                    ActiveProducer(
                        each.producer_id,
                        each.producer_epoch,
                        each.last_sequence,
                        each.last_timestamp,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                    )
                    for each in row.active_producers
                ]
                failed = Failed.of(row.error_code, row.error_message)
                yield (topic.name, row.partition_index), failed if row.error_code else producers

    return await client.by_leader(partitions, Job(ApiKey.DESCRIBE_PRODUCERS, make, read))


async def abort_transaction(client: Client, partition: TopicPartition, producer: ActiveProducer) -> Failed | None:
    """Write the ABORT marker of this producer into the partition, as its coordinator should have. For a transaction
    that hangs: its coordinator no longer knows of it. Raises ClientError.
    """

    def make(items: list[TopicPartition], version: int) -> WriteTxnMarkersRequest:
        (topic, index), *_ = items
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            # An epoch of -1 means that the coordinator of this producer has written nothing into the partition yet.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def read(answer: Any, items: list[TopicPartition]) -> Iterator[tuple[TopicPartition, Failed | None]]:
        for marker in answer.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    yield (topic.name, row.partition_index), Failed.of(row.error_code) if row.error_code else None

    return (await client.by_leader([partition], Job(ApiKey.WRITE_TXN_MARKERS, make, read)))[partition]

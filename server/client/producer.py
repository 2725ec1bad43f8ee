"""Records to partitions over Produce 3-12, with acks=all and, where the broker lets us, idempotent (InitProducerId).

Nothing is kept back: `Producer.send` returns when each record has an answer, so whoever sends much sends lists, and
there is nothing to flush. A batch that failed may or may not be in the log; the producer takes a new id then, as its
numbers would have a gap. What follows it in its partition is not sent, so that no record overtakes another; other
partitions go on. A batch that is too large for the topic is sent again in smaller ones, down to single records, as
Java's producer does: the record that fails in the end is the one that is too large.

Not done: transactions; acks 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import InitProducerIdRequest, ProduceRequest
from barnabas.server.client.batching import BATCH_BYTES_MAX, Batch, Sequences, ToSend, bytes_of, placed, recut
from barnabas.server.client.client import Client, Job, TopicPartition
from barnabas.server.client.failures import Failed, Refused, Unsupported
from barnabas.server.client.offsets import by_topic

ALL: Final = -1
_TIMEOUT_MAX_MS: Final = 60_000
BESIDE: Final = "another record of its batch was refused"
AFTER: Final = "not sent, as a record before it in its partition failed"
_NOT_ALLOWED: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED,)


class Placed(NamedTuple):
    """Where a record is. `offset` -1: it is in the log, and where is not known (an earlier try had succeeded)."""

    topic: str
    partition: int
    offset: int


class Producer:
    """See the module. now_ms(): the wall clock, for records without a time. codec: as `kproto.compression` numbers
    them. idempotent: no record twice, whatever breaks; where the broker does not allow it, it is done without.
    """

    def __init__(
        self, client: Client, now_ms: Callable[[], int], *, codec: int = 0, acks: int = ALL, idempotent: bool = True
    ) -> None:
        self._client = client
        self._now_ms = now_ms
        self._codec = codec
        self._acks = acks
        self._idempotent = idempotent and acks == ALL
        self._sequences: Sequences | None = None
        self._batch_bytes_max = BATCH_BYTES_MAX

    async def send(self, records: Sequence[ToSend]) -> list[Placed | Failed]:
        """Send these records; the results are in their order. Raises ClientError."""
        results: list[Placed | Failed | None] = [None] * len(records)
        partitions = await self._partitions({record.topic for record in records}, records, results)
        there = [index for index, result in enumerate(results) if result is None]
        led = {
            topic: [index for index in every if isinstance(self._client.leader_of((topic, index)), int)] or every
            for topic, every in partitions.items()
        }
        queues = placed([records[index] for index in there], partitions, self._client.rng, led, self._batch_bytes_max)
        for queue in queues.values():
            for batch in queue:
                batch.indexes = [there[index] for index in batch.indexes]
        while queues:
            await self._round(queues, records, results)
        return [result if result is not None else Failed(ErrorCode.UNKNOWN_SERVER_ERROR) for result in results]

    async def _partitions(
        self, topics: set[str], records: Sequence[ToSend], results: list[Placed | Failed | None]
    ) -> dict[str, list[int]]:
        """The partitions of the topics that exist; the records of the others have failed then."""
        missing = {topic for topic in topics if not _is_known(self._client, topic)}
        if missing:
            await self._client.refresh(missing)
        found: dict[str, list[int]] = {}
        failed: dict[str, Failed] = {}
        for topic in topics:
            known = self._client.view.topics.get(topic)
            if known is None or not known.partitions:
                code = known.code if known is not None and known.code else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                failed[topic] = Failed(code, None if known is not None and known.code else "there is no such topic")
            else:
                found[topic] = list(known.partitions)
        for index, record in enumerate(records):
            results[index] = failed.get(record.topic)
        return found

    async def _round(
        self,
        queues: dict[TopicPartition, deque[Batch]],
        records: Sequence[ToSend],
        results: list[Placed | Failed | None],
    ) -> None:
        """One batch of each partition."""
        sequences = await self._numbers()
        batches = {partition: queue.popleft() for partition, queue in queues.items()}
        now_ms = self._now_ms()
        for batch in batches.values():
            batch.data = sequences.build(batch, records, now_ms, self._codec)
        reasons: dict[TopicPartition, dict[int, str]] = {}
        job = self._job(batches, reasons)
        answers = await self._client.by_leader(batches, job, repeatable=sequences.producer_id >= 0, portion=16)
        for partition, answer in answers.items():
            if isinstance(answer, Failed) and answer.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                answer = -1
            batch, queue = batches[partition], queues[partition]
            if isinstance(answer, Failed):
                self._sequences = None
                if answer.code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.indexes) > 1:
                    self._batch_bytes_max = min(self._batch_bytes_max, bytes_of(batch, records) // 2)
                    queues[partition] = recut([batch, *queue], records, self._batch_bytes_max)
                    continue
                bad = reasons.get(partition, {})
                for number, index in enumerate(batch.indexes):
                    results[index] = Failed(answer.code, bad.get(number, BESIDE)) if bad else answer
                for later in queue:
                    for index in later.indexes:
                        results[index] = Failed(answer.code, AFTER)
                queue.clear()
            else:
                for number, index in enumerate(batch.indexes):
                    results[index] = Placed(*partition, answer + number if answer >= 0 else -1)
            if not queue:
                del queues[partition]

    async def _numbers(self) -> Sequences:
        if self._sequences is None:
            self._sequences = await self._new_sequences() if self._idempotent else Sequences()
        return self._sequences

    async def _new_sequences(self) -> Sequences:
        def make(version: int) -> InitProducerIdRequest:
            return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TIMEOUT_MAX_MS)

        try:
            answer = await self._client.ask_patiently(ApiKey.INIT_PRODUCER_ID, make, lambda answer: answer.error_code)
        except Unsupported:
            return Sequences()
        except Refused as error:
            if error.code in _NOT_ALLOWED:  # brokers before 2.8 want IDEMPOTENT_WRITE on the cluster
                return Sequences()
            raise
        return Sequences(answer.producer_id, answer.producer_epoch)

    def _job(
        self, batches: dict[TopicPartition, Batch], reasons: dict[TopicPartition, dict[int, str]]
    ) -> Job[TopicPartition, int]:
        """reasons: where to put down what is wrong with single records, by their number in the batch."""
        timeout_ms = min(self._client.broker_ms, _TIMEOUT_MAX_MS)

        def make(items: list[TopicPartition], version: int) -> ProduceRequest:
            return ProduceRequest(
                acks=self._acks,
                timeout_ms=timeout_ms,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name=topic,
                        partition_data=[
                            ProduceRequest.PartitionProduceData(index=index, records=batches[topic, index].data)
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(items).items()
                ],
            )

        def read(answer: Any, items: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, int | Failed]]:
            for topic in answer.responses:
                for row in topic.partition_responses:
                    failed = Failed.of(row.error_code, row.error_message)
                    for each in row.record_errors:
                        why = each.batch_index_error_message or failed.message or failed.code.name
                        reasons.setdefault((topic.name, row.index), {})[each.batch_index] = why.rstrip(".")
                    yield (topic.name, row.index), failed if row.error_code else row.base_offset

        return Job(ApiKey.PRODUCE, make, read)


def _is_known(client: Client, topic: str) -> bool:
    known = client.view.topics.get(topic)
    return known is not None and bool(known.partitions)

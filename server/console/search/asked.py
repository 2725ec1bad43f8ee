"""What a search asks for, out of a query; used by the page of records and by the export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.reader import SEARCH_BYTES_MAX
from barnabas.server.client.view import TopicView
from barnabas.server.console.avro.book import Lens
from barnabas.server.console.search.filters import Filter
from barnabas.server.console.search.look import Found, backward, forward
from barnabas.server.console.search.places import Beginning, starts
from barnabas.server.console.search.shown import FORMS
from barnabas.server.console.web.fields import Fields, Unclear

COUNT: Final = 50
COUNT_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """`partition` None: all. `form`: how bytes are shown. `committed`: without open and aborted transactions."""

    beginning: Beginning
    filter: Filter
    partition: int | None
    count: int
    form: str
    committed: bool

    @classmethod
    def of(cls, query: Fields) -> Asked:
        """Raises Unclear."""
        partition = query.number("partition", -1, most=1 << 31)
        return cls(
            Beginning.of(query),
            Filter.of(query),
            partition if partition >= 0 else None,
            query.number("count", COUNT, least=1, most=COUNT_MAX),
            query.choice("as", FORMS),
            query.has("committed"),
        )

    def fields(self) -> dict[str, object]:
        """As the fields of a query, without where it goes on."""
        return {
            "from": self.beginning.way if self.beginning.way != "newest" else None,
            "at": self.beginning.at,
            "text": self.filter.anywhere,
            "key": self.filter.key,
            "header": self.filter.header,
            "json": self.filter.path,
            "partition": self.partition if self.partition is None else str(self.partition),
            "count": self.count if self.count != COUNT else None,
            "as": self.form if self.form != "auto" else None,
            "committed": self.committed or None,
        }

    def places(self, topic: TopicView) -> list[TopicPartition]:
        """Raises Unclear."""
        if self.partition is not None and self.partition not in topic.partitions:
            many = len(topic.partitions)
            raise Unclear("partition", f"partition: topic {topic.name} has {many}, from 0 on, and not {self.partition}")
        return [(topic.name, index) for index in topic.partitions if self.partition is None or index == self.partition]


async def spans_of(
    client: Client, asked: Asked, topic: TopicView
) -> tuple[dict[TopicPartition, Span], dict[TopicPartition, Failed]]:
    """Where there are records, and the partitions that cannot be asked. Raises Unclear, ClientError."""
    places = asked.places(topic)
    found: dict[TopicPartition, Span] = {}
    failed: dict[TopicPartition, Failed] = {}
    for each, span in (await spans(client, places, committed=asked.committed)).items():
        if isinstance(span, Failed):
            failed[each] = span
        else:
            found[each] = span
    return found, failed


async def look(
    client: Client,
    asked: Asked,
    spans: Mapping[TopicPartition, Span],
    now_ms: int,
    lane: str,
    *,
    lens: Lens | None = None,
    bytes_max: int = SEARCH_BYTES_MAX,
) -> Found:
    """One step of the search. lens: for values that are Avro. Raises Unclear, Refusal, ClientError."""
    wanted, prepare = asked.filter.predicate(), None
    if lens is not None and asked.filter.path:
        wanted, prepare = asked.filter.predicate(lambda: lens.values), lens.look
    if asked.beginning.is_backward:
        ends = asked.beginning.go
        before = spans
        if ends is not None:  # what is not named there is through
            before = {
                each: Span(span.start, min(max(ends[each[1]], span.start), span.end))
                for each, span in spans.items()
                if each[1] in ends
            }
        return await backward(
            client,
            before,
            asked.count,
            wanted=wanted,
            committed=asked.committed,
            lane=lane,
            prepare=prepare,
            bytes_max=bytes_max,
        )
    return await forward(
        client,
        await starts(client, asked.beginning, spans, now_ms),
        {each: span.end for each, span in spans.items()},
        asked.count,
        wanted=wanted,
        committed=asked.committed,
        lane=lane,
        prepare=prepare,
        bytes_max=bytes_max,
    )

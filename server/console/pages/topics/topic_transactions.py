"""`/topics/T/transactions`: what holds back readers of committed records: for each partition the last stable offset,
the transaction that holds it, since when, and whose it is. One that no coordinator knows of hangs: nobody will end it,
and it can be aborted here (KIP-664).
"""

from __future__ import annotations

from typing import Any

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.transactions import (
    ActiveProducer,
    ListedTransaction,
    abort_transaction,
    describe_producers,
    list_transactions,
)
from barnabas.server.console.pages.cluster.transactions import OPEN
from barnabas.server.console.pages.common import PARTITIONS, cut, topic_of
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, Refusal, View, refused
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    shown, pages = cut([(topic.name, index) for index in topic.partitions], visit.query, PARTITIONS)
    led = [place for place in shown if visit.client.leader_of(place) is not None]
    ends = await spans(visit.client, led)
    stable = await spans(visit.client, led, committed=True)
    producers = await describe_producers(visit.client, led) if led else {}
    ids = {each.producer_id for every in producers.values() for each in _open(every)}
    known: dict[int, ListedTransaction] = {}
    silent: dict[int, Failed] = {}
    if ids:
        listed, silent = await list_transactions(visit.client, producer_ids=sorted(ids))
        known = {each.producer_id: each for each in listed.values()}
    rows = []
    for place in shown:
        end, last, every = ends.get(place), stable.get(place), producers.get(place)
        told = isinstance(end, Span) and isinstance(last, Span)
        rows.append(
            {
                "partition": place[1],
                "end": end.end if isinstance(end, Span) else None,
                "stable": last.end if isinstance(last, Span) else None,
                "held": end.end - last.end if told and isinstance(end, Span) and isinstance(last, Span) else None,
                "open": [_row(each, known, visit.now_ms, are_all_told=not silent) for each in _open(every)],
                "trouble": next((str(each) for each in (end, last, every) if isinstance(each, Failed)), None),
            }
        )
    data = {
        "topic": topic.name,
        "partitions": rows,
        "held": sum(bool(row["held"]) for row in rows),
        "silent": {str(broker_id): str(why) for broker_id, why in silent.items()},
        **pages,
    }
    return View("topic_transactions", f"{topic.name}: transactions", data)


def _open(producers: list[ActiveProducer] | Failed | None) -> list[ActiveProducer]:
    """Those with an open transaction, the one that began first first."""
    if producers is None or isinstance(producers, Failed):
        return []
    return sorted((each for each in producers if each.start_offset >= 0), key=lambda each: each.start_offset)


def _row(
    each: ActiveProducer, known: dict[int, ListedTransaction], now_ms: int, *, are_all_told: bool
) -> dict[str, Any]:
    listed = known.get(each.producer_id)
    is_open = listed is not None and listed.state in OPEN
    return {
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "start_offset": each.start_offset,
        "last_ms": each.last_ms,
        "idle_seconds": max(0, now_ms - each.last_ms) / 1000 if each.last_ms >= 0 else None,
        "transactional_id": None if listed is None else listed.transactional_id,
        "state": None if listed is None else listed.state,
        "is_hanging": are_all_told and not is_open,
    }


async def change(visit: Visit) -> Done:
    topic = await topic_of(visit)
    place: TopicPartition = (topic.name, visit.form.number("partition", 0, most=1 << 31))
    producer_id = visit.form.number("producer_id", -1)
    start = visit.form.number("start_offset", -1)
    if place[1] not in topic.partitions:
        raise Refusal(404, f"topic {topic.name} has no partition {place[1]}")
    producers = (await describe_producers(visit.client, [place]))[place]
    if isinstance(producers, Failed):
        raise refused(f"partition {place[1]}", producers)
    # The producer may have ended this transaction, and begun another one, since the page was made.
    found = [each for each in _open(producers) if (each.producer_id, each.start_offset) == (producer_id, start)]
    if not found:
        raise Refusal(409, f"producer {producer_id} has no open transaction from offset {start} on any more")
    failed = await abort_transaction(visit.client, place, found[0])
    if failed is not None:
        raise refused(f"partition {place[1]}", failed)
    what = f"aborted the transaction of producer {producer_id} in {topic.name}, partition {place[1]}, offset {start}"
    return Done(what, "aborted", f"/topics/{segment(topic.name)}/transactions", {"producer_id": producer_id})

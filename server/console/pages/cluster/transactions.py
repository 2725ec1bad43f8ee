"""`/transactions`: the transactional ids that coordinators know, those that are open longest first."""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.failures import Failed
from barnabas.server.client.transactions import ListedTransaction, Transaction, describe_transactions, list_transactions
from barnabas.server.console.pages.common import cut
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit

OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
TOPICS_SHOWN: Final = 5


async def show(visit: Visit) -> View:
    text, state = visit.query.text("q"), visit.query.text("state")
    listed, silent = await list_transactions(visit.client)
    wanted = [
        each for name, each in listed.items() if text.lower() in name.lower() and (not state or each.state == state)
    ]
    wanted.sort(key=lambda each: (each.state not in OPEN, each.transactional_id))
    shown, pages = cut(wanted, visit.query)
    found = await describe_transactions(visit.client, [each.transactional_id for each in shown]) if shown else {}
    rows = [_row(each, found.get(each.transactional_id), visit.now_ms) for each in shown]
    rows.sort(key=lambda row: (row["state"] not in OPEN, -(row["open_seconds"] or 0), row["transactional_id"]))
    data = {
        "q": text,
        "state": state,
        "states": sorted({each.state for each in listed.values()}),
        "transactions": rows,
        "open": sum(each.state in OPEN for each in listed.values()),
        "all": len(listed),
        "silent": {str(broker_id): str(why) for broker_id, why in silent.items()},
        **pages,
    }
    return View("transactions", "Transactions", data)


def _row(each: ListedTransaction, found: Transaction | Failed | None, now_ms: int) -> dict[str, Any]:
    known = found if isinstance(found, Transaction) else None
    start_ms = known.start_ms if known is not None and known.start_ms >= 0 else None
    topics = sorted({topic for topic, _ in known.partitions}) if known is not None else []
    return {
        "transactional_id": each.transactional_id,
        "state": each.state if known is None else known.state,
        "is_open": each.state in OPEN,
        "producer_id": each.producer_id,
        "producer_epoch": None if known is None else known.producer_epoch,
        "coordinator": each.coordinator,
        "timeout_ms": None if known is None else known.timeout_ms,
        "start_ms": start_ms,
        "open_seconds": None if start_ms is None else max(0, now_ms - start_ms) / 1000,
        "topics": topics[:TOPICS_SHOWN],
        "topics_count": len(topics),
        "partitions": 0 if known is None else len(known.partitions),
        "trouble": str(found) if isinstance(found, Failed) else None,
    }

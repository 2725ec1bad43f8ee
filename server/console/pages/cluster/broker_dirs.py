"""`/brokers/N/directories`: its log directories, and the partitions that take most room there."""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.failures import Failed
from barnabas.server.client.log_dirs import LogDir, describe_log_dirs
from barnabas.server.console.pages.common import broker_of, cut
from barnabas.server.console.web.view import View, refused
from barnabas.server.console.web.visit import Visit

SHOWN: Final = 100


async def show(visit: Visit) -> View:
    number = await broker_of(visit)
    found = (await describe_log_dirs(visit.client, None, [number]))[number]
    if isinstance(found, Failed):
        raise refused(f"broker {number}", found)
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": index,
            "bytes": replica.size,
            "offset_lag": replica.offset_lag,
            "is_future": replica.is_future,
            "directory": each.path,
        }
        for each in found
        for (topic, index), replica in each.replicas.items()
    ]
    rows.sort(key=lambda row: -row["bytes"])
    shown, pages = cut(rows, visit.query, SHOWN)
    data = {"broker": number, "directories": [_row(each) for each in found], "replicas": shown, **pages}
    return View("broker_dirs", f"Broker {number}: directories", data)


def _row(each: LogDir) -> dict[str, Any]:
    return {
        "path": each.path,
        "trouble": None if each.failed is None else str(each.failed),
        "total": each.total_bytes if each.total_bytes >= 0 else None,
        "usable": each.usable_bytes if each.usable_bytes >= 0 else None,
        "replicas": len(each.replicas),
        "bytes": sum(replica.size for replica in each.replicas.values()),
        "moving": sum(replica.is_future for replica in each.replicas.values()),
    }

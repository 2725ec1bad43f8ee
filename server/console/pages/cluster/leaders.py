"""`/leaders`: partitions that another replica leads than their preferred one, the first; and having that one lead.

An election costs clients a moment each, and what a broker leads is its load; so it is shown what would change, and that
is what is asked for, in portions of `AT_ONCE`.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import Unsupported
from barnabas.server.client.moves import elect_preferred
from barnabas.server.client.texts.amounts import counted
from barnabas.server.console.pages.common import PARTITIONS, cut
from barnabas.server.console.pages.topics.move_topic import all_done
from barnabas.server.console.search.places import parse_positions
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.view import Done, View
from barnabas.server.console.web.visit import Visit

AT_ONCE: Final = PARTITIONS
"""What one page shows is what one form elects."""


async def show(visit: Visit) -> View:
    topics = await visit.desk.topics()
    rows: list[dict[str, Any]] = []
    leads: dict[int, int] = dict.fromkeys(visit.client.view.brokers, 0)
    would = dict(leads)
    for topic in topics.values():
        for index, each in topic.partitions.items():
            first = each.replicas[0] if each.replicas else -1
            can = first in each.in_sync and first != each.leader >= 0
            leads[each.leader] = leads.get(each.leader, 0) + 1
            would[first if can else each.leader] = would.get(first if can else each.leader, 0) + 1
            if first not in (each.leader, -1) and each.leader >= 0:
                rows.append(
                    {"topic": topic.name, "partition": index, "leader": each.leader, "preferred": first, "can": can}
                )
    why = None
    try:
        await visit.client.highest(ApiKey.ELECT_LEADERS)
    except Unsupported as error:
        why = str(error)
    shown, pages = cut(rows, visit.query, AT_ONCE)
    data: dict[str, Any] = {
        "not_offered": why,
        "partitions": shown,
        "brokers": [
            {"id": each, "leads": leads[each], "then": would.get(each, 0)} for each in sorted(leads) if each >= 0
        ],
        "cannot": sum(not row["can"] for row in rows),
        **pages,
    }
    return View("leaders", "Leaders", data)


async def change(visit: Visit) -> Done:
    topics, positions = visit.form.many("topic"), visit.form.many("partitions")
    wanted: list[TopicPartition] = []
    for topic, text in zip(topics, positions, strict=False):
        wanted += [(topic, index) for index in parse_positions(text) or {}]
    if not wanted or len(topics) != len(positions) or len(wanted) > AT_ONCE:
        raise Unclear("partitions", f"partitions: 1 to {AT_ONCE} are expected, as 0:0,3:0 for each topic")
    results = await elect_preferred(visit.client, wanted)
    here = {
        place: None if why is None or why.code == ErrorCode.ELECTION_NOT_NEEDED else why
        for place, why in results.items()
    }
    all_done("leaders", here, "elected")
    some = ", ".join(f"{topic}-{index}" for topic, index in wanted)
    what = f"had preferred replicas lead {counted(len(wanted), 'partition')}: {some}"
    return Done(what[:2000], "elected", "/leaders", {"partitions": len(wanted)})

"""`/`: how the cluster is. Trouble first: partitions without leader or replica, disks, brokers that do not answer,
groups that are behind.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.groups.lag import GroupLag
from barnabas.server.client.log_dirs import LogDir, describe_log_dirs
from barnabas.server.client.moves import list_moves
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit

SHOWN: Final = 10
FULL: Final = 0.9
"""A disk of which more is used is a warning."""


async def show(visit: Visit) -> View:
    topics = await visit.desk.topics()
    view = visit.client.view
    dirs = await describe_log_dirs(visit.client, [], view.brokers)
    groups = await visit.desk.groups_or_none()
    moves = await _moves(visit)
    misled = 0
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    offline: list[dict[str, Any]] = []
    behind: list[dict[str, Any]] = []
    for topic in topics.values():
        for index, each in topic.partitions.items():
            leads[each.leader] = leads.get(each.leader, 0) + 1
            for replica in each.replicas:
                holds[replica] = holds.get(replica, 0) + 1
            misled += each.leader >= 0 and bool(each.replicas) and each.replicas[0] != each.leader
            if each.leader < 0:
                offline.append({"topic": topic.name, "partition": index})
            elif len(each.in_sync) < len(each.replicas):
                missing = sorted(set(each.replicas) - set(each.in_sync))
                behind.append({"topic": topic.name, "partition": index, "missing": missing})
    brokers = [
        {
            "id": broker_id,
            "address": str(address),
            "rack": address.rack,
            "is_controller": broker_id == view.controller_id,
            "leads": leads.get(broker_id, 0),
            "holds": holds.get(broker_id, 0),
            **_disks(dirs.get(broker_id)),
        }
        for broker_id, address in sorted(view.brokers.items())
    ]
    every = list(groups.behind.values()) if groups is not None else []
    lagging = sorted((each for each in every if isinstance(each, GroupLag) and each.lag), key=lambda each: -each.lag)
    states: dict[str, int] = {}
    for listed in groups.listed.values() if groups is not None else ():
        states[listed.state or "Unknown"] = states.get(listed.state or "Unknown", 0) + 1
    data = {
        "cluster_id": view.cluster_id,
        "controller": view.controller_id if view.controller_id >= 0 else None,
        "brokers": brokers,
        "topics": sum(not each.is_internal for each in topics.values()),
        "internal_topics": sum(each.is_internal for each in topics.values()),
        "partitions": sum(len(each.partitions) for each in topics.values()),
        "offline": offline[:SHOWN],
        "offline_count": len(offline),
        "under_replicated": behind[:SHOWN],
        "under_replicated_count": len(behind),
        "not_preferred_count": misled,
        "moves": moves,
        "groups": None if groups is None else len(groups.listed),
        "group_states": dict(sorted(states.items())),
        "lagging": [
            {
                "group": each.group.group_id,
                "state": each.group.state,
                "lag": each.lag,
                "members": len(each.group.members),
            }
            for each in lagging[:SHOWN]
        ],
        "lagging_count": len(lagging),
        "groups_looked_at": len(every),
        "warnings": [text for each in brokers for text in _warnings(each)],
    }
    return View("overview", "Overview", data)


async def _moves(visit: Visit) -> int | None:
    """How many partitions are on their way to other brokers; None: not to be had."""
    try:
        return len(await list_moves(visit.client))
    except ClientError:
        return None


def _disks(dirs: list[LogDir] | Failed | None) -> dict[str, Any]:
    """total, usable: bytes of all volumes with log directories; None: not told."""
    if dirs is None or isinstance(dirs, Failed):
        return {"total": None, "usable": None, "failed_dirs": [], "silent": None if dirs is None else str(dirs)}
    told = {(each.total_bytes, each.usable_bytes) for each in dirs if each.total_bytes >= 0}  # one volume counts once
    return {
        "total": sum(total for total, _ in told) if told else None,
        "usable": sum(usable for _, usable in told) if told else None,
        "failed_dirs": [{"path": each.path, "why": str(each.failed)} for each in dirs if each.failed is not None],
        "silent": None,
    }


def _warnings(broker: dict[str, Any]) -> list[str]:
    texts = [f"broker {broker['id']}: log directory {each['path']} is offline" for each in broker["failed_dirs"]]
    if broker["silent"] is not None:
        texts.append(f"broker {broker['id']} does not tell of its disks: {broker['silent']}")
    if broker["total"] and broker["usable"] < broker["total"] * (1 - FULL):
        texts.append(f"broker {broker['id']}: the disk is {1 - broker['usable'] / broker['total']:.0%} full")
    return texts

"""Fetches of very many partitions: looked at, and answered, in turns with everybody else
(`barnabas.server.runtime.turns`).

One look at a partition costs up to 10 us, where it is unknown, so that a session of 100,000 of them would hold the loop
for a second with every request. Smaller fetches look at everything at once, which needs nothing to be remembered
between the look and the wait. Here each partition is told to stir the fetch as soon as it was looked at.
"""

from __future__ import annotations

import trio

from barnabas.kproto.messages import FetchResponse
from barnabas.server.requests.fetch.fetching import Fetch, Plan, has_more
from barnabas.server.requests.fetch.reader import Answer
from barnabas.server.requests.fetch.sessions import FetchTarget
from barnabas.server.requests.fetch.targets import PART
from barnabas.server.runtime.turns import Steps

AT_ONCE = 2000
"""With more partitions than this a fetch goes in turns."""

STIR_S = 0.01
"""How long it waits for more when something has come, as each look is long."""


class Stirred:
    """What a large fetch leaves with its partitions while it looks at others, or waits. Part of `ProgressWaiter`."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self.is_last = False

    def progress(self, added_bytes: int) -> None:
        self._event.set()

    def answer_now(self) -> None:
        """The broker stops, or the client is gone."""
        self.is_last = True
        self._event.set()

    async def wait(self, due: float) -> bool:
        """For progress since the last time; False: there was none up to `due`, of trio's clock."""
        with trio.move_on_at(due) as limit:
            await self._event.wait()
            await trio.sleep(STIR_S)  # one look for what comes at the same time
        self._event = trio.Event()
        return not limit.cancelled_caught


async def fetch_in_turns(fetch: Fetch, max_wait_ms: int) -> FetchResponse:
    """As `Fetch.start`, but waiting as a task. Raises `turns.Abandoned` when the client is gone."""
    svc = fetch.svc
    due = svc.now() + max(0, max_wait_ms) / 1000
    stirred = Stirred()
    targets = list(fetch.targets.values())
    fetch.ctx.on_close(stirred.answer_now)

    def is_wanted() -> bool:
        return not fetch.ctx.closed

    try:
        while True:
            answers, size, at_once = await svc.turns.run(_plan_in_parts(fetch, targets, stirred), is_wanted)
            if size >= fetch.min_bytes or at_once or (size and has_more(answers)):
                break
            if stirred.is_last or svc.now() >= due:
                break
            if not await stirred.wait(due):
                stirred.is_last = True
        if svc.quotas.limits_requests:
            empty = fetch.withheld(answers)
            if empty is not None:
                return empty
        return await svc.turns.run(_respond_in_parts(fetch, answers), is_wanted)
    finally:
        for partition in fetch.watched:
            partition.remove_waiter(stirred)
        fetch.watched = []


def _plan_in_parts(fetch: Fetch, targets: list[FetchTarget], stirred: Stirred) -> Steps[Plan]:
    answers: list[Answer] = []
    size = 0
    at_once = False
    first_wait = not fetch.watched
    if not first_wait:
        fetch.reader.begin_again()
    for begin in range(0, len(targets), PART):
        fetch.reader.go_on()
        watched = len(fetch.watched)
        some, size_of_some, this_at_once = fetch.look(targets[begin : begin + PART], size, first_wait)
        answers += some
        size += size_of_some
        at_once |= this_at_once
        for partition in fetch.watched[watched:]:  # at once: what comes from now on stirs
            fetch.reader.watch(partition, stirred)
        yield PART // 4 + 3 * len(some)
    return answers, size, at_once


def _respond_in_parts(fetch: Fetch, answers: list[Answer]) -> Steps[FetchResponse]:
    whole = fetch.respond(answers[:PART])
    topics = {(topic.topic, topic.topic_id): topic for topic in whole.responses}
    nodes = {node.node_id for node in whole.node_endpoints}
    for begin in range(PART, len(answers), PART):
        yield 2 * PART
        part = fetch.respond(answers[begin : begin + PART])
        for topic in part.responses:
            known = topics.setdefault((topic.topic, topic.topic_id), topic)
            if known is topic:
                whole.responses.append(topic)
            else:
                known.partitions.extend(topic.partitions)
        whole.node_endpoints.extend(node for node in part.node_endpoints if node.node_id not in nodes)
        nodes.update(node.node_id for node in part.node_endpoints)
    return whole

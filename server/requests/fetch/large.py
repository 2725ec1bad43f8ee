"""Fetches of very many partitions: read, and answered, in turns with all other work (`barnabas.server.runtime.turns`).

Reading a partition costs up to 10 us, if it is unknown, so that a session of 100,000 would block the loop for a second
with every request. Smaller fetches read all partitions in one step, so that nothing can change between the read and the
wait. Here the fetch registers with each partition as soon as it has read it.
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
"""Fetches of more partitions are read in turns."""

COALESCE_S = 0.01
"""How long to wait for more progress after the first, since reading all partitions takes long."""


class ProgressFlag:
    """Registered with the partitions of a large fetch while it reads others, or waits. A `ProgressWaiter`."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self.is_last = False

    def progress(self, added_bytes: int) -> None:
        self._event.set()

    def answer_now(self) -> None:
        """The broker stops, or the client has disconnected."""
        self.is_last = True
        self._event.set()

    async def wait(self, due: float) -> bool:
        """Wait for progress since the last call; False: there was none until `due`, of trio's clock."""
        with trio.move_on_at(due) as limit:
            await self._event.wait()
            await trio.sleep(COALESCE_S)  # one read for what arrives at the same time
        self._event = trio.Event()
        return not limit.cancelled_caught


async def fetch_in_turns(fetch: Fetch, max_wait_ms: int) -> FetchResponse:
    """As `Fetch.start`, but waiting as a task. Raises `turns.Abandoned` when the client has disconnected."""
    svc = fetch.svc
    due = svc.now() + max(0, max_wait_ms) / 1000
    progressed = ProgressFlag()
    targets = list(fetch.targets.values())
    fetch.ctx.on_close(progressed.answer_now)

    def is_wanted() -> bool:
        return not fetch.ctx.closed

    try:
        while True:
            answers, size, at_once = await svc.turns.run(_plan_in_parts(fetch, targets, progressed), is_wanted)
            if size >= fetch.min_bytes or at_once or (size and has_more(answers)):
                break
            if progressed.is_last or svc.now() >= due:
                break
            if not await progressed.wait(due):
                progressed.is_last = True
        if svc.quotas.limits_requests:
            empty = fetch.withheld(answers)
            if empty is not None:
                return empty
        return await svc.turns.run(_respond_in_parts(fetch, answers), is_wanted)
    finally:
        for partition in fetch.watched:
            partition.remove_waiter(progressed)
        fetch.watched = []


def _plan_in_parts(fetch: Fetch, targets: list[FetchTarget], progressed: ProgressFlag) -> Steps[Plan]:
    answers: list[Answer] = []
    size = 0
    at_once = False
    first_wait = not fetch.watched
    if not first_wait:
        fetch.reader.read_again()
    for begin in range(0, len(targets), PART):
        fetch.reader.next_part()
        watched = len(fetch.watched)
        some, size_of_some, this_at_once = fetch.read_targets(targets[begin : begin + PART], size, first_wait)
        answers += some
        size += size_of_some
        at_once |= this_at_once
        for partition in fetch.watched[watched:]:  # before the next yield, so that no append is missed
            fetch.reader.watch(partition, progressed)
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

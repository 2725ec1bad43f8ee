"""Producer ids, handed out from blocks of 1000 that the controller or the coordination store reserves for this broker.

No id is used twice in a cluster; the rest of a block is lost when the broker stops. When 90 % of a block are used the
next one is fetched, so that requests usually need not wait; one that finds no id waits for the fetch, and gets
COORDINATOR_LOAD_IN_PROGRESS (retriable in every client) if it fails. Source: `ProducerIdManager.scala` (core).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import ProducerIdBlock, ProducerIdsExhausted, StoreError
from barnabas.server.network.peers import PeerError
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.producer_ids")

PREFETCH_AT = 0.9


class ProducerIds:
    """See the module. `run` must be running. allocate: `ControllerClient.allocate_producer_ids`."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0  # first id after the present block
        self._prefetch = 0
        self._following: ProducerIdBlock | None = None
        self._wanted = trio.Event()
        self._outcome = trio.Event()  # of the fetch under way or wanted
        self._failure: Exception | None = None

    async def next_id(self) -> int:
        """An id that no other producer has. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS."""
        await trio.lowlevel.checkpoint()
        while self._next == self._end:
            if self._following is None:
                outcome = self._outcome
                self._wanted.set()
                await outcome.wait()
                if self._following is None and self._next == self._end and self._failure is not None:
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No producer ids: " + str(self._failure))
            else:
                block, self._following = self._following, None
                self._next, self._end = block.first, block.last + 1
                self._prefetch = block.first + int((self._end - block.first) * PREFETCH_AT)
        producer_id = self._next
        self._next += 1
        if producer_id == self._prefetch:
            self._wanted.set()
        return producer_id

    async def run(self) -> None:
        """Fetch blocks when they are wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._failure = None
            try:
                self._following = await self._allocate()
            except (StoreError, ProducerIdsExhausted, PeerError) as exc:
                log.warning("cannot get a block of producer ids: %s", exc)
                self._failure = exc
            except Exception as exc:
                contain(log, "getting a block of producer ids", exc)
                self._failure = exc
            self._wanted = trio.Event()
            outcome, self._outcome = self._outcome, trio.Event()
            outcome.set()

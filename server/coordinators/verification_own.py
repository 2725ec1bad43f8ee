"""Verification by this broker's own transaction coordinator, by direct calls: one after the other for each id."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Protocol

from barnabas.coordinator import Callback
from barnabas.kproto.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.replication import PartitionImage
from barnabas.server.coordinators.verification_asks import Ask, Asks, request_of, settle
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.transactions")

_VERSION = 5


class Coordinator(Protocol):
    """The transactional ids of this broker (`barnabas.server.coordinators.transactions.TransactionCoordinator`)."""

    def place(self, key: str) -> PartitionImage | None: ...

    def add_partitions(self, request: AddPartitionsToTxnRequest, version: int, token: Any) -> None: ...


class OwnCoordinator:
    """See the module."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: dict[str, Asks] = {}
        """By id that is being asked for: what came meanwhile."""

    def ask(self, ask: Ask) -> None:
        """Ask now, or behind what is asked for the same id."""
        waiting = self._waiting.get(ask.transactional_id)
        if waiting is not None:
            waiting.add(ask)
            return
        self._waiting[ask.transactional_id] = Asks()
        self._send(ask.transactional_id, [ask])

    def _send(self, transactional_id: str, asks: list[Ask]) -> None:
        answered = partial(self._answered, transactional_id, asks)
        token = Callback(answered, "this broker's own question to its coordinator")
        try:
            self._coordinator.add_partitions(request_of(asks), _VERSION, token)
        except Exception as error:
            contain(log, "asking this broker's coordinator", error, token)

    def _answered(self, transactional_id: str, asks: list[Ask], response: AddPartitionsToTxnResponse | None) -> None:
        settle(asks, response)
        following = self._waiting[transactional_id].take()
        if following:
            self._send(transactional_id, following)
        else:
            del self._waiting[transactional_id]

"""The dispatcher of a broker whose requests may be made to fail. Without a fault it passes them on, and has loaded
nothing of what faults need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from barnabas.server.network.connection import Connection, Slot
    from barnabas.server.requests.dispatch import Dispatcher
    from barnabas.server.requests.faults.injector import FaultInjector


class Faults:
    """A `Dispatch`. make: the injector, when the first fault is added."""

    def __init__(self, dispatch: Dispatcher, make: Callable[[Faults], FaultInjector]) -> None:
        self._dispatch = dispatch
        self._make = make
        self._injector: FaultInjector | None = None
        self._connections: WeakSet[Connection] = WeakSet()

    def __call__(self, connection: Connection, frame: memoryview) -> Slot:
        """Part of `Dispatch`. What takes a fast path was here before, with the request that it was learnt from."""
        self._connections.add(connection)
        injector = self._injector
        if injector is None or injector.rules.is_idle:
            return self._dispatch(connection, frame)
        slot = injector.taken(connection, frame) or self._dispatch(connection, frame)
        connection.fast_paths = []
        return slot

    @property
    def injector(self) -> FaultInjector:
        """Where faults are added."""
        if self._injector is None:
            self._injector = self._make(self)
        return self._injector

    def inherit(self, before: Faults) -> None:
        """Go on with the faults of an earlier life of this broker. A stale answer is that of now, from now on."""
        if before._injector is not None:
            self.injector.rules = before._injector.rules

    def no_fast_paths(self) -> None:
        """The next request of every connection is to come here."""
        for connection in self._connections:
            connection.fast_paths = []

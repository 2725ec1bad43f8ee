"""What the routes may use: the broker, as far as they know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.requests.faults.injector import FaultInjector
    from barnabas.server.requests.services import Services
    from barnabas.server.runtime.virtual_clock import Stood


class ControlledBroker(Protocol):
    """`barnabas.server.broker.lives.Lives`, whose broker serves. Its docstrings hold here."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def services(self) -> Services: ...

    @property
    def faults(self) -> FaultInjector: ...

    def now_ms(self) -> int: ...

    async def advance(self, seconds: float) -> None: ...

    async def hold(self) -> None: ...

    async def step(self, seconds: float) -> Stood: ...

    async def release(self) -> None: ...

    async def snapshot(self) -> str: ...

    def snapshots(self) -> list[str]: ...

    async def restore(self, name: str) -> None: ...

    async def remove_snapshot(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Controlled:
    """version: of the program."""

    broker: ControlledBroker
    version: str

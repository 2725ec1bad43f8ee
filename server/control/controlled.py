"""What the routes may use: the broker, as far as they know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.requests.faults.injector import FaultInjector
    from barnabas.server.requests.services import Services


class ControlledBroker(Protocol):
    """`barnabas.server.broker.broker.Broker`, which serves."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def services(self) -> Services: ...

    @property
    def faults(self) -> FaultInjector: ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Controlled:
    """version: of the program."""

    broker: ControlledBroker
    version: str

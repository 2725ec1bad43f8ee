"""What was written to a broker or a cluster: `broker.topics["orders"].records()`.

Loads a client of the broker, with trio, when records are asked for; it runs in a thread of its own, so this works under
any loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.child import KIT_CLIENT_ID, BrokerError

if TYPE_CHECKING:
    from barnabas.server.security.client_access import ClientAccess

__all__ = ["Record", "Topic", "Topics"]


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the broker, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it lies in the log. timestamp_ms: since the epoch."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Topics:
    """The topics of a broker, by name: `topics["orders"]`, `"orders" in topics`, `list(topics)`. addresses(): where it
    is. access(): as the administrator; None: without security.
    """

    def __init__(
        self, addresses: Callable[[], Sequence[str]], access: Callable[[], ClientAccess | None], timeout_s: float
    ) -> None:
        self._addresses = addresses
        self._access = access
        self._timeout_s = timeout_s

    def __getitem__(self, name: str) -> Topic:
        return Topic(self, name)

    def __iter__(self) -> Iterator[str]:
        from barnabas.server.client import records_now as client

        return iter(self._ask(client.topics_now))

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def _ask(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from barnabas.server.client import records_now as client

        access = self._access()
        approach = None if access is None else client.Approach(access.ssl_context(), access.credentials)
        try:
            return function(
                self._addresses(),
                *arguments,
                approach=approach,
                client_id=KIT_CLIENT_ID,
                timeout_s=self._timeout_s,
                **options,
            )
        except client.ClientError as error:
            raise BrokerError(str(error)) from None


class Topic:
    """One topic, by its name; it need not exist yet."""

    def __init__(self, topics: Topics, name: str) -> None:
        self._topics = topics
        self.name = name

    def __repr__(self) -> str:
        return f"<barnabas topic {self.name}>"

    def records(self, partition: int | Collection[int] | None = None, *, committed: bool = False) -> list[Record]:
        """What was written to it and is not deleted, in the order of partitions and offsets. partition: one of them,
        or some; None: all. committed: without records of transactions that are open or were aborted. Raises
        BrokerError.
        """
        from barnabas.server.client import records_now as client

        wanted = [partition] if isinstance(partition, int) else partition
        found = self._topics._ask(client.records_now, self.name, wanted, committed=committed)
        return [
            Record(each.partition, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
            for each in found
        ]

"""The advertised addresses in answers, and others in their place: so that clients stay on the tap.

Clients learn where brokers are from Metadata, FindCoordinator and DescribeCluster, and since KIP-951 from errors of
Produce and Fetch. Addresses in other messages – of controllers, of clients, of applications – are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.kproto import ApiKey, Record

WITH_ADDRESSES: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
_DEEP: Final = frozenset({"brokers", "coordinators", "node_endpoints"})
"""The fields that have them. Others of these answers are long, and not looked through."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses_in(api_key: int, answer: Record) -> list[Address]:
    """The advertised addresses in an answer, each once."""
    if api_key not in WITH_ADDRESSES:
        return []
    return list(dict.fromkeys(Address(each.host, each.port) for each in _places(answer)))  # type: ignore[attr-defined]


def put(answer: Record, instead: Mapping[Address, Address]) -> dict[str, str]:
    """Change an answer that has addresses. Returns what was changed to what."""
    changed = {}
    for place in _places(answer):
        before = Address(place.host, place.port)  # type: ignore[attr-defined]
        after = instead.get(before)
        if after is not None and after != before:
            place.host, place.port = after  # type: ignore[attr-defined]
            changed[str(before)] = str(after)
    return changed


def _places(answer: Record) -> Iterator[Record]:
    """Where addresses stand; without a host there is none (no coordinator)."""
    if "host" in answer.__fields__ and answer.host:  # type: ignore[attr-defined]
        yield answer
    for name in answer.__fields__:
        if name in _DEEP:
            for each in getattr(answer, name) or ():
                if each.host:
                    yield each

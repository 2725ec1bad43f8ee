"""Addresses of peers, and of hosts that settings name."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Mapping

import trio

from barnabas.server.runtime.wakeup import Wakeup

log = logging.getLogger("barnabas.network")


def plain_host(host: str) -> str:
    """The address as people write it: without the prefix that a dual-stack socket gives IPv4 addresses."""
    return host.removeprefix("::ffff:")


async def addresses_of(host: str) -> list[str]:
    """The addresses of a host name; an address itself. Raises OSError if there is no such host."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=trio.socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} is no host name") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class HostLimits:
    """`max.connections.per.ip.overrides` by address. Names are resolved when they are set, and not again when their
    addresses change, as by Apache Kafka. Until that is done, or where it fails, a host has no limit of its own.

    found(limits): called with the limits by address whenever they change.
    """

    def __init__(self, found: Callable[[Mapping[str, int]], None]) -> None:
        self._found = found
        self._limits: Mapping[str, int] = {}
        self._names: dict[str, list[str]] = {}
        self._look_up = Wakeup()

    def set(self, limits: Mapping[str, int]) -> None:
        """Replace the limits, by address or name."""
        if limits == self._limits:
            return
        self._limits = limits
        self._names = {host: self._names[host] for host in limits if host in self._names}
        self._report()
        self._look_up.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Resolve names until cancelled; started when the first ones are resolved."""
        await self._find()
        task_status.started()
        while True:
            await self._look_up.wait()
            await self._find()

    async def _find(self) -> None:
        for host in [host for host in self._limits if _address(host) is None and host not in self._names]:
            try:
                addresses = await addresses_of(host)
            except OSError as error:
                log.error("max.connections.per.ip.overrides: no limit for %s, it cannot be resolved: %s", host, error)
                addresses = []
            if host in self._limits:
                self._names[host] = addresses
                self._report()

    def _report(self) -> None:
        by_address: dict[str, int] = {}
        for host, limit in self._limits.items():
            address = _address(host)
            for each in self._names.get(host, ()) if address is None else (address,):
                by_address[each] = limit
        self._found(by_address)


def _address(host: str) -> str | None:
    """As `plain_host` would write it, if it is one."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return None

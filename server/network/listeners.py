"""Listening sockets; and the sweep, which closes connections that were idle for `connections.max.idle.ms`. Limits are
checked in `barnabas.server.network.admission`.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.addresses import plain_host
from barnabas.server.runtime.wording import system_says
from barnabas.server.settings.endpoints import ListenAddress

if TYPE_CHECKING:
    from barnabas.server.network.reactor import Reactor

log = logging.getLogger("barnabas.network")

SWEEP_S = 1.0


_ADVICE = {
    errno.EADDRINUSE: "another program listens there, perhaps another broker",
    errno.EADDRNOTAVAIL: "no interface of this machine has it; the address for clients goes into advertised.listeners",
    errno.EACCES: "ports below 1024 are for privileged users",
    socket.EAI_NONAME: "listeners takes addresses of this machine, or names of them",
}


_LOOPBACK = ("127.0.0.1", "::1")
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


Bound = Mapping[ListenAddress, Sequence[socket.socket]]
"""Sockets that listen, by the address that a listener has in the settings."""
NOTHING_BOUND: Final[Bound] = MappingProxyType({})


class CannotListen(Exception):
    """A listener's address cannot be used; the message says which and why. number: the system's errno, if any."""

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        self.number = number


def bind(address: ListenAddress, backlog: int, receive_buffer_bytes: int) -> list[socket.socket]:
    """Non-blocking listening sockets, on one port: one; for `localhost` one for each loopback address of this machine.
    An empty host means every interface. Raises CannotListen.
    """
    if address.host.lower() == "localhost":
        listening = _bind_loopback(address, backlog)
    else:
        listening = [_bind_one(address, address.host, address.port, backlog)]
    for sock in listening:
        if receive_buffer_bytes > 0:
            # Set before accepting, so that the window is scaled for it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
    return listening


def _bind_loopback(address: ListenAddress, backlog: int, tries: int = 20) -> list[socket.socket]:
    """Both addresses, as clients try either first: another program could listen on the other one."""
    listening: list[socket.socket] = []
    port = address.port
    try:
        for host in _LOOPBACK:
            try:
                sock = _bind_one(address, host, port, backlog)
            except CannotListen as error:
                if error.number in _NO_SUCH_ADDRESS and (listening or host != _LOOPBACK[-1]):
                    continue
                raise
            listening.append(sock)
            port = sock.getsockname()[1]
        return listening
    except CannotListen as error:
        for sock in listening:
            sock.close()
        if address.port or error.number != errno.EADDRINUSE or tries <= 1:
            raise
    # The port that was free on one was taken on the other.
    return _bind_loopback(address, backlog, tries - 1)


def _bind_one(address: ListenAddress, host: str, port: int, backlog: int) -> socket.socket:
    try:
        if host in ("", "::") and socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        why = f"cannot listen on {address}: {system_says(error)}"
        raise CannotListen(f"{why} ({advice})" if advice else why, error.errno) from None
    except UnicodeError:  # out of the name's encoding for DNS
        raise CannotListen(f"cannot listen on {address}: not a host name") from None


def bind_listener(config: BrokerConfig, address: ListenAddress) -> list[socket.socket]:
    """As `bind`, with the settings of sockets."""
    key = "socket.receive.buffer.bytes"
    receive_buffer_bytes = config.get_int(key) if config.is_set(key) else -1
    return bind(address, config.get_int("socket.listen.backlog.size"), receive_buffer_bytes)


def bind_all(
    config: BrokerConfig,
    *,
    may_fail: Collection[str] = (),
    without: Collection[str] = (),
    bound: Bound = NOTHING_BOUND,
) -> list[tuple[socket.socket, str]]:
    """Sockets for each of `listeners`, with the listener's name. may_fail: listeners whose problems are logged, and the
    broker starts without them. without: leave these out. bound: those that listen already; what is not taken is closed.
    Raises CannotListen, and leaves none open then.
    """
    listening: list[tuple[socket.socket, str]] = []
    left = dict(bound)
    try:
        for address in config.listeners:
            if address.name in without:
                continue
            try:
                sockets = left.pop(address, None) or bind_listener(config, address)
                listening += [(sock, address.name) for sock in sockets]
            except CannotListen as error:
                if address.name not in may_fail:
                    raise
                log.error("listener %s is not opened: %s", address.name, error)
    except BaseException:
        for sock, _ in listening:
            sock.close()
        raise
    finally:
        for sockets in left.values():
            for sock in sockets:
                sock.close()
    warn_of_open(config, listening)
    return listening


def warn_of_open(config: BrokerConfig, listening: Iterable[tuple[socket.socket, str]]) -> None:
    """Warn of those of these sockets, with their listeners' names, that are open to other machines without ACLs."""
    if config.get_optional_str("authorizer.class.name"):
        return
    names = {name for sock, name in listening if not is_loopback(sock)}
    addresses = [str(address) for address in config.listeners if address.name in names]
    if addresses:
        log.warning(
            "open to other machines without access control: %s; any client may read, change and delete all",
            ", ".join(addresses),
        )


def is_loopback(sock: socket.socket) -> bool:
    """Only this machine can reach what is bound."""
    host = plain_host(str(sock.getsockname()[0]))
    return host == "::1" or host.startswith("127.")


async def sweep_idle(reactor: Reactor, current_config: Callable[[], BrokerConfig]) -> None:
    """Close idle connections until cancelled."""
    while True:
        await trio.sleep(SWEEP_S)
        idle_ms = current_config().get_int("connections.max.idle.ms")
        reactor.sweep(trio.current_time() - idle_ms / 1000 if idle_ms >= 0 else float("-inf"))

"""The open listeners, and how they follow the settings while the broker runs (KIP-226).

One task applies changes of settings, one after the other. Removed listeners are closed first, since a new one may have
their port; new ones are opened, with TLS and authentication loaded before the first connection; then the registration
is updated. A listener that cannot be opened is logged, not advertised, and tried again with each change of settings.

A request for such a change is validated before anything is stored (`validate`), and answered when the change is applied
(`applied`). Apache Kafka (3.9) validates neither ports nor credentials: it answers NONE, stores the settings, and
registers a listener whose port it could not bind.

Connections of a removed listener get the answers that they are owed, among them the one to the request that removed
it, for `CLOSE_S`. Apache Kafka closes them at once.
"""

from __future__ import annotations

import logging
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from barnabas.replication import Endpoint, StoreError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.listener_changes import is_same, own_texts
from barnabas.server.config.problems import SettingsRefused, refusal
from barnabas.server.network.admission import Admission
from barnabas.server.network.connection import Connection
from barnabas.server.network.listener_security import ListenerSecurity, load_security
from barnabas.server.network.listeners import Bound, CannotListen, bind_listener, warn_of_open
from barnabas.server.network.reactor import Reactor
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.offload import Offload
from barnabas.server.settings.endpoints import ListenAddress

if TYPE_CHECKING:
    from barnabas.server.config.sasl import SaslSettings
    from barnabas.server.network.login import LoginService
    from barnabas.server.network.tls_listener import TlsListener
    from barnabas.server.security.sasl.jwks import Jwks

log = logging.getLogger("barnabas.network")

CLOSE_S: Final = 1.0


class ListenerLogin(NamedTuple):
    """How clients of a listener authenticate. `jwks`: sets of keys to be fetched for that, with their URL."""

    service: LoginService
    jwks: Sequence[tuple[Jwks, str]]


class _Configured(NamedTuple):
    """A listener as configured, without the settings that can change while it is open."""

    address: ListenAddress
    texts: Mapping[str, str]


class _Open(NamedTuple):
    """An open listener. `port`: also when a stop has closed the sockets. `tasks`: those that fetch keys for it."""

    configured: _Configured
    sockets: Sequence[socket.socket]
    port: int
    tls: TlsListener | None
    tasks: trio.CancelScope


class OpenListeners:
    """See the module. make_logins: for listeners with SASL, by name. keep_secret: called before a listener with SCRAM
    is opened. advertise: registers other endpoints of the broker.
    """

    def __init__(
        self,
        reactor: Callable[[], Reactor],
        admission: Callable[[], Admission],
        nursery: trio.Nursery,
        offload: Offload,
        *,
        current_config: Callable[[], BrokerConfig],
        make_logins: Callable[[SaslSettings], Mapping[str, ListenerLogin]],
        keep_secret: Callable[[], Awaitable[None]],
        advertise: Callable[[Sequence[Endpoint]], Awaitable[None]],
    ) -> None:
        self._reactor = reactor
        self._admission = admission
        self._nursery = nursery
        self._offload = offload
        self._config = current_config
        self._make_logins = make_logins
        self._keep_secret = keep_secret
        self._advertise = advertise
        self._open: dict[str, _Open] = {}
        self._logged: dict[str, str | None] = {}  # why a listener is not open, as logged; None: logged at the start
        self._endpoints: tuple[Endpoint, ...] = ()
        self._wanted = 0  # changes of settings
        self._done = 0  # those that are carried out
        self._progress = trio.Event()

    # -- what others use ---------------------------------------------------------------------------------------------

    async def begin(
        self,
        listening: Collection[tuple[socket.socket, str]],
        found: ListenerSecurity,
        logins: Mapping[str, ListenerLogin],
        endpoints: Sequence[Endpoint],
    ) -> None:
        """Accept from sockets that are bound already, each with its listener's name. logins: those that admission has
        been given. endpoints: as registered. The caller has logged why others are missing.
        """
        config = self._config()
        self._endpoints = tuple(endpoints)
        sockets: defaultdict[str, list[socket.socket]] = defaultdict(list)
        for sock, name in listening:
            sockets[name].append(sock)
        for address in config.listeners:
            if address.name in sockets:
                tls, login = found.tls.get(address.name), logins.get(address.name)
                await self._accept(config, address, sockets[address.name], tls, login)
            else:
                self._logged[address.name] = None
        self.config_changed()

    def duplicates(self) -> Bound:
        """The listening sockets, once more: they listen on when these here are closed. Raises OSError."""
        return {one.configured.address: [sock.dup() for sock in one.sockets] for one in self._open.values()}

    def config_changed(self) -> None:
        """Apply the settings now in force."""
        config = self._config()
        for address in config.listeners:
            one = self._open.get(address.name)
            if one is not None and one.tls is not None and one.configured == _configured(config, address):
                one.tls.refresh(config.for_listener(address.name))
        self._wanted += 1
        self._notify()

    async def validate(self, config: BrokerConfig) -> None:
        """Check that the listeners of `config` could be opened, or continue with it. Raises SettingsRefused."""
        new, current = [], self._config()
        for address in config.listeners:
            one = self._open.get(address.name)
            if one is None or one.configured != _configured(config, address):
                if not is_same(address, current, config):  # else this change is about other settings
                    new.append(address)
            elif one.tls is not None:
                why = one.tls.why_not(config.for_listener(address.name))
                if why is not None:
                    raise SettingsRefused([why])
        if new:
            staying = {address.name for address in config.listeners}
            freed = {one.configured.address.port for name, one in self._open.items() if name not in staying}
            await self._offload(_validate, config, new, freed)

    async def applied(self) -> None:
        """Wait until all changes of settings so far are applied, as far as possible."""
        wanted = self._wanted
        while self._done < wanted:
            await self._progress.wait()

    async def run(self) -> None:
        """Apply changes of settings until cancelled."""
        while True:
            while self._done == self._wanted:
                await self._progress.wait()
            wanted = self._wanted
            try:
                await self._follow(self._config())
            finally:
                self._done = wanted
                self._notify()

    # -- applying settings --------------------------------------------------------------------------------------------

    async def _follow(self, config: BrokerConfig) -> None:
        addresses = {address.name: address for address in config.listeners}
        left: list[Connection] = []
        try:
            for name, one in list(self._open.items()):
                if name not in addresses or one.configured != _configured(config, addresses[name]):
                    left += self._close(name)
            for address in config.listeners:
                if address.name not in self._open:
                    try:
                        await self._open_one(config, address)
                    except (SettingsRefused, CannotListen, StoreError) as error:
                        self._not_opened(address.name, str(error))
                    except Exception as error:
                        contain(log, f"opening listener {address}", error)
            endpoints = self._advertised_endpoints(config)
            if endpoints != self._endpoints:
                self._endpoints = endpoints
                await self._advertise(endpoints)
        finally:
            # Not before: the answer to the request for this change may be among those owed.
            if left:
                self._nursery.start_soon(_close_later, left)

    async def _open_one(self, config: BrokerConfig, address: ListenAddress) -> None:
        """Raises SettingsRefused, CannotListen, StoreError."""
        name = address.name
        found = await self._offload(load_security, config, [name])
        login = None
        if found.sasl is not None:
            if found.has_scram:
                await self._keep_secret()
            login = self._make_logins(found.sasl)[name]
        sockets = await self._offload(bind_listener, config, address)
        try:
            self._admission().set_login(name, None if login is None else login.service)
            await self._accept(config, address, sockets, found.tls.get(name), login)
        except BaseException:
            for sock in sockets:
                sock.close()
            raise
        warn_of_open(config, [(sock, name) for sock in sockets])
        log.info("listener %s is open", address)

    def _not_opened(self, name: str, why: str) -> None:
        """Log it once."""
        if self._logged.get(name, "") not in (None, why):
            log.error("listener %s is not opened: %s", name, why)
        self._logged[name] = why

    async def _accept(
        self,
        config: BrokerConfig,
        address: ListenAddress,
        sockets: Sequence[socket.socket],
        tls: TlsListener | None,
        login: ListenerLogin | None,
    ) -> None:
        tasks = trio.CancelScope()
        if login is not None and login.jwks:
            await self._nursery.start(_fetch, login.jwks, tasks)
        name, admission, reactor = address.name, self._admission(), self._reactor()
        secure = None if tls is None else tls.carrier
        accepting: list[socket.socket] = []
        try:
            for sock in sockets:
                reactor.add_listener(sock, admission.accept(name), secure, admission.may_accept(name))
                accepting.append(sock)
        except BaseException:
            tasks.cancel()
            for sock in accepting:
                reactor.remove_listener(sock)
            raise
        self._logged.pop(name, None)
        port = sockets[0].getsockname()[1]
        self._open[name] = _Open(_configured(config, address), sockets, port, tls, tasks)

    def _close(self, name: str) -> list[Connection]:
        """Returns the connections that are owed an answer."""
        one = self._open.pop(name)
        for sock in one.sockets:
            self._reactor().remove_listener(sock)
        one.tasks.cancel()
        left = self._reactor().end_connections(name)
        self._admission().set_login(name, None)
        log.info("listener %s is closed", one.configured.address)
        return left

    def _advertised_endpoints(self, config: BrokerConfig) -> tuple[Endpoint, ...]:
        """The endpoints of the open listeners, as advertised."""
        ports: defaultdict[str, int] = defaultdict(int)
        ports |= {name: one.port for name, one in self._open.items()}
        return endpoints_of(config, ports, self._open)

    def _notify(self) -> None:
        self._progress.set()
        self._progress = trio.Event()


def endpoints_of(config: BrokerConfig, ports: Mapping[str, int], names: Collection[str]) -> tuple[Endpoint, ...]:
    """The endpoints of the listeners `names`, as advertised. ports: the bound ones, by name."""
    return tuple(
        Endpoint(each.name, each.host, each.port, each.protocol)
        for each in config.advertised(ports, socket.gethostname())
        if each.name in names
    )


def _configured(config: BrokerConfig, address: ListenAddress) -> _Configured:
    return _Configured(address, own_texts(config, address.name))


def _validate(config: BrokerConfig, addresses: Sequence[ListenAddress], freed: Collection[int]) -> None:
    """Load TLS and authentication of these listeners and bind their addresses, and discard all that. freed: ports of
    listeners that are to be closed first. Raises SettingsRefused.
    """
    load_security(config, [address.name for address in addresses])
    for address in addresses:
        if address.port in freed:
            continue
        try:
            for sock in bind_listener(config, address):
                sock.close()
        except CannotListen as error:
            raise SettingsRefused([refusal("listeners", config.get_str("listeners"), str(error))]) from None


async def _fetch(
    jwks: Sequence[tuple[Jwks, str]],
    scope: trio.CancelScope,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep these keys as they are at their URLs until `scope` is cancelled; started after the first time."""
    from barnabas.server.network.jwks_fetch import JwksFetcher  # loads what reads URLs

    with scope:
        async with trio.open_nursery() as nursery:
            for keys, url in jwks:
                await nursery.start(JwksFetcher(keys, url).run)
            task_status.started()


async def _close_later(connections: Sequence[Connection]) -> None:
    await trio.sleep(CLOSE_S)
    for connection in connections:
        connection.abort()

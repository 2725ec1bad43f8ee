"""How visitors get in: with the console's password, or as a user of the cluster.

With the console's password all visitors share its client, and are at the brokers whoever that is. As a user of the
cluster each has a client of his own, so the cluster's access control counts for him, and nothing that it has told one
visitor is shown to another.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
import time
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import NamedTuple, Protocol

from barnabas.server.client.approach import Approach
from barnabas.server.client.client import Client
from barnabas.server.client.connections import tcp
from barnabas.server.client.failures import ClientError
from barnabas.server.console.bearer import Bearer, NoToken
from barnabas.server.console.desk import Desk
from barnabas.server.network.peers import Connect
from barnabas.server.security.sasl.client import ClientCredentials
from barnabas.server.security.sasl.oauthbearer import MECHANISM as OAUTHBEARER


class NoEntry(Exception):
    """The text says why."""


class Entrance(NamedTuple):
    """`who`: for the audit. `desk`: of his own; None: the shared one. `lasts_s`: until he must log in again; None: as
    long as other log-ins.
    """

    who: str
    desk: Desk | None = None
    lasts_s: float | None = None


class Door(Protocol):
    """See the module. asks_name: a name, too. asks_token: a token instead of a password."""

    asks_name: bool
    asks_token: bool

    async def enter(self, name: str, password: str) -> Entrance:
        """Raises NoEntry."""
        ...


class PasswordDoor:
    """One password for all. random(n): n bytes."""

    asks_name = False
    asks_token = False

    def __init__(self, password: str, random: Callable[[int], bytes]) -> None:
        self._key = random(32)
        self._digest = self._digested(password)

    async def enter(self, name: str, password: str) -> Entrance:
        if not hmac.compare_digest(self._digested(password), self._digest):
            raise NoEntry("The password is wrong.")
        return Entrance("a visitor")

    def _digested(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode("utf-8", "surrogateescape"), hashlib.sha256)


class ClusterDoor:
    """A user of the cluster. mechanism: PLAIN, a SCRAM, or OAUTHBEARER: then a token is the password and there is no
    name, and the log-in ends with the token. tls: to the brokers, None: without. now(): seconds since the epoch.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        mechanism: str,
        tls: ssl.SSLContext | None,
        *,
        timeout_s: float = 10.0,
        connect: Connect = tcp,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.asks_token = mechanism == OAUTHBEARER
        self.asks_name = not self.asks_token
        self._now = now
        self._bootstrap = bootstrap
        self._mechanism = mechanism
        self._tls = tls
        self._timeout_s = timeout_s
        self._connect = connect

    async def enter(self, name: str, password: str) -> Entrance:
        lasts_s: float | None = None
        if self.asks_token:
            try:
                bearer = Bearer.of(password, self._now())
            except NoToken as error:
                raise NoEntry(str(error)) from None
            name, password = bearer.who, bearer.token
            lasts_s = None if bearer.expires_s is None else bearer.expires_s - self._now()
        client = Client(
            self._bootstrap,
            approach=Approach(self._tls, ClientCredentials(self._mechanism, name, password)),
            client_id="barnabas-console",
            timeout_s=self._timeout_s,
            connect=self._connect,
            rng=SystemRandom(),
        )
        try:
            await client.refresh([])
        except ClientError as error:
            await client.aclose()
            raise NoEntry(str(error)) from None
        return Entrance(name, Desk(client), lasts_s)

"""Who comes into a broker or a cluster of the kit, and how: what `security=` and `users=` of both say.

Imports nothing of the broker until somebody asks for access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.server.security.client_access import ClientAccess

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
ADMINISTRATOR, ADMINISTRATOR_PASSWORD = "admin", "admin-secret"
USERS: Final = {"alice": "alice-secret"}


class Security:
    """protocol: None for everybody, without a log-in. users: passwords by name, None for `USERS`. who: has it, in
    messages: `barnabas.Broker`. Raises ValueError.
    """

    def __init__(self, protocol: str | None, users: Mapping[str, str] | None, who: str) -> None:
        if protocol is None and users is not None:
            raise ValueError(f"users of {who} have no effect without security")
        if protocol not in (None, *PROTOCOLS):
            raise ValueError(f"security of {who} is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        self.protocol = protocol
        self._users = {ADMINISTRATOR: ADMINISTRATOR_PASSWORD, **(USERS if users is None else users)}
        self._who = who

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.protocol is not None

    def arguments(self, files: Path) -> list[str]:
        """Of `barnabas dev`. files: the directory of certificates, which the broker makes if it is not there."""
        if self.protocol is None:
            return []
        users = [word for name, password in self._users.items() for word in ("--user", f"{name}:{password}")]
        return ["--security", self.protocol, "--security-files", str(files), *users]

    def access(self, user: str | None, mechanism: str, place: Callable[[], tuple[str, Path]]) -> ClientAccess:
        """What a client of `user` must know; None for the first one. place(): where brokers are, and the directory of
        certificates. Raises ValueError for what is not there.
        """
        from barnabas.server.security.client_access import MECHANISMS, ClientAccess

        what = f"the {self._who.rpartition('.')[2].lower()}"
        if self.protocol is None:
            raise ValueError(f"{what} has no security: say {self._who}(security=…)")
        name = next((each for each in self._users if each != ADMINISTRATOR), ADMINISTRATOR) if user is None else user
        if name not in self._users:
            raise ValueError(f"{what} has no user {name!r}, but {', '.join(self._users)}")
        if mechanism not in MECHANISMS:
            raise ValueError(f"{what} has no mechanism {mechanism!r}, but {', '.join(MECHANISMS)}")
        bootstrap, files = place()
        return ClientAccess(bootstrap, self.protocol, str(files), name, self._users[name], mechanism)

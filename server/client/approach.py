"""How a client comes to brokers: with TLS or without, as whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from barnabas.server.network.peer_login import Credentials


@dataclass(frozen=True, slots=True)
class Approach:
    """`tls`: the context for TLS, `credentials`: to authenticate with; None: without."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None

    @property
    def protocol(self) -> str:
        """The security protocol of the listeners that are approached."""
        carrier = "PLAINTEXT" if self.tls is None else "SSL"
        return carrier if self.credentials is None else f"SASL_{carrier}"

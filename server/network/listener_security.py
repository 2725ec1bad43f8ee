"""TLS and authentication of listeners, as configured. Their modules are loaded with the first listener that has them:
that is a twentieth of a start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.server.config.broker import BrokerConfig

if TYPE_CHECKING:
    from barnabas.server.config.sasl import SaslSettings
    from barnabas.server.network.tls_listener import TlsListener

_TLS: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListenerSecurity:
    """`sasl`: None without a listener with SASL. `tls`: by listener."""

    sasl: SaslSettings | None
    tls: Mapping[str, TlsListener]

    @property
    def has_scram(self) -> bool:
        """Whether any listener has SCRAM."""
        return self.sasl is not None and self.sasl.has_scram


def load_security(config: BrokerConfig, names: Collection[str]) -> ListenerSecurity:
    """Load that of the listeners `names` of `config`. Blocks: reads their files. Raises SettingsRefused."""
    protocols = {listener.protocol for listener in config.listeners if listener.name in names}
    sasl: SaslSettings | None = None
    tls: Mapping[str, TlsListener] = {}
    if not protocols.isdisjoint(_TLS):
        from barnabas.server.network.tls_listener import tls_listeners

        tls = tls_listeners(config, names)
    if not protocols.isdisjoint(_SASL):
        from barnabas.server.config.sasl import sasl_settings

        sasl = sasl_settings(config, names)
    return ListenerSecurity(sasl, tls)

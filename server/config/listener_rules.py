"""What a broker listens on, what it advertises, and which listener is for other brokers and for the controller.

Rules, all of them Apache Kafka's (KafkaConfig, 3.9):

- `advertised.listeners` is a subset of `listeners`, names addresses that can be reached, and defaults to all of them;
- the listener between brokers is `inter.broker.listener.name`, or the one that is called like
  `security.inter.broker.protocol`; only one of the two may be set; it must be advertised;
- `control.plane.listener.name` must be advertised, and another one than the listener between brokers;
- between brokers over SASL, the listener must enable `sasl.mechanism.inter.broker.protocol`.

Listeners of a KRaft controller (`controller.listener.names`) are left out: they are never opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from barnabas.server.config.draft import Draft
from barnabas.server.config.values import ListenerConfig
from barnabas.server.settings.endpoints import (
    ListenAddress,
    parse_listeners,
    parse_protocol_map,
    split_list,
)

_LISTENERS = "listeners"
_ADVERTISED = "advertised.listeners"
_MAP = "listener.security.protocol.map"
_BETWEEN = "inter.broker.listener.name"
_BETWEEN_PROTOCOL = "security.inter.broker.protocol"
_CONTROL = "control.plane.listener.name"
_MECHANISM = "sasl.mechanism.inter.broker.protocol"


@dataclass(frozen=True, slots=True)
class Listeners:
    """`listening` and `advertised` in the order of the settings; an advertised host may be empty and a port 0, as long
    as nothing is bound. `inter_broker`, `control_plane`: names.
    """

    listening: tuple[ListenAddress, ...]
    advertised: tuple[ListenAddress, ...]
    inter_broker: str
    control_plane: str | None


def listeners_of(draft: Draft) -> Listeners | None:
    """The listeners that `draft` describes. None if they make no sense; then `draft` has the problems."""
    controllers = [name.upper() for name in split_list(draft.text("controller.listener.names"))]
    try:
        protocols = parse_protocol_map(draft.text(_MAP))
    except ValueError as error:
        draft.problem(_MAP, str(error))
        return None
    if _MAP not in draft.static:
        protocols |= {name: "PLAINTEXT" for name in controllers if name not in protocols}
    listening = _addresses(draft, _LISTENERS, protocols, controllers)
    are_given = draft.values[_ADVERTISED] is not None
    advertised = _addresses(draft, _ADVERTISED, protocols, controllers) if are_given else listening
    if not listening or not advertised:
        return None
    if are_given:
        why = why_not_advertised(advertised, {listener.name for listener in listening})
        if why is not None:
            draft.problem(_ADVERTISED, why)
            return None
    names = [listener.name for listener in advertised]
    inter_broker = _inter_broker(draft, names)
    if inter_broker is None:
        return None
    control_plane = None if draft.values[_CONTROL] is None else draft.text(_CONTROL).upper()
    if control_plane is not None:
        why = why_not_control_plane(control_plane, names, inter_broker)
        if why is not None:
            draft.problem(_CONTROL, why)
    return Listeners(listening, advertised, inter_broker, control_plane)


def _addresses(
    draft: Draft, key: str, protocols: dict[str, str], controllers: Sequence[str]
) -> tuple[ListenAddress, ...]:
    """The addresses in a list of listeners, without those for a KRaft controller; none if they are refused."""
    text = str(draft.values[key])
    try:
        every = parse_listeners(text, protocols, distinct_ports=key == _LISTENERS)
        usable = tuple(listener for listener in every if listener.name not in controllers)
        if not usable:
            raise ValueError("it must name a listener")
    except ValueError as error:
        draft.problem(key, str(error), text=text)
        return ()
    return usable


def why_not_advertised(advertised: Sequence[ListenAddress], listening: Collection[str]) -> str | None:
    """Why these cannot be advertised by a broker that listens on `listening` (names), as the end of a sentence."""
    for listener in advertised:
        if listener.host in ("0.0.0.0", "::"):
            return f"clients cannot connect to {listener.host}; name an address that they can reach"
        if listener.name not in listening:
            return f"{listener.name} must be one of the listeners: {', '.join(sorted(listening))}"
    return None


def _inter_broker(draft: Draft, names: Sequence[str]) -> str | None:
    """The listener between brokers. None if there can be none; then `draft` has the problem."""
    if draft.values[_BETWEEN] is not None:
        name = draft.text(_BETWEEN).upper()
        if _BETWEEN_PROTOCOL in draft.texts:
            draft.problem(_BETWEEN, f"only one of it and {_BETWEEN_PROTOCOL} may be set")
        elif name not in names:
            draft.problem(_BETWEEN, f"it must be one of the advertised listeners: {', '.join(names)}")
        else:
            return name
        return None
    protocol = str(draft.values[_BETWEEN_PROTOCOL])
    if protocol in names:
        return protocol
    if _BETWEEN_PROTOCOL in draft.texts:
        draft.problem(
            _BETWEEN_PROTOCOL, f"no advertised listener has this name; set {_BETWEEN} to one of {', '.join(names)}"
        )
    else:
        key = _LISTENERS if draft.values[_ADVERTISED] is None else _ADVERTISED
        why = f"none is called {protocol}, so {_BETWEEN} must name one of {', '.join(names)}"
        draft.problem(key, why, text=str(draft.values[key]))
    return None


def why_not_control_plane(name: str, advertised: Sequence[str], inter_broker: str) -> str | None:
    """Why the controller's requests cannot come in on the listener `name`, as the end of a sentence."""
    if name not in advertised:
        return f"it must be one of the advertised listeners: {', '.join(advertised)}"
    if name == inter_broker:
        others = ", ".join(other for other in advertised if other != name) or "nothing (leave it out)"
        return f"it must be another one than the listener between brokers, {inter_broker}; allowed: {others}"
    return None


def check_mechanism_between_brokers(draft: Draft, listeners: Listeners, configs: Mapping[str, ListenerConfig]) -> None:
    """What other brokers log in with must be offered where they connect."""
    protocol = next(one.protocol for one in listeners.listening if one.name == listeners.inter_broker)
    mechanism = str(draft.values[_MECHANISM])
    enabled = configs[listeners.inter_broker].get_list("sasl.enabled.mechanisms")
    why = why_not_mechanism(protocol, mechanism, enabled, listeners.inter_broker)
    if why is not None:
        draft.problem(_MECHANISM, why)


def why_not_mechanism(protocol: str, mechanism: str, enabled: Sequence[str], listener: str) -> str | None:
    """Why brokers cannot log in to each other with `mechanism`, as the end of a sentence."""
    if not protocol.startswith("SASL_") or mechanism in enabled:
        return None
    allowed = ", ".join(enabled) or "none"
    return f"it must be one of sasl.enabled.mechanisms of the listener between brokers, {listener}; allowed: {allowed}"

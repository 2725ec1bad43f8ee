"""What may change about listeners while the broker runs (KIP-226): they are added and removed, and the addresses that
they advertise change. One that stays keeps its settings, but for its key and trust stores and its limits.

Pure: compares the settings in force with new ones. Settings that contradict each other are refused before, by
`listener_rules`. Source: `DynamicListenerConfig` in core's `DynamicBrokerConfig.scala` (3.9).

Different from Apache Kafka: it lets the address of a listener that stays be changed, advertises the new one, and goes
on listening on the old one until it is started again. Here that is refused. With KRaft (4.3) it opens
added listeners without advertising them, and refuses to change advertised.listeners; here both work in each mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import refusal
from barnabas.server.settings.endpoints import ListenAddress
from barnabas.server.settings.listener_keys import LIMITS, PREFIX, RELOADED

_LISTENERS: Final = "listeners"
_MAP: Final = "listener.security.protocol.map"
_KEYS: Final = frozenset({_LISTENERS, "advertised.listeners", _MAP})
_NOT_FIXED: Final = RELOADED | LIMITS


def is_of_listeners(key: str) -> bool:
    """Whether a setting defines the listeners, or is of one of them."""
    return key in _KEYS or key.startswith(PREFIX)


def with_listeners_of(settings: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The dynamic settings `settings` of a broker, with the settings of listeners from `others`."""
    return {key: text for key, text in settings.items() if not is_of_listeners(key)} | {
        key: text for key, text in others.items() if is_of_listeners(key)
    }


def why_not_stored(wanted: Mapping[str, str], after: BrokerConfig) -> str | None:
    """Why `after`, made from the dynamic settings `wanted`, lacks some that define listeners; None if it has them all.
    Invalid ones are left out, and then `after` has the listeners of the file.
    """
    left_out = [key for key in wanted if key in _KEYS and key not in after.broker_overrides]
    return next((notice.text for notice in after.notices if notice.key in left_out), None)


def own_texts(config: BrokerConfig, listener: str) -> dict[str, str]:
    """The settings of one listener that cannot change while it is open, by the key without its prefix."""
    prefix = f"{PREFIX}{listener.lower()}."
    return {
        key[len(prefix) :]: text
        for layer in (config.static, config.cluster_defaults, config.broker_overrides)
        for key, text in layer.items()
        if key.startswith(prefix) and key[len(prefix) :] not in _NOT_FIXED
    }


def is_same(address: ListenAddress, before: BrokerConfig, after: BrokerConfig) -> bool:
    """Whether a listener of `after` is one of `before`, with the settings that it has there."""
    return address in before.listeners and own_texts(before, address.name) == own_texts(after, address.name)


def why_not_now(before: BrokerConfig, after: BrokerConfig) -> str | None:
    """Why a broker that runs with `before` cannot go on with `after`, as a sentence; None if it can."""
    there = {address.name: address for address in before.listeners}
    for address in after.listeners:
        old = there.get(address.name)
        if old is None:
            continue
        if address.protocol != old.protocol:
            why = f"the protocol of {old.name} cannot be changed while it is open, it is {old.protocol}"
            return refusal(_MAP, after.get_str(_MAP), why)
        if address != old:
            why = f"the address of {old.name} cannot be changed while it is open, it is {old}; remove it first"
            return refusal(_LISTENERS, after.get_str(_LISTENERS), why)
        texts, others = own_texts(before, old.name), own_texts(after, old.name)
        for key in sorted(texts.keys() | others.keys()):
            if texts.get(key) != others.get(key):
                full = f"{PREFIX}{old.name.lower()}.{key}"
                return refusal(full, others.get(key, ""), "it cannot be changed while the listener is open")
    return None

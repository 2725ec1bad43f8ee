"""Settings before they are a `BrokerConfig`: texts of all layers become values, and problems are collected.

A draft accepts all input and never raises: errors go into `problems` and `notices`, so that all are reported together.
Rules over several keys are in `rules` and `listener_rules`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.server.config.problems import Notice, refusal, shown
from barnabas.server.config.values import ListenerConfig
from barnabas.server.settings import BROKER, Support, Value
from barnabas.server.settings.listener_keys import PREFIX, ListenerKey, lacks_listener, parse_listener_key

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

# Former keys of Apache Kafka: "unknown" would not help a user who still has them in a file.
_FORMER = {
    "host.name": "listeners",
    "port": "listeners",
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "log.retention.size": "log.retention.bytes",
    "log.file.size": "log.segment.bytes",
    "quota.producer.default": "",
    "quota.consumer.default": "",
}


class Draft:
    """Values so far, by key, and what is wrong with them.

    `static`: the texts of file, environment and command line; `origins`: where they come from, by key. `texts`: of all
    layers, the highest of each key.
    """

    def __init__(self, static: Mapping[str, str], origins: Mapping[str, str]) -> None:
        self.static = static
        self.texts: dict[str, str] = {}
        self.values: dict[str, Value] = {name: row.default for name, row in BROKER.items()}
        self.problems: list[str] = []
        self.refused: set[str] = set()
        self.notices: list[Notice] = []
        self._origins = origins
        self._of_listeners: defaultdict[str, defaultdict[str, dict[str, Value]]] = defaultdict(
            lambda: defaultdict(dict)
        )  # by listener, then by mechanism ("": none)
        self._listener_keys: dict[str, ListenerKey] = {}
        self.layer(static, dynamic=False)

    def layer(self, texts: Mapping[str, str], *, dynamic: bool) -> dict[str, str]:
        """Put one layer over what there is. Returns the texts that were taken.

        A bad value of a dynamic layer is left out with a notice; of the static one it is a problem.
        """
        taken: dict[str, str] = {}
        for key, text in texts.items():
            if self._take(key, text, dynamic=dynamic):
                taken[key] = self.texts[key] = text
        return taken

    def _take(self, key: str, text: str, *, dynamic: bool) -> bool:
        row, values = BROKER.get(key), self.values
        if row is None:
            prefixed = parse_listener_key(key)
            why = None if prefixed is None else prefixed.why_not()
            if prefixed is None or (why is not None and dynamic):
                self._unknown(key, text, dynamic=dynamic)
                return True
            if why is not None:
                self.problem(key, why, text=text)
                return False
            self._listener_keys[key] = prefixed
            row, values = prefixed.row, self._of_listeners[prefixed.listener][prefixed.mechanism]
        if row.default is None and not text.strip():  # `KEY=` in a container's environment: not set
            values[row.name] = None
            return True
        why = row.why_not(text)
        if why is None:
            values[row.name] = row.parse(text)
            if row.support is Support.NO_EFFECT or (row.support is Support.ONLY and values[row.name] != row.default):
                self.notice(key, f"has no effect here: {row.note}", text=text, dynamic=dynamic)
            return True
        if dynamic:
            self.notice(key, f"is stored as a dynamic setting but ignored: {why}", text=text, dynamic=True)
        else:
            self.problem(key, why, text=text)
        return False

    def _unknown(self, key: str, text: str, *, dynamic: bool) -> None:
        hint = ""
        if key in _FORMER:
            better = f"; use {_FORMER[key]}" if _FORMER[key] else ""
            self.notice(key, f"was removed from Apache Kafka and is ignored{better}", text=text)
            return
        if lacks_listener(key):
            hint = f" (is {PREFIX}<listener>.{key} meant?)"
        elif not dynamic:
            from difflib import get_close_matches  # rarely needed, slow to load

            close = get_close_matches(key, BROKER, n=1, cutoff=0.85)
            hint = f" (is {close[0]} meant?)" if close else ""
        self.notice(key, f"is unknown and is ignored{hint}", text=text, dynamic=dynamic)

    # -- problems ---------------------------------------------------------------------------------------------------

    def text(self, key: str) -> str:
        """The text in force: as given, else the default's; "" where there is none."""
        return self.texts.get(key) or BROKER[key].default_text or ""

    def problem(self, key: str, why: str, *, text: str | None = None) -> None:
        """`key` cannot have the value it has: `why` ends the sentence. `text`: instead of the text in force."""
        self.refused.add(key)
        self.problems.append(refusal(key, self.text(key) if text is None else text, why + self._origin(key)))

    def notice(self, key: str, what: str, *, text: str | None = None, dynamic: bool = False) -> None:
        """One warning: `what` continues the sentence after `key=value`."""
        origin = "" if dynamic else self._origin(key)
        text = self.text(key) if text is None else text
        self.notices.append(Notice(key, f"{key}={shown(key, text)} {what}{origin}"))

    def _origin(self, key: str) -> str:
        """Where the text in force was written, if that is what counts: a dynamic value has no place in a file."""
        is_static = self.texts.get(key, self.static.get(key)) == self.static.get(key)
        return f" ({self._origins[key]})" if key in self._origins and is_static else ""

    # -- listeners --------------------------------------------------------------------------------------------------

    def listener_configs(self, names: tuple[str, ...]) -> dict[str, ListenerConfig]:
        """The settings of each listener of `names` (in upper case). Settings for other listeners become notices."""
        for key, prefixed in self._listener_keys.items():
            if key not in self.texts:
                continue  # refused, or left out
            name = prefixed.listener
            if name != name.lower() and name.upper() in names:
                self.notice(key, f"is ignored: the listener's name must be in lower case, {name.lower()}")
            elif name.upper() not in names:
                self.notice(key, f"is ignored: no listener is called {name.upper()}, there is {', '.join(names)}")
        return {name: self._listener_config(name) for name in names}

    def _listener_config(self, name: str) -> ListenerConfig:
        given = self._of_listeners[name.lower()]
        own = given[""]
        mechanisms = {mechanism: values for mechanism, values in given.items() if mechanism}
        return ListenerConfig({**self.values, **own}, name, frozenset(own), mechanisms)

"""Regular expressions that members of KIP-848 groups subscribe to, in RE2's syntax, matched against whole topic names.

RE2 takes time linear in the name, whatever the expression: one that a client chose cannot hold the broker up. The
library (google-re2) is loaded with the first expression. Internal topics match like others, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MAX_MEM = 8 << 20
"""Bytes that one compiled expression may take, RE2's own default; larger ones are invalid."""


def _compiled(pattern: str) -> Any:
    """Raises re2.error."""
    import re2  # few groups have expressions, and a broker must start fast

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEM
    return re2.compile(pattern, options)


def why_invalid(pattern: str) -> str | None:
    """What is wrong with an expression, as a client is told; None if nothing is."""
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        what = error.args[0] if error.args else ""
        text = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
        text = text.partition(": ")[0]  # what follows is the expression
        return f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {text}."
    return None


def matches(patterns: Collection[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
    """The names that match each of the patterns; none for one that is invalid (a newer release may have stored it)."""
    import re2

    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            matcher = _compiled(pattern)
        except re2.error:
            found[pattern] = frozenset()
            continue
        found[pattern] = frozenset(name for name in names if matcher.fullmatch(name) is not None)
    return found

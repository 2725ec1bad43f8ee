"""Regular expressions that members of KIP-848 groups subscribe to, matched against whole topic names; see
`barnabas.server.runtime.patterns`. Internal topics match like others, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.kproto import KafkaError
from barnabas.server.runtime.patterns import NoExpressions, compile_pattern


def why_invalid(pattern: str) -> str | None:
    """The error message for an invalid expression; None: it is valid."""
    try:
        compile_pattern(pattern)
    except NoExpressions as error:
        return f"SubscribedTopicRegex `{pattern}` cannot be used: {error.message}."
    except KafkaError as error:
        # What follows the colon is the expression.
        text = (error.message or "").partition(": ")[0]
        return f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {text}."
    return None


def matches(patterns: Collection[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
    """The names that match each of the patterns; none for one that is invalid (a newer release may have stored it, or a
    broker that has google-re2).
    """
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            is_match = compile_pattern(pattern)
        except KafkaError:
            found[pattern] = frozenset()
            continue
        found[pattern] = frozenset(filter(is_match, names))
    return found

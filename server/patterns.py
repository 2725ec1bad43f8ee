"""Filters that clients send as regular expressions: RE2's syntax, as Apache Kafka uses it (KIP-1152), and its promise
that matching takes time in proportion to the text, whatever the expression.

The library keeps the last 128 expressions in memory, each of which may take 8 MiB, whoever sent it; here none outlives
its use.
"""

from __future__ import annotations

from collections.abc import Callable

import re2

from barnabas.kproto import ErrorCode, KafkaError


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether all of a text matches. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        what = error.args[0] if error.args else ""
        text = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
    finally:
        re2.purge()

    def matches(text: str) -> bool:
        return compiled.fullmatch(text) is not None

    return matches

"""Filters that clients send as regular expressions: RE2's syntax, as Apache Kafka uses it (KIP-1152), which
guarantees matching in linear time for any expression.

The library, google-re2, has no wheel for every Python and platform, so an installation may lack it (`barnabas[regex]`
brings it). Such a broker logs that at its start, rejects every expression, and serves everything else.

The library keeps the last 128 expressions in memory, each of which may take 8 MiB, from whichever client; here none
is kept after its use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec

from barnabas.kproto import ErrorCode, KafkaError

log = logging.getLogger("barnabas.broker")


class NoExpressions(KafkaError):
    """INVALID_REGULAR_EXPRESSION, whatever the expression: google-re2 is not installed."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "this broker matches no regular expressions, as the Python package google-re2 is not installed there",
        )


def say_if_unsupported() -> None:
    """For the broker's log, when it starts. The library itself is loaded on first use."""
    if find_spec("re2") is None:
        log.info(
            "regular expressions of consumers (group.protocol=consumer) and of admin clients are refused with "
            "INVALID_REGULAR_EXPRESSION: the Python package google-re2 is not installed"
        )


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether all of a text matches. Raises KafkaError INVALID_REGULAR_EXPRESSION, of which `NoExpressions` is one."""
    try:
        import re2
    except ImportError:
        raise NoExpressions from None
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

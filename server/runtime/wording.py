"""Failures in plain words: no errno numbers, no tuples, no class names where a sentence is known.

    FATAL broker: cannot listen on PLAINTEXT://127.0.0.1:9092: address already in use (…)

Everything that ends a broker is worded here for the log (`barnabas.server.broker.process`).
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from barnabas.kproto import KafkaError


def in_words(error: BaseException) -> str:
    """The message of an exception, on one line. A system error: its subject, if known, and the system's
    message.
    """
    if isinstance(error, KafkaError):
        return error.message or error.code.name
    if isinstance(error, OSError):
        said = system_says(error)
        about = [str(each) for each in (error.filename, error.filename2) if each is not None]
        return f"{' and '.join(about)}: {said}" if about else said
    return " ".join(str(error).split()) or type(error).__name__


def system_says(error: OSError) -> str:
    """`address already in use`: the system's own words for the error, in the middle of a sentence. Libraries add
    addresses to them, which the message already has.
    """
    text = error.strerror or ""
    if error.errno is not None and error.errno > 0 and text.startswith(os.strerror(error.errno)):
        text = os.strerror(error.errno)
    text = text.partition(" (while attempting")[0]
    return text[:1].lower() + text[1:] if text else str(error) or type(error).__name__


def causes(error: BaseException) -> list[BaseException]:
    """The exceptions in nested groups; equal ones once."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    found: dict[tuple[type, str], BaseException] = {}
    for each in error.exceptions:
        for leaf in causes(each):
            found.setdefault((type(leaf), str(leaf)), leaf)
    return list(found.values())


def crash(error: BaseException) -> str:
    """A bug, on one line: the exception and where it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    name, text = type(error).__name__, in_words(error)
    return f"{name}{where}" if text == name else f"{name}: {text}{where}"

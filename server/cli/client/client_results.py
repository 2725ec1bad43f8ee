"""What the commands that are clients share: exit codes, and how results and failures are said."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from barnabas.server.cli.client.tables import printable
from barnabas.server.client.client import Client
from barnabas.server.client.failures import Failed

OK, FAILED, REFUSED = 0, 1, 2

Command = Callable[[argparse.Namespace, Client], Awaitable[int]]
"""Does what was chosen; returns the exit code. Raises Unclear, ClientError."""


class Unclear(Exception):
    """The command line cannot be used; the text says why."""


def complain(text: str) -> None:
    print(f"barnabas: {printable(' '.join(text.split()))}", file=sys.stderr)


def note(text: str) -> None:
    """What a person may want to know beside the output."""
    print(printable(text), file=sys.stderr)


def report(results: Mapping[str, Any], done: Callable[[str, Any], str], not_done: Callable[[str], str]) -> int:
    """A line for each result; returns the exit code. done(name, result), not_done(name): what is said."""
    code = OK
    for name, result in results.items():
        if isinstance(result, Failed):
            complain(f"{not_done(name)}: {result}")
            code = FAILED
        else:
            print(done(name, result))
    return code


def complain_of(failed: Iterable[tuple[str, Failed]]) -> int:
    """The exit code for a list of failures, each said once."""
    code = OK
    for what, why in failed:
        complain(f"{what}: {why}")
        code = FAILED
    return code


def print_json(document: Any) -> None:
    import json

    has_all = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(document, indent=2, ensure_ascii=not has_all))

"""Barnabas, a broker that speaks Apache Kafka's protocol. This module is its face; the packages stand beside this file.

Those packages have plain names (`server`, `coordinator`, …). Another package of such a name that comes first on the
import path would be started in our place, so their places are checked before anything of them is imported.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main"]

PACKAGES = ("kproto", "logdir", "coordinator", "replication", "server")


def main() -> None:
    """The `barnabas` command."""
    strangers = _strangers()
    if strangers:
        for name, place in strangers:
            print(
                f"barnabas: the package '{name}' of {place} hides the broker's own; move it off the path",
                file=sys.stderr,
            )
        sys.exit(2)
    from server.cli import run

    run()


def _strangers() -> list[tuple[str, str]]:
    """Packages of our names that are not ours: (name, where it is)."""
    home = Path(__file__).resolve().parent
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve().parent
        if origin != home / name:
            found.append((name, str(origin or "(nowhere)")))
    return found


if __name__ == "__main__":
    main()

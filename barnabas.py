"""Barnabas, a broker that speaks Apache Kafka's protocol. This module is its face; the packages stand beside this file.

    import barnabas

    with barnabas.Broker(settings={"num.partitions": "3"}) as broker:      # a broker for a test suite
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

Those packages have plain names (`server`, `coordinator`, …), which other programs may use too. So `Broker` runs them in
a process of their own, nothing of them is imported here before `main` is called, and `main` first makes sure that it
gets ours: a package of such a name that comes first on the import path would be started in our place.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as `typing` has it, which takes its time
if TYPE_CHECKING:
    from typing import Any

    from barnabas_process import Broker, BrokerError

__all__ = ["Broker", "BrokerError", "main"]

PACKAGES = ("kproto", "logdir", "coordinator", "replication", "server")


def __getattr__(name: str) -> Any:
    # Late: started as `python -P barnabas.py`, this file finds its neighbours only once `main` has seen to it.
    if name in ("Broker", "BrokerError"):
        import barnabas_process

        return getattr(barnabas_process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """The `barnabas` command."""
    import signal

    # First of all: Ctrl-C ends the process as SIGTERM does, not with a traceback out of some import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _come_first()
    strangers = _strangers()
    if strangers:
        for name, place in strangers:
            print(
                f"barnabas: the package '{name}' of {place} hides the broker's own; move it off the path",
                file=sys.stderr,
            )
        sys.exit(2)
    from server import signals

    signals.leave_at_once()

    from server.cli import run

    run()


def _come_first() -> None:
    """Put our place before the first place on the import path that has a package of our names; at its end if it is not
    there at all. Not simply first: there, all of site-packages would come before Python's own modules.
    """
    from pathlib import Path

    home = Path(__file__).resolve().parent
    strange = {Path(place).parent for _, place in _strangers()}
    at = next((i for i, entry in enumerate(sys.path) if Path(entry).resolve() in strange), len(sys.path))
    if strange:
        sys.path.insert(at, str(home))


def _strangers() -> list[tuple[str, str]]:
    """Packages of our names that are not ours: (name, where it is)."""
    from importlib.util import find_spec
    from pathlib import Path

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

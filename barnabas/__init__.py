"""Barnabas, a broker that speaks Apache Kafka's protocol. This module is its face.

    import barnabas

    with barnabas.Broker(settings={"num.partitions": "3"}) as broker:      # a broker for a test suite
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

Nothing is imported here before it is asked for: a test suite that uses `Broker` has none of the broker's modules in its
own process, which is why the face has next to no imports at its top.
"""

from __future__ import annotations

from os import path

TYPE_CHECKING = False  # as `typing` has it, which takes its time
if TYPE_CHECKING:
    from typing import Any

    from barnabas.child import BrokerError
    from barnabas.clock import Snapshot
    from barnabas.cluster import Cluster
    from barnabas.faults import Fault
    from barnabas.process import Broker
    from barnabas.topics import Record

__all__ = ["Broker", "BrokerError", "Cluster", "Fault", "Record", "Snapshot", "main"]

if not path.isdir(path.join(__path__[0], "server")):  # a checkout by a Git without symbolic links: they stand beside us
    __path__.append(path.dirname(__path__[0]))


def __getattr__(name: str) -> Any:
    if name in ("Broker", "BrokerError"):
        from barnabas import process

        return getattr(process, name)
    if name == "Cluster":
        from barnabas import cluster

        return cluster.Cluster
    if name == "Fault":
        from barnabas import faults

        return faults.Fault
    if name == "Record":
        from barnabas import topics

        return topics.Record
    if name == "Snapshot":
        from barnabas import clock

        return clock.Snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _open_what_is_closed() -> None:
    """Standard files that whoever started us has closed (`>&-`) are /dev/null: else files that are opened would get
    their numbers, and what is printed would go there.
    """
    import os
    import sys

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            mode = "r" if name == "stdin" else "w"
            file = open(number, mode, errors="backslashreplace", closefd=False)  # noqa: SIM115  # for good
            setattr(sys, name, file)


def main() -> None:
    """The `barnabas` command."""
    import signal
    import sys

    if sys.platform == "win32":
        print("barnabas: the broker does not run on Windows itself; run it in WSL", file=sys.stderr)
        sys.exit(2)

    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        _open_what_is_closed()
    # First of all: Ctrl-C ends the process as SIGTERM does, not with a traceback out of some import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from barnabas.server.runtime import signals

    signals.leave_at_once()

    from barnabas.server.cli.main import run

    run()

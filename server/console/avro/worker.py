"""The process in which Avro is decoded: what hostile bytes do there harms nobody else.

A line of JSON on standard input is a job, a line on standard output its result:

    {"define": 3, "texts": ["…"]}                                      -> {"why": null}
    {"items": [["base64", [[3, 5], [4, 0]]], …], "characters": 400, "pretty": false}
                                                                       -> {"results": [[0, "{…}", false], "why", …]}

An item's attempts are pairs of a schema's number and how many bytes stand before the datum; its result is the attempt,
the text and whether it was cut, or why there is none. `MEMORY_BYTES` more than at the start is all it may take, and
`CPU_S` of a processor for a job: then SIGPROF ends it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any, BinaryIO, Final

from barnabas.server.console.avro.decoding import NO_ROOM, Attempt, NotAvro, Schema, compiled, decoded

MEMORY_BYTES: Final = 128 * 1024 * 1024
CPU_S: Final = 2.0
TOO_LARGE: Final = "it would take too much memory"


class Jobs:
    """See the module. Does the jobs, without the bounds."""

    def __init__(self) -> None:
        self._schemas: dict[int, Schema] = {}

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        if "define" in job:
            try:
                self._schemas[job["define"]] = compiled(job["texts"])
            except NotAvro as error:
                return {"why": str(error)}
            except MemoryError:
                return {"why": NO_ROOM}
            return {"why": None}
        return {"results": [self._one(job, *item) for item in job["items"]]}

    def _one(self, job: dict[str, Any], data: str, attempts: list[tuple[int, int]]) -> list[Any] | str:
        try:
            tried = [Attempt(self._schemas[number], skip) for number, skip in attempts]
            which, text = decoded(tried, b64decode(data), is_pretty=job["pretty"])
        except NotAvro as error:
            return str(error)
        except MemoryError:
            return TOO_LARGE
        most = job["characters"]
        return [which, text[:most], len(text) > most]


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Until the source ends."""
    jobs = Jobs()
    for line in source:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # RLIMIT_CPU knows whole seconds only
        sink.write(json.dumps(jobs.do(json.loads(line))).encode() + b"\n")
        sink.flush()


def main() -> None:
    """The process."""
    import fastavro  # noqa: F401  before memory is bounded

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # whoever began this may ignore it
    serve(sys.stdin.buffer, sys.stdout.buffer)

"""Apache Kafka's TransactionalMessageCopier as a process that can be killed and started again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from compat_tests.clients.tools_cli.tools import JAVA_OPTIONS
from compat_tests.harness.jars import classpath, java
from compat_tests.harness.processes import Background

MAIN_CLASS = "org.apache.kafka.tools.TransactionalMessageCopier"


class Copier:
    """One transactional id, and the process that copies under it, if any.

    The program ends by itself, with status 0, when it has copied what was in its partitions as it began (or as it got
    them by a rebalance). *jars* name the version of Apache Kafka (see jars.py), *options* are further ones of its
    command line.
    """

    def __init__(self, bootstrap: str, transactional_id: str, jars: str, options: Sequence[str]) -> None:
        self.transactional_id = transactional_id
        self.starts = 0
        self.kills = 0
        self._command = [
            *(*java(), *JAVA_OPTIONS, "-cp", classpath(jars), MAIN_CLASS),
            *("--broker-list", bootstrap, "--transactional-id", transactional_id, *options),
        ]
        self._program: Background | None = None

    def start(self) -> None:
        """Start the process; the one before must have ended."""
        assert self._program is None
        self.starts += 1
        self._program = Background(self._command)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._program is not None:
            if self._program.process.poll() is None:
                self.kills += 1
            self._program.stop(kill=True)
            self._program = None

    def runs(self) -> bool:
        """Whether the process runs. One that has ended otherwise than with 0 fails the test, with what it said."""
        if self._program is None:
            return False
        if self._program.process.poll() is None:
            return True
        status = self._program.stop()
        said = "\n".join(self._program.lines[-40:])
        self._program = None
        assert status == 0, f"{self.transactional_id} ended with {status}:\n{said}"
        return False

    def copied(self) -> int:
        """Records that this process has copied in committed transactions."""
        return max((int(state["totalProcessed"]) for state in self._states()), default=0)

    def _states(self) -> Iterator[dict[str, object]]:
        for line in list(self._program.lines) if self._program else ():
            if line.startswith('{"transactionalId"'):
                yield json.loads(line)

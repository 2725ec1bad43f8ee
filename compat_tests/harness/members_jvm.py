"""A JVM with members of groups, which do as they are asked (`members`)."""

from __future__ import annotations

from pathlib import Path

from compat_tests.harness.jars import SHORT_LIVED, classpath, compiled, java
from compat_tests.harness.members import Members


class MembersJvm(Members):
    """See the module. source: the program, one file named like its class. version: of the clients. log: gets what it
    says.
    """

    def __init__(self, source: Path, version: str, log: Path, *, heap: str = "256m") -> None:
        jars = f"clients-{version}"
        path = f"{compiled(f'{source.stem.lower()}-{version}', [source], jars)}:{classpath(jars)}"
        options = [f"-Xmx{heap}", *SHORT_LIVED, "-Xss512k"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        super().__init__([*java(), *options, quiet, "-cp", path, source.stem], log)

"""Ask Apache Kafka again how it describes its settings, and store it: `python -m compat_tests.subjects.answers`."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

from compat_tests.subjects.access.connection import Connection
from compat_tests.subjects.answers.settings_table import describe, start, store

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="barnabas-answers-") as directory:
        broker = start(Path(directory), is_kafka=True)
        try:
            with closing(Connection(broker.address)) as connection:
                store(describe(connection, "t", 1))
        finally:
            broker.stop()

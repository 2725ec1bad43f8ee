"""README.md: what it lets clients do. `run.py` and installing are tried by `compat_tests/subjects/install`, the tests
that it shows by `server/tests/test_testing_document.py`, Spark's programs by `compat_tests/subjects/examples`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.harness.tools import kcat
from compat_tests.subjects.documents.stranger import Stranger, texts

pytestmark = pytest.mark.slow
PAGE = "README.md"
BROKER = "barnabas serve --set log.dirs=data --set listeners=PLAINTEXT://localhost:9092"


def test_python(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    (program,) = texts(PAGE, "Clients", "python")
    stranger.write("clients.py", program)
    with stranger.keeps_running(BROKER, "serves "):
        assert stranger.types("python3 clients.py").stdout == "b'hello'\n"


@pytest.mark.jvm
@pytest.mark.kcat
def test_tools(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path, with_kafka=True)
    stranger.program("kcat", [kcat().path], kcat().extra_environment)
    ((create, produce),) = [block.splitlines() for block in texts(PAGE, "Clients", "sh")]
    with stranger.keeps_running(BROKER, "serves "):
        stranger.types(f"{create}\n{produce}")
        assert stranger.types("barnabas consume events --bootstrap localhost:9092").stdout == "hello\n"

"""The commands of docs/console.md for machines, in order, against a console that runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("hypercorn")

from compat_tests.harness.brokers import PROJECT_ROOT
from compat_tests.subjects.console.place import broker, console

PAGE = PROJECT_ROOT / "docs" / "console.md"


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    script = "\n".join(block for block in blocks if "curl" in block)
    assert script.count("curl ") >= 5
    with broker(tmp_path / "broker") as bootstrap, console(bootstrap) as url:
        script = script.replace("curl ", "curl --fail-with-body ").replace("http://127.0.0.1:8080", url)
        ended = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{script}"], capture_output=True, timeout=300, cwd=tmp_path
        )
        said = ended.stdout.decode()
        assert ended.returncode == 0, (said, ended.stderr.decode())
        assert '"group":"billing"' in said
        assert '"done":"The topic was created."' in said
        assert len((tmp_path / "orders.ndjson").read_text().splitlines()) == 400
        for path in set(re.findall(r"^\| `(/[^`]*)`", text, re.MULTILINE)):
            real = path.replace("/T/", "/orders/").replace("/G/", "/billing/").replace("/N/", "/0/")
            found = subprocess.run(
                ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url + real], capture_output=True, timeout=120
            )
            if "/brokers/" not in real:  # the number is the broker's choice
                assert found.stdout == b"200", path

"""Each command of docs/commands.md, in order, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.subjects.commands.conftest import Commands, Unique

PAGE = Path(__file__).resolve().parents[3] / "docs" / "commands.md"
NAMES = ("orders", "copy", "billing")


@pytest.mark.slow
def test_the_page(commands: Commands, unique: Unique, tmp_path: Path) -> None:
    """The names on it are replaced: the broker may have such topics."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    script = "\n".join(blocks)
    assert script.count("barnabas ") >= 20
    for name in NAMES:
        script = re.sub(rf"\b{name}\b", unique(name), script)
    script = script.replace("'ord*'", "'*-orders'").replace("order.json", str(tmp_path / "order.json"))
    ended = commands.shell(script)
    assert ended.returncode == 0, (ended.stdout[-2000:], ended.stderr[-2000:])
    said = ended.stdout.decode()
    assert "topic " in said
    assert said.count("3 apples") >= 3

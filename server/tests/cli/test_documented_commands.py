"""Every call of `barnabas` in README and docs is one that the command line takes. What it does is tried elsewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from barnabas.server.cli import main as cli

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ("compat-apache-kafka.md", "compat-barnabas.md", "settings.md", "access-table.md")
BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def calls(page: Path) -> list[list[str]]:
    """The arguments of each, from its blocks of shell."""
    found: list[list[str]] = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
            words.whitespace_split = True
            words.commenters = "#"
            command: list[str] = []
            for word in [*words, ";"]:
                if word[0] not in "|&;<>":
                    command.append(word)
                    continue
                while command and re.fullmatch(r"[A-Z_]+=.*|sudo|exec", command[0]):
                    command = command[1:]
                if command and command[0] == "barnabas":
                    found.append(command[1:])
                command = []
    return found


PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_calls_of_a_page(page: Path) -> None:
    refused = []
    for call in calls(page):
        try:
            cli.parser(call).parse_args(call)
        except SystemExit as ended:
            if ended.code:
                refused.append(shlex.join(call))
    assert not refused


def test_they_are_found() -> None:
    found = {page.name: len(calls(page)) for page in PAGES}
    assert found["wire.md"] >= 5
    assert found["console.md"] >= 5
    assert sum(found.values()) >= 40, found

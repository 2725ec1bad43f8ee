"""What pyproject.toml asks for is pinned, and no text sends anybody to a package index for what is not there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OURS = {"barnabas", "barnabas-native"}
"""Both are in this repository."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")


def asked_for() -> list[Requirement]:
    lists = [
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
        *PROJECT["dependency-groups"].values(),
    ]
    found = [Requirement(text) for texts in lists for text in texts if isinstance(text, str)]
    return [requirement for requirement in found if requirement.name not in OURS]


def pinned() -> list[Requirement]:
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("python", PYTHONS)
def test_all_that_is_asked_for_is_pinned(python: str) -> None:
    place = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "os_name": "posix",
    }
    versions: dict[str, str] = {}
    for pin in pinned():
        if pin.marker is None or pin.marker.evaluate(place):
            (only,) = pin.specifier
            assert only.operator == "=="
            assert versions.setdefault(canonicalize_name(pin.name), only.version) == only.version, pin
    for requirement in asked_for():
        if requirement.marker is None or requirement.marker.evaluate(place):
            version = versions.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement} is not in .ci/constraints.txt; CONTRIBUTING.md says how"
            assert requirement.specifier.contains(version, prereleases=True), (str(requirement), version)


TOLD = re.compile(
    r"""\b(?:(?:pipx?|uv(?:\ pip|\ tool)?)\ (?:install|add|run)|uvx)\b  # a command that asks the index for …
        (?![^\n`]*\ --(?:from|spec)\b)[^\n`]*
        [\ ]['"]?barnabas(?:-native)?(?:\[[\w,-]+\])?(?=['"`\s]|$)  # … this project""",
    re.MULTILINE | re.VERBOSE,
)


def test_no_text_tells_to_install_what_is_not_on_the_index() -> None:
    """Whoever registers the name would be installed. This test goes once the project is there."""
    for bad in (
        "pip install barnabas",
        "x: pip install 'barnabas[spark]', on",
        "`uvx --with a barnabas dev`",
        "pip install barnabas-native",
    ):
        assert TOLD.search(bad), bad
    for good in ("pip install '.[spark]'", "uvx --from . barnabas", "/opt/barnabas/bin/pip install ."):
        assert not TOLD.search(good), good
    folders = ("docs", "examples", "barnabas", "kproto", "logdir", "coordinator", "replication", "server")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths += [ROOT / "Dockerfile", ROOT / "run.py", *ROOT.glob("*.md")]
    for path in paths:
        if path.suffix in (".md", ".py", ".yaml", ".service", ""):
            found = TOLD.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path.relative_to(ROOT)}: {found and found[0]}"

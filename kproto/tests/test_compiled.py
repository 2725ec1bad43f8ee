"""Which functions run compiled, and that they do where `barnabas-native` is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.kproto import compiled
from barnabas.kproto.compiled import FACE, Choice, choose

INSTALLED = find_spec("barnabas_native") is not None


def no_module(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_there() -> None:
    module = SimpleNamespace(FACE=FACE, __version__="7.8.9")
    assert choose("", lambda: module) == (module, Choice("7.8.9"))
    assert choose("0", lambda: module) == (module, Choice("7.8.9"))


@pytest.mark.parametrize("value", ["1", "yes"])
def test_turned_off(value: str) -> None:
    assert choose(value, lambda: pytest.fail("loaded")) == (None, Choice("", f"BARNABAS_PURE={value}"))


def test_not_installed() -> None:
    assert choose("", lambda: no_module("barnabas_native")) == (None, Choice("", "it is not installed"))


def test_broken() -> None:
    def load() -> Any:
        raise ImportError("version `GLIBC_2.99' not found")

    assert choose("", load) == (None, Choice("", "it cannot be imported: version `GLIBC_2.99' not found", True))
    why = "it cannot be imported: No module named 'barnabas_native.barnabas_native'"
    assert choose("", lambda: no_module("barnabas_native.barnabas_native")) == (None, Choice("", why, True))


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            {"FACE": FACE + 1, "__version__": "9.9"},
            f"9.9 is for another version of barnabas (face {FACE + 1}, not {FACE})",
        ),
        ({}, f"of no version is for another version of barnabas (face None, not {FACE})"),
    ],
)
def test_of_another_version(there: dict[str, Any], said: str) -> None:
    assert choose("", lambda: SimpleNamespace(**there)) == (None, Choice("", said, is_trouble=True))


def test_it_is_used_where_it_is_installed() -> None:
    """Nothing falls back without anybody noticing: the same is asked in a process without our environment."""
    if os.environ.get(compiled.PURE, "0") not in ("", "0"):
        assert (compiled.scan, compiled.CHOICE.version) == (None, "")
    elif INSTALLED:
        assert compiled.scan is not None
        assert not compiled.CHOICE.why_not
        try:
            assert compiled.CHOICE.version == version("barnabas-native")
        except PackageNotFoundError:
            assert compiled.CHOICE.version
    else:
        assert (compiled.CHOICE.version, compiled.CHOICE.why_not) == ("", "it is not installed")


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_variable_decides(pure: str) -> None:
    text = "from barnabas.kproto import compiled; print(bool(compiled.CHOICE.version), compiled.scan is not None)"
    environment = {**os.environ, compiled.PURE: pure, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    used = str(INSTALLED and not pure)
    assert done.stdout.split() == [used, used]

"""Functions of this package that run compiled where the distribution `barnabas-native` is installed (docs/native.md).

Each has a twin in Python, which is always there and is the specification. A compiled function answers None to what it
does not take, damaged or hostile data; its twin is asked then, and refuses in its own words, or takes it. So who calls
one writes

    found = compiled.scan(data, …) if compiled.scan is not None else None
    if found is None:
        found = _scan(data, …)

and a refusal is the same either way. Where there is state, in a `KeyMap`, nothing has happened to it when the answer is
None. The choice is made once, when this module is imported: without the distribution, with one that does not belong to
this package (`FACE`), and with BARNABAS_PURE=1 in the environment, every function here is None. What it is, and why, is
in `CHOICE`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

__all__ = ["CHOICE", "FACE", "PURE", "Choice", "KeyMap", "choose", "scan"]

FACE: Final = 2
"""What the compiled functions take and give, as a number that both sides know: `FACE` in kproto/native/src/lib.rs."""
PURE: Final = "BARNABAS_PURE"


class Choice(NamedTuple):
    """`version`: of the distribution that is used, "" for none, and then `why_not` says why. `is_trouble`: it is
    there, and ought to be used.
    """

    version: str
    why_not: str = ""
    is_trouble: bool = False


def choose(pure: str, load: Callable[[], Any]) -> tuple[Any, Choice]:
    """(the compiled module or None, what to say about it). `pure` is the value of `PURE`; `load` imports the module, or
    raises ImportError.
    """
    if pure not in ("", "0"):
        return None, Choice("", f"{PURE}={pure}")
    try:
        module = load()
    except ModuleNotFoundError as error:
        if error.name == "barnabas_native":
            return None, Choice("", "it is not installed")
        return None, Choice("", f"it cannot be imported: {error}", is_trouble=True)
    except ImportError as error:
        return None, Choice("", f"it cannot be imported: {error}", is_trouble=True)
    face, version = getattr(module, "FACE", None), getattr(module, "__version__", "of no version")
    if face != FACE:
        return None, Choice("", f"{version} is for another version of barnabas (face {face}, not {FACE})", True)
    return module, Choice(version)


def _load() -> Any:
    import barnabas_native

    return barnabas_native


_module, CHOICE = choose(os.environ.get(PURE, ""), _load)

Scanned = tuple[bool, bool, int, int, int]
scan: Final[Callable[[bytes, int, int, int], Scanned | None] | None] = _module and _module.scan
"""Twin: `_scan` of records_scan.py."""

KeyMap: Final[Callable[[int, int, bytes], Any] | None] = _module and _module.KeyMap
"""KeyMap(slots, room, secret), with state: twin of `OffsetMap` of barnabas.logdir.compaction, and its `note` and `keep`
of `_note` and `_keep` in key_map.py there, which are done with the same object where these answer None.
"""

"""What the settings of consumer, share and streams groups have in common: bounds of what a single group may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.server.settings.model import Setting, Value


class GroupSetting(NamedTuple):
    """A setting of one group. `broker_key`: the broker setting behind it, "" for none; its bounds hold for this one."""

    setting: Setting
    broker_key: str = ""


def out_of_bounds(prefix: str, names: Iterable[str], values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """For each name: what is wrong with `<prefix>min.<name>` ≤ `<prefix><name>` ≤ `<prefix>max.<name>`: the key, and
    why, as the end of a sentence.
    """
    for name in names:
        key, least, most = (f"{prefix}{bound}{name}" for bound in ("", "min.", "max."))
        low, high, value = values[least], values[most], values[key]
        if not (isinstance(low, int) and isinstance(high, int) and isinstance(value, int)):
            continue  # refused by itself
        if low > high:
            yield least, f"it must not be above {most}={high}"
        elif not low <= value <= high:
            yield key, f"it must be from {least}={low} to {most}={high}"


def not_above(key: str, other: str, values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """What is wrong if *key* is not above *other*."""
    value, least = values[key], values[other]
    if isinstance(value, int) and isinstance(least, int) and value <= least:
        yield key, f"it must be above {other}={least}"

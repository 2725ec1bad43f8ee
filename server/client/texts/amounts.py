"""Bytes and counts as people read them."""

from __future__ import annotations


def size(count: int) -> str:
    """Bytes: `812 B`, `1.2 kB`, `34 MB`."""
    if count < 1000:
        return f"{count} B"
    number = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        number /= 1000
        if number < 1000 or unit == "TB":
            break
    return f"{number:.1f} {unit}" if number < 10 else f"{number:,.0f} {unit}"


def counted(number: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"

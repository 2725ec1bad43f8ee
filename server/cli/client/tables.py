"""Tables for people: columns as wide as they must be, and on a terminal not wider than it.

What goes into a pipe or a file is not cut.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Final

GAP: Final = "  "
_CUT_TO_MIN: Final = 12
"""Columns are not cut shorter than this."""


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None) -> None:
    """heads: with a `>` before those of numbers, which stand at the right. width: of the terminal; None: looked up, no
    limit where there is none.
    """
    right = [head.startswith(">") for head in heads]
    lines = [[head.removeprefix(">") for head in heads], *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    limit = width if width is not None else terminal_width()
    if limit is not None:
        _shrink(widths, right, limit)
    for line in lines:
        cells = [_cell(cell, widths[at], right[at]) for at, cell in enumerate(line)]
        print(GAP.join(cells).rstrip())


def terminal_width() -> int | None:
    """None where standard output is no terminal."""
    try:
        if not os.isatty(sys.stdout.fileno()):
            return None
    except (OSError, ValueError):
        return None
    return shutil.get_terminal_size((100, 24)).columns


def _shrink(widths: list[int], right: Sequence[bool], limit: int) -> None:
    """Cut the widest columns of text until all fit, or nothing more can be cut."""
    while sum(widths) + len(GAP) * (len(widths) - 1) > limit:
        texts = [at for at in range(len(widths)) if not right[at] and widths[at] > _CUT_TO_MIN]
        if not texts:
            return
        widths[max(texts, key=lambda at: widths[at])] -= 1


def _cell(text: str, width: int, is_right: bool) -> str:
    if len(text) > width:
        keep = width - 1
        text = f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"
    return text.rjust(width) if is_right else text.ljust(width)


def _plain(cell: object) -> str:
    """A cell without what would move the cursor: names of clients and members are whatever they say."""
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return printable("-" if cell is None else str(cell))


def printable(text: str, *, keep: str = "") -> str:
    """Control characters as `\\x1b`, so that a terminal does not obey them. keep: those that stay."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )

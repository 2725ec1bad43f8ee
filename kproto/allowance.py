"""How much work on batches may be done at once by code that others wait for.

What it takes to look through a batch is not seen from outside: 10 KB of zstd may hold 18 million records, a record of
1 MB half a million headers, 1 MB of gzip fifty thousand members. So who looks through batches for many clients, on one
thread, gives an `Allowance` along, and fills it up when the others had their turn. The work stops where it ends, with
`TooMuchWork`, and nothing has happened.

The unit is about a microsecond (CPython 3.11 at 2.5 GHz, on the slow side): a record or a header to be looked at, a
piece of compressed data (a member, a frame, a block), half a KiB to be decompressed. What is not compressed is copied
only, which is no work.

One batch may take `BATCH_MAX` units. Who needs more should not be waited for at all; who needs less, but finds that the
others have used up the allowance, only has to come again.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BATCH_MAX", "ROUND_MAX", "Allowance", "TooMuchWork"]

BATCH_MAX: Final = 12_000
"""10,000 records of 100 bytes, from a producer that fills batches of 1 MB, are 11,000 units."""
ROUND_MAX: Final = 20_000


class TooMuchWork(Exception):
    """The batch was not looked through. `is_for_now`: it could be, with a fresh allowance."""

    def __init__(self, is_for_now: bool) -> None:
        super().__init__("with a fresh allowance" if is_for_now else "in one go")
        self.is_for_now = is_for_now


class Allowance:
    """left: units; below zero when the last batch cost more than was foreseen. prepared_for: what the batch was looked
    through for already, and need not be again.
    """

    __slots__ = ("left", "prepared_for")

    def __init__(self, prepared_for: object = None) -> None:
        self.left = ROUND_MAX
        self.prepared_for = prepared_for

    def renew(self) -> None:
        """The others had their turn."""
        self.left = ROUND_MAX

    def ask(self, units: int) -> int:
        """So many units are needed at least. Returns how many more the batch may take. Raises `TooMuchWork`."""
        if units > BATCH_MAX:
            raise TooMuchWork(is_for_now=False)
        if units > self.left:
            raise TooMuchWork(is_for_now=True)
        left = self.left
        return (left if left < BATCH_MAX else BATCH_MAX) - units

    def exceeded(self, units: int) -> TooMuchWork:
        """To be raised: a batch was abandoned after so many units."""
        was_short = self.left < BATCH_MAX
        self.left -= units
        return TooMuchWork(is_for_now=was_short)

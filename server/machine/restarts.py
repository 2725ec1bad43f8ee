"""When a process that has ended by itself is started again: soon, later and later while it does not last, and in the
end never. Times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
LASTED_S: Final = 60.0
MOST: Final = 10


@dataclass(slots=True)
class Restarts:
    """Of one process. It has lasted when it was ready, and ran for `LASTED_S`; then everything begins anew. `MOST` ends
    in a row before that, and it is given up.
    """

    _ends: int = field(default=0, init=False)

    def ended(self, ran_s: float, *, was_ready: bool) -> float | None:
        """How long to wait before the next start; None: give it up."""
        if was_ready and ran_s >= LASTED_S:
            self._ends = 0
        self._ends += 1
        if self._ends > MOST:
            return None
        return min(FIRST_S * 2.0 ** (self._ends - 1), LONGEST_S)

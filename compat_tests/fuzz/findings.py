"""What went wrong: each kind once, with how often, and a file that can be replayed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.fuzz.recording import Step, write

DETAILS_MAX = 6000
SEVERAL = "several requests together held up the loop"


@dataclass
class Finding:
    """`details` are those of the first time."""

    kind: str
    details: str
    count: int = 1
    file: Path | None = None


class Findings:
    """All kinds. Files go to `directory`."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        self.kinds: dict[str, Finding] = {}

    def add(self, kind: str, details: str, steps: Sequence[Step] = ()) -> bool:
        """Count it; True if it is the first of its kind, of which `steps` are kept."""
        known = self.kinds.get(kind)
        if known is not None:
            known.count += 1
            return False
        found = self.kinds[kind] = Finding(kind, details[:DETAILS_MAX])
        if steps:
            self._directory.mkdir(parents=True, exist_ok=True)
            slug = re.sub(r"[^a-zA-Z0-9]+", "-", kind).strip("-")[:70]
            found.file = self._directory / f"{self._seed}-{len(self.kinds):02d}-{slug}.fuzz"
            found.file.write_text(write(steps, f"{kind}\nseed {self._seed}\n{found.details}"))
        return True

    def __str__(self) -> str:
        lines = []
        for found in self.kinds.values():
            lines.append(f"{found.count} x {found.kind}" + (f"\n    replay {found.file}" if found.file else ""))
            lines += [f"    {line}" for line in found.details.splitlines()[:6]]
        return "\n".join(lines)

"""The snapshots of a broker under test: where they lie, and what each has.

    <id>/0, 1, …     the log directories, as `barnabas.logdir.dirs.snapshot` makes them
    <id>/about.json  how far the broker's clock was ahead; last: then it is one
    attic-<n>-<m>    what a restored directory held, until it is removed

in `<first log directory>.barnabas-snapshots`. Beside a log directory, so that they can share its files; with several on
several file systems, those of the others are copied. Whoever starts the broker removes them: they outlast its process,
as its data does, and a broker that was killed can be restored as well.

Everything here blocks. Nobody else touches the log directories meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.logdir.dirs import snapshot
from barnabas.logdir.dirs.snapshot import SnapshotDamaged

__all__ = ["About", "SnapshotDamaged", "Snapshots", "UnknownSnapshot", "directory_of", "remove_attics"]

SUFFIX: Final = ".barnabas-snapshots"
ABOUT: Final = "about.json"
_ID: Final = re.compile("[0-9a-f]{32}")


class UnknownSnapshot(Exception):
    """There is none of this id, or it is of other log directories; the message says so."""


class About(NamedTuple):
    """What a snapshot has beside files. ahead_of_wall_s: as of `VirtualClock`."""

    ahead_of_wall_s: float


def directory_of(log_dir: str) -> str:
    """Where the snapshots of a broker lie; log_dir: its first one."""
    return f"{log_dir.rstrip('/')}{SUFFIX}"


class Snapshots:
    """See the module. log_dirs: paths, in the order of the settings. shares_files: of a broker alone; see
    `barnabas.logdir.dirs.snapshot`.
    """

    def __init__(self, log_dirs: Sequence[str], *, shares_files: bool = True) -> None:
        self._shares_files = shares_files
        self._log_dirs = list(log_dirs)
        self._directory = directory_of(self._log_dirs[0])
        self._attics = 0

    def take(self, about: About) -> str:
        """Make a snapshot of the log directories, which are saved and at rest; returns its id. Raises OSError, and
        leaves nothing then.
        """
        name = uuid.uuid4().hex
        path = f"{self._directory}/{name}"
        os.makedirs(path)
        try:
            for number, each in enumerate(self._log_dirs):
                snapshot.take(each, f"{path}/{number}", shares=self._shares_files)
            with open(f"{path}/{ABOUT}", "w", encoding="utf-8") as file:
                json.dump({**about._asdict(), "directories": len(self._log_dirs)}, file)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return name

    def find(self, name: str) -> About:
        """What is known of a snapshot that can be put back. Raises UnknownSnapshot, `SnapshotDamaged`, OSError."""
        path = self._path(name)
        with open(f"{path}/{ABOUT}", encoding="utf-8") as file:
            said = json.load(file)
        if said.pop("directories") != len(self._log_dirs):
            raise UnknownSnapshot(f"the snapshot {name} is of a broker with other log directories")
        for number in range(len(self._log_dirs)):
            snapshot.check(f"{path}/{number}")
        return About(**said)

    def put_back(self, name: str) -> list[str]:
        """Let the log directories, which nobody has open, hold a snapshot that was found. Returns directories with what
        they held, to be removed. Raises OSError.
        """
        path = self._path(name)
        self._attics += 1
        attics = []
        for number, each in enumerate(self._log_dirs):
            attics.append(f"{self._directory}/attic-{os.getpid()}-{self._attics}-{number}")
            snapshot.put_back(f"{path}/{number}", each, attics[-1], shares=self._shares_files)
        return attics

    def remove(self, name: str) -> None:
        """Remove a snapshot. Raises UnknownSnapshot."""
        shutil.rmtree(self._path(name), ignore_errors=True)

    def names(self) -> list[str]:
        """The ids of all."""
        try:
            found = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if _ID.fullmatch(name) and self._is_whole(name))

    def _path(self, name: str) -> str:
        if not _ID.fullmatch(name) or not self._is_whole(name):
            raise UnknownSnapshot(f"there is no snapshot {name[:100]!r}")
        return f"{self._directory}/{name}"

    def _is_whole(self, name: str) -> bool:
        return os.path.exists(f"{self._directory}/{name}/{ABOUT}")


def remove_attics(attics: Sequence[str]) -> None:
    """Remove what `put_back` has returned."""
    for each in attics:
        shutil.rmtree(each, ignore_errors=True)

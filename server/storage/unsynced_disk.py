"""The disk of a broker under test: it syncs nothing. What was written outlasts the process, which is what a test can
end; not a machine that loses its power. A snapshot of a hundred logs would wait for hundreds of syncs otherwise.
"""

from __future__ import annotations

from barnabas.logdir import Disk


class UnsyncedDisk(Disk):
    """See the module."""

    @staticmethod
    def sync(fd: object) -> None:
        """Nothing."""

    @staticmethod
    def sync_dir(path: str) -> None:
        """Nothing."""

    @staticmethod
    def sync_all(path: str) -> None:
        """Nothing."""

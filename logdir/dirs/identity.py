"""Whose a log directory is: made if it is not there, locked by one broker at a time (`.lock`), and marked for good with
the cluster and the broker that it belongs to (`meta.properties`).
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.logdir.files import layout
from barnabas.logdir.files.disk import Disk, read_file, replace_file
from barnabas.logdir.files.errors import LogDirLocked
from barnabas.logdir.files.layout import MetaProperties


class Identity:
    """See the module. meta: what `meta.properties` says, None while there is none."""

    __slots__ = ("_disk", "_lock_fd", "_path", "meta")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock_fd = -1
        self.meta: MetaProperties | None = None

    @property
    def _meta_path(self) -> str:
        return f"{self._path}/{layout.META_PROPERTIES}"

    def open(self) -> None:
        """Make the directory, if it is not there, lock it, and read whose it is. Raises `LogDirLocked`,
        `InconsistentMeta`, OSError; nothing is locked then.
        """
        self._make_dirs()
        try:
            self._lock_fd = self._disk.lock(f"{self._path}/{layout.LOCK}")
        except BlockingIOError:
            raise LogDirLocked(
                f"{self._path} is in use by another broker (it holds {layout.LOCK}); stop that one, or choose another "
                "log directory"
            ) from None
        try:
            self.meta = MetaProperties.decode(read_file(self._disk, self._meta_path), self._meta_path)
        except FileNotFoundError:
            self.meta = None
        except Exception:
            self.unlock()
            raise

    def _make_dirs(self) -> None:
        missing = []
        path = self._path
        while True:
            try:
                self._disk.list(path)
                break
            except FileNotFoundError:
                missing.append(path)
                path = _parent(path)
        for path in reversed(missing):
            self._disk.make_dir(path)
            self._disk.sync_dir(_parent(path))

    def check(self, *, cluster_id: str | None, node_id: int) -> None:
        """Refuse another broker's directory; one that does not say whose it is becomes ours, unless the cluster's id is
        not known yet (None). Raises `InconsistentMeta`, OSError.
        """
        known = self.meta or MetaProperties()
        known.check(self._meta_path, cluster_id=cluster_id, node_id=node_id)
        if cluster_id is not None and not known.is_complete:
            self.write(replace(known, cluster_id=cluster_id, node_id=node_id))

    def write(self, meta: MetaProperties) -> None:
        """Raises OSError."""
        replace_file(self._disk, self._path, layout.META_PROPERTIES, meta.encode())
        self.meta = meta

    def unlock(self) -> None:
        """Does nothing if it is not locked."""
        if self._lock_fd >= 0:
            self._disk.close(self._lock_fd)
            self._lock_fd = -1


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")

"""The broker's log directories: opening and loading them, where its metadata is, and what follows when one fails.

A broker alone keeps its metadata (`metadata.journal`) in one of its log directories: where it is already, in a new
broker the first. It cannot continue without that one, as Apache Kafka without its `metadata.log.dir`, nor when all have
failed. Otherwise the partitions of a failed directory are offline and the others are served; the controller is notified
by a node under /log_dir_event_notification (KIP-112), also where it is this broker itself, and queries which replicas
are lost.

A full disk counts as a failure for partitions that are led there, as in Apache Kafka: a replica on a disk with room can
take over. Followers, and copies from another directory, wait for room. A metadata journal that cannot be written, for
lack of room or otherwise, stops a broker alone in order, with its logs flushed.

Not done: a directory that works again is used again only after a restart, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import trio

from barnabas.logdir import Disk, LogConfig, LogDir, LogDirError, LogDirs
from barnabas.replication import METADATA_JOURNAL, Store, StoreError
from barnabas.replication.tree import admin_tree
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.wakeup import Wakeup

log = logging.getLogger("barnabas.storage")

TELL_AGAIN_S = 1.0
"""How long to wait when the controller could not be notified. Seconds."""


def make_dirs(
    config: BrokerConfig,
    *,
    disk: Disk | None,
    wall_ms: Callable[[], int],
    rng: Random,
    on_failure: Callable[[LogDir], None],
) -> LogDirs:
    """The directories of `log.dirs`, not opened yet. on_failure: may be called from a thread."""
    return LogDirs(
        config.log_dirs,
        disk=disk,
        wall_ms=wall_ms,
        only_copies=not config.is_clustered,
        random=rng.random,
        unique_hex=lambda: f"{rng.getrandbits(128):032x}",
        on_failure=on_failure,
    )


def metadata_dir(dirs: LogDirs) -> LogDir:
    """Where a broker alone has its metadata, or a new one puts it. Raises LogDirError, OSError."""
    found = [each for each in dirs.online if _has_metadata(each)]
    if len(found) > 1:
        raise LogDirError(
            f"both {found[0].path} and {found[1].path} hold a broker's metadata ({METADATA_JOURNAL}); take one of the "
            "two directories out of log.dirs"
        )
    if found:
        return found[0]
    if dirs.offline and dirs.meta is not None:
        raise LogDirError(
            f"{dirs.offline[0].path} cannot be used ({dirs.offline[0].failure}), and none of the other log directories "
            "holds this broker's metadata; repair it"
        )
    return dirs.online[0]


def _has_metadata(one: LogDir) -> bool:
    return any(entry.name == METADATA_JOURNAL for entry in one.disk.list(one.path))


async def load_dirs(dirs: LogDirs, config_of: Callable[[str], LogConfig], offload: Offload) -> None:
    """Open all logs, of all directories at the same time. Raises LogDirError."""
    errors: list[LogDirError] = []

    async def load(one: LogDir) -> None:
        try:
            await offload(dirs.load_dir, one, config_of)
        except LogDirError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        for each in dirs.online:
            nursery.start_soon(load, each)
    if errors:
        raise errors[0]
    dirs.check_loaded()


class FailedDirs:
    """Directories that fail while the broker serves: `seen` says whether it can continue, `run` notifies the
    controller.

    indispensable: the directory of the metadata, None in a cluster.
    """

    def __init__(self, dirs: LogDirs, indispensable: LogDir | None, store: Store, broker_id: int) -> None:
        self._dirs = dirs
        self._indispensable = indispensable
        self._store = store
        self._broker_id = broker_id
        self._news = Wakeup()

    def fatal(self, failed: LogDir) -> str | None:
        """Why the broker cannot continue without this directory, None if it can; then the controller is notified."""
        why = None if failed.failure is None else failed.failure.message
        if not self._dirs.online:
            which = "the log directory has failed" if len(self._dirs.dirs) == 1 else "all log directories have failed"
            return f"{which}: {why}"
        if failed is self._indispensable:
            return f"the log directory {failed.path}, which holds the broker's metadata, has failed: {why}"
        self._news.set()
        return None

    async def run(self) -> None:
        """Notify the controller of failures, until cancelled."""
        while True:
            await self._news.wait()
            try:
                await admin_tree.leave_log_dir_event(self._store, self._broker_id)
            except StoreError as error:
                log.warning("cannot notify the controller of a failed log directory, retrying: %s", error)
                self._news.set()
                await trio.sleep(TELL_AGAIN_S)

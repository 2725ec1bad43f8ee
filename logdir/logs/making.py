"""The directory and the files of a new log, which are made after it: creating a partition touches no disk.

A name on a disk costs 10 us, and 1 ms on ext4 while thousands of files are gone for less than some minutes, as it looks
at the inode of each of them before it takes a new one; a partition has five. So what a log needs is made before the
first write to it, or earlier, by a thread that has time (`PartitionLog.make_files`), whichever comes first:

    the directory;  partition.metadata;  <base>.log

in this order, then its indexes, which no write waits for (`Segment.save_indexes`). What fails is tried again from where
it stopped. A crash leaves a beginning of that row, which the next start takes for an empty log, and completes, or
nothing, and the metadata know that the partition is to be there.

Everything here is called under the log's lock.
"""

from __future__ import annotations

from barnabas.logdir.files import layout
from barnabas.logdir.files.disk import Disk, write_file
from barnabas.logdir.logs.state import LogState


def make(state: LogState) -> None:
    """Make what there is not of a new log. Does nothing for any other. Raises OSError."""
    unmade = state.unmade
    if unmade is None:
        return
    disk = state.disk
    if not unmade.has_dir:
        disk.make_dir(state.directory)
        unmade.has_dir = True
        state.note_unsynced(dirs=(unmade.parent, state.directory))
    if state.topic_id is not None:
        write_topic_id(disk, state.directory, state.topic_id, sync=False)
        state.note_unsynced(files=(f"{state.directory}/{layout.PARTITION_METADATA}",))
    state.active.make_log_file()
    state.unmade = None


def call_off(state: LogState) -> bool:
    """The log is given up; whether there is nothing of it on the disk, and nothing will be."""
    unmade, state.unmade = state.unmade, None
    return unmade is not None and not unmade.has_dir


def write_topic_id(disk: Disk, directory: str, topic_id: bytes, *, sync: bool) -> None:
    """Write `partition.metadata` at once or not at all. Raises OSError."""
    path = f"{directory}/{layout.PARTITION_METADATA}"
    write_file(disk, path + ".tmp", layout.encode_partition_metadata(topic_id), sync=sync)
    disk.rename(path + ".tmp", path)

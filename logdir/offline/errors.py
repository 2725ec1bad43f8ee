"""What the offline readers raise beside `CorruptRecords` and OSError."""

from __future__ import annotations

from barnabas.logdir.files.errors import LogDirError


class NotALog(LogDirError):
    """The path is no partition directory, log directory or segment."""


class SegmentGone(LogDirError):
    """A file that was listed is no longer there, has become shorter, or another one took its name: a broker deleted,
    truncated or compacted the segment meanwhile. Open the log again.
    """

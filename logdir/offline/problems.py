"""What `verify` finds: one value a problem, one line of text each.

Kinds are short words that stay, for scripts. A warning is what an unclean stop, a copy made while a broker was
writing, or another version may leave behind, and what a broker mends by itself when it starts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

KINDS: Final = {
    "unreadable": "a file or directory cannot be read",
    "gone": "a file was removed or replaced while it was looked at",
    "name": "a directory or file whose name a broker does not take",
    "unknown-file": "a file that does not belong there (warning)",
    "leftover": "a file on its way out or in, or out of the log: .deleted, .cleaned, .swap, .aside (warning)",
    "frame": "no batch where one must begin",
    "torn-tail": "the last segment ends inside a batch or in zeros (warning, unless the broker stopped cleanly)",
    "crc": "a batch or message with a wrong checksum",
    "offsets": "offsets that do not rise, or lie outside of the segment",
    "record-count": "a batch whose record count cannot be right",
    "records": "records that do not decompress, or are not what their lengths say",
    "max-timestamp": "a batch whose largest timestamp is not that of its records",
    "leader-epoch": "a batch of another leader epoch than the checkpoint says",
    "control": "a control batch that is none",
    "index": "an offset index with a wrong entry",
    "index-ahead": "an index of the last segment that points behind its end (warning, as for torn-tail)",
    "index-missing": "a segment without an offset or time index (warning)",
    "index-orphan": "an index or transaction index without its segment (warning)",
    "timeindex": "a time index with a wrong entry",
    "txnindex": "a transaction index that does not agree with the markers",
    "snapshot": "a producer snapshot that cannot be read or cannot be right",
    "snapshot-ahead": "a producer snapshot of an offset behind the end of the log (warning)",
    "checkpoint": "a checkpoint that cannot be read or points outside of a log",
    "checkpoint-ahead": "a high watermark or log start behind the end of a log not stopped cleanly (warning)",
    "checkpoint-orphan": "a checkpoint entry of a partition that is not there (warning)",
    "metadata": "a meta.properties or partition.metadata that cannot be read or does not fit",
}


class Problem(NamedTuple):
    """`position`: bytes from the start of the file `path`; `offset`: of a record or batch. None where there is none."""

    kind: str
    path: str
    message: str
    position: int | None = None
    offset: int | None = None
    warning: bool = False

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path}, position {self.position}"
        return f"{'warning' if self.warning else 'problem'}: {place}: {self.message} [{self.kind}]"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "level": "warning" if self.warning else "problem",
            "kind": self.kind,
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "message": self.message,
        }

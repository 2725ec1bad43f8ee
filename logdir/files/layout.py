"""Names of files and directories, and the two text files that say whose they are: Apache Kafka's, byte for byte.

In a log directory:

    .lock                            held while a broker uses the directory
    .kafka_cleanshutdown             there only after a clean stop: `{"version":0,"brokerEpoch":-1}`
    meta.properties                  which broker and cluster the directory belongs to (Java properties)
    <topic>-<partition>/             one per replica; the partition is what follows the last `-`
    <topic>-<partition>.<32 hex>-delete/   given up, to be removed (topic shortened: at most 255 characters in all)
    <topic>-<partition>.<32 hex>-future/   a copy being moved from another log directory
    ...-stray/                       set aside: of a topic that the metadata do not know, not served

In a partition's directory, with the base offset as 20 digits:

    <base>.log .index .timeindex .txnindex    a segment; the last one only where transactions were aborted
    <offset>.snapshot                         producer state before that offset
    leader-epoch-checkpoint, partition.metadata
    moved                                     ours alone, for a moment: this is a whole copy (dirs.py); empty
    ....deleted, ....cleaned, ....swap        segments on their way out or in (recovery.py)
    <base>.log.<milliseconds>.aside           ours alone: a segment that recovery took out of the log, and when

`partition.metadata` is `version: 0`, newline, `topic_id: <22 characters>`, without a newline at the end.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.logdir.files.errors import CorruptFile, InconsistentMeta

LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
MOVED: Final = "moved"

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
ASIDE: Final = ".aside"

DELETE_DIR: Final = "-delete"
STRAY_DIR: Final = "-stray"
FUTURE_DIR: Final = "-future"

META_VERSIONS: Final = (0, 1)
MAX_NAME: Final = 255
MAX_PARTITION: Final = 2**31 - 1
_SET_ASIDE = re.compile(r"(?s)(.+)\.([0-9a-zA-Z]+)(-delete|-stray|-future)")
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_ASIDE_FILE = re.compile(r"[0-9]{20}\.log\.([0-9]{1,19})\.aside")
_MARKED_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)(\.deleted|\.cleaned|\.swap)")


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """(base offset, suffix) of a segment file or snapshot; None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_marked_name(name: str) -> tuple[int, str, str] | None:
    """(base offset, suffix, mark) of a file ending in `.deleted`, `.cleaned` or `.swap`; None for any other name."""
    match = _MARKED_FILE.fullmatch(name)
    return (int(match[1]), match[2], match[3]) if match else None


def parse_aside_name(name: str) -> int | None:
    """When a segment was set aside, milliseconds of the wall clock; None for any other name."""
    match = _ASIDE_FILE.fullmatch(name)
    return int(match[1]) if match else None


class PartitionDir(NamedTuple):
    """A directory name taken apart; `mark` is empty for a partition in service."""

    topic: str
    partition: int
    mark: str


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> PartitionDir | None:
    """None if the name is not of the form `<topic>-<partition>`, with or without a mark at its end."""
    mark = ""
    if name.endswith((DELETE_DIR, STRAY_DIR, FUTURE_DIR)):
        match = _SET_ASIDE.fullmatch(name)
        if match:
            name, mark = match[1], match[3]
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit() or int(number) > MAX_PARTITION:
        return None
    return PartitionDir(topic, int(number), mark)


def deleted_dir(topic: str, partition: int, unique_hex: str) -> str:
    """The name that marks a partition's directory as given up. `unique_hex`: 32 digits."""
    return _set_aside_dir(topic, partition, unique_hex, DELETE_DIR)


def stray_dir(topic: str, partition: int, unique_hex: str) -> str:
    """The name of a partition's directory that is set aside: it is neither served nor removed."""
    return _set_aside_dir(topic, partition, unique_hex, STRAY_DIR)


def _set_aside_dir(topic: str, partition: int, unique_hex: str, mark: str) -> str:
    tail = f"-{partition}.{unique_hex}{mark}"
    return topic[: MAX_NAME - len(tail)] + tail


def future_dir(topic: str, partition: int, unique_hex: str) -> str:
    """The name of the copy that a move between log directories makes. Longer than `MAX_NAME` for topics with very
    long names, which cannot be moved (KAFKA-4893).
    """
    return f"{topic}-{partition}.{unique_hex}{FUTURE_DIR}"


# ---- .kafka_cleanshutdown


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


# ---- partition.metadata


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {_uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic id, 16 bytes. Raises `CorruptFile`."""
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    if fields.get("version") != "0":
        raise CorruptFile(f"{path} has no `version: 0`")
    try:
        topic_id = base64.urlsafe_b64decode(fields["topic_id"] + "==")
    except (KeyError, ValueError):
        raise CorruptFile(f"{path} has no readable topic id") from None
    if len(topic_id) != 16 or not any(topic_id):
        raise CorruptFile(f"{path} has the topic id {fields['topic_id']!r}, which is none")
    return topic_id


def _uuid_text(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid)[:22].decode()


# ---- meta.properties


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose directory it is. Version 0 (ZooKeeper) calls the number `broker.id`, version 1 (KRaft) `node.id`."""

    version: int = 0
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None

    def encode(self) -> bytes:
        lines = ["#", f"version={self.version}"]
        if self.node_id is not None:
            lines.append(f"{'node.id' if self.version else 'broker.id'}={self.node_id}")
        if self.cluster_id is not None:
            lines.append(f"cluster.id={_escape(self.cluster_id)}")
        if self.directory_id is not None:
            lines.append(f"directory.id={_escape(self.directory_id)}")
        return "\n".join([*lines, ""]).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> MetaProperties:
        """Raises `InconsistentMeta` when it cannot be read, or is of a version that is not known."""
        fields = decode_properties(data.decode("latin-1"))
        version = _whole_number(fields, "version", path) or 0
        if version not in META_VERSIONS:
            raise InconsistentMeta(
                f"{path} has version={version}, and known are 0 and 1: it was written by something newer; choose "
                "another log directory, or what wrote it"
            )
        number = _whole_number(fields, "node.id" if version else "broker.id", path)
        return cls(version, fields.get("cluster.id"), number, fields.get("directory.id"))

    @property
    def is_complete(self) -> bool:
        """It says both whose directory this is and of which cluster."""
        return self.cluster_id is not None and self.node_id is not None

    def check(self, path: str, *, cluster_id: str | None, node_id: int) -> None:
        """Refuse to start over another broker's data; cluster_id None: not known yet. Raises `InconsistentMeta`."""
        if self.cluster_id is not None and cluster_id is not None and self.cluster_id != cluster_id:
            raise InconsistentMeta(
                f"{path} belongs to cluster {self.cluster_id!r}, but this broker is configured for cluster "
                f"{cluster_id!r}; choose another log directory, or the cluster that the data belongs to"
            )
        if self.node_id is not None and self.node_id != node_id:
            raise InconsistentMeta(
                f"{path} belongs to broker {self.node_id}, but this broker has the id {node_id}; "
                f"set the id back to {self.node_id}, or choose another log directory"
            )


def _whole_number(fields: dict[str, str], key: str, path: str) -> int | None:
    """None if it is not there. Raises `InconsistentMeta`."""
    text = fields.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text.strip()):
        raise InconsistentMeta(
            f"{path} has {key}={text[:40]}, which is no whole number: correct it, or choose another log directory"
        )
    return int(text)


def decode_properties(text: str) -> dict[str, str]:
    """Java properties, as far as a flat file of keys and values needs them: comments, continued lines, escapes."""
    fields = {}
    pending = ""
    for line in text.splitlines():
        line = pending + line.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line)
        assert match is not None  # every part of the pattern may be empty
        fields[_unescape(match[1])] = _unescape(match[2])
    return fields


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replace, text)


def _escape(text: str) -> str:
    return re.sub(r"([\\=:#! ])", r"\\\1", text)

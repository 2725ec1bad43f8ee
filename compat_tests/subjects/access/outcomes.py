"""What matters of an answer, as text.

`responses[mine#mine[0 TOPIC_AUTHORIZATION_FAILED base_offset=-1]; …]`: lists in brackets, their entries sorted; of an
entry what names it (a name, or `#` and an id, as the role they play in the cell), error codes other than NONE, bit
fields of permissions, what is null, numbers below zero that stand for "not told". `[]` is an empty list, `[…]` one
whose entries say nothing here. A name that the cell does not know is `?`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.kproto import ZERO_UUID, ErrorCode, Record
from compat_tests.subjects.access.acls import Op

CLOSED = "the connection is closed"
SILENT = "no answer, as asked"
NOT_ASKED = -(1 << 31)
NAMES = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "group_id",
        "transactional_id",
        "resource_name",
        "key",
        "user",
        "entity_name",
        "token_id",
    }
)
NUMBERS = frozenset({"partition_index", "partition", "index", "partition_id"})
STATES = frozenset({"group_state", "transaction_state"})
NOT_TOLD_BELOW_ZERO = frozenset(
    {
        "base_offset",
        "committed_offset",
        "end_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_id",
        "log_start_offset",
        "low_watermark",
        "node_id",
        "num_partitions",
        "offset",
        "producer_id",
        "replication_factor",
        "timestamp",
    }
)
LEFT_OUT = frozenset(
    {
        "aborted_transactions",
        "assignment",
        "target_assignment",
        "api_keys",
        "brokers",
        "current_leader",
        "diverging_epoch",
        "finalized_features",
        "next_cursor",
        "node_endpoints",
        "offline_replicas",
        "record_errors",
        "snapshot_id",
        "supported_features",
        "unknown_tags",
    }
)
"""What says nothing about access."""


def outcome(response: Any, version: int, roles: Mapping[str | bytes, str], *, of_others: bool = True) -> str:
    """roles: of the names and topic ids of the cell. of_others: whether entries with names of others are shown; a list
    of all that there is has such entries.
    """

    def told(record: Any) -> str | None:
        """None: of others, and these do not count."""
        head: list[str] = []
        rest: list[str] = []
        has = {field.name: field.versions.has(version) for field in record.__struct__.fields}
        for name in record.__fields__:
            value = getattr(record, name)
            if name in LEFT_OUT or not has.get(name):
                continue
            if name in NAMES:
                if value is None or (not value and name != "resource_name"):
                    head.append("-")
                elif value in roles:
                    head.append(roles[value])
                elif not of_others:
                    return None
                else:
                    head.append("?")
            elif name == "topic_id":
                if value != ZERO_UUID:
                    head.append("#" + roles.get(value, "?"))
            elif name in NUMBERS:
                head.append(str(value))
            elif name.endswith("error_code"):
                if value:
                    prefix = "" if name == "error_code" else name.removesuffix("_error_code") + "="
                    rest.append(prefix + ErrorCode(value).name)
            elif name.endswith("authorized_operations"):
                if value != NOT_ASKED:
                    rest.append("may=" + ",".join(_operations(value)))
            elif name in STATES:
                rest.append(f"{name}={value or '-'}")
            elif name in NOT_TOLD_BELOW_ZERO:
                if value < 0:
                    rest.append(f"{name}={value}")
            elif isinstance(value, Record):
                inner = told(value)
                if inner:
                    rest.append(f"{name}({inner})")
            elif name == "configs":
                rest.append("configs[…]" if value else "configs[]" if value is not None else "configs=null")
            elif isinstance(value, list):
                if not value:
                    rest.append(f"{name}[]")
                elif isinstance(value[0], Record):
                    entries = [text for each in value if (text := told(each)) is not None]
                    shown = "; ".join(sorted(text for text in entries if text))
                    rest.append(f"{name}[{shown or ('…' if entries else '')}]")
            elif value is None and name in {field.name for field in record.__struct__.fields if field.is_array}:
                rest.append(f"{name}=null")
        return " ".join(["".join(head), *rest] if head else rest)

    return told(response) or "served"


def _operations(bits: int) -> list[str]:
    known = [op.name for op in Op if bits >> op & 1]
    more = bits & ~sum(1 << op for op in Op)
    return [*known, *([hex(more)] if more else [])] or ["nothing"]

"""Which version of a request to send: the highest that the broker and this room both speak.

`SPOKEN` is what the room's builders of requests and readers of answers were written for, from Apache Kafka 0.11 on;
`kproto` knows more. Fetch, Produce, OffsetCommit and OffsetFetch end before the versions that name topics by their id:
all brokers up to Apache Kafka 4.3 speak those by name too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.kproto import ApiKey
from barnabas.server.client.failures import Unsupported

Offered = Mapping[ApiKey, tuple[int, int]]
"""First and last version by API, as a broker has said them."""

SPOKEN: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (4, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (2, 9),
    ApiKey.FIND_COORDINATOR: (1, 6),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.CREATE_TOPICS: (1, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.WRITE_TXN_MARKERS: (0, 1),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (0, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
}

_SINCE: Final[dict[ApiKey, str]] = {
    ApiKey.METADATA: "0.11",
    ApiKey.FETCH: "0.11",
    ApiKey.PRODUCE: "0.11",
    ApiKey.CREATE_PARTITIONS: "1.0",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1",
    ApiKey.DELETE_GROUPS: "1.1",
    ApiKey.DESCRIBE_ACLS: "2.0",
    ApiKey.CREATE_ACLS: "2.0",
    ApiKey.DELETE_ACLS: "2.0",
    ApiKey.ELECT_LEADERS: "2.2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.OFFSET_DELETE: "2.4",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7",
    ApiKey.DESCRIBE_PRODUCERS: "2.8",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0",
    ApiKey.LIST_TRANSACTIONS: "3.0",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.7",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.1",
    ApiKey.STREAMS_GROUP_DESCRIBE: "4.1",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.1",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.1",
}
"""The Apache Kafka that first served what is spoken here."""


def is_offered(offered: Offered, key: ApiKey, at_least: int = 0) -> bool:
    """There is a version of `key` that both speak, `at_least` or later."""
    if key not in offered:
        return False
    first, last = SPOKEN[key]
    return max(first, offered[key][0], at_least) <= min(last, offered[key][1])


def choose(offered: Offered, key: ApiKey, where: str = "the broker") -> int:
    """The highest version of `key` that both speak. where: who has offered it, for the message. Raises Unsupported."""
    if is_offered(offered, key):
        return min(SPOKEN[key][1], offered[key][1])
    since = f"; Apache Kafka serves it from {_SINCE[key]} on" if key in _SINCE else ""
    if key in offered:
        theirs, ours = (f"{first} to {last}" for first, last in (offered[key], SPOKEN[key]))
        raise Unsupported(f"{where} speaks {_name(key)} {theirs}, and this client {ours}{since}")
    raise Unsupported(f"{where} does not offer {_name(key)}{since}")


def _name(key: ApiKey) -> str:
    return key.name.title().replace("_", "")

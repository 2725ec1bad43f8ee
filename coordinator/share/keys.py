"""Where the share coordinator of a share partition is: the key by which FindCoordinator asks for it (type 2), and which
`barnabas.coordinator.partition_for` turns into a partition of `__share_group_state`.

`group:topic id:partition`, the topic id in 22 characters. A group id may hold colons, so it is read from the right.
Source: `SharePartitionKey` of Apache Kafka 4.3.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.coordinator.share.state_stored import ShareKey
from barnabas.kproto import ErrorCode, KafkaError, uuid_from_text, uuid_to_text

_KEY: Final = re.compile(r"(.+):([^:]+):([0-9]{1,10})", re.DOTALL | re.ASCII)
_LAST_PARTITION: Final = 2**31 - 1


def coordinator_key(key: ShareKey) -> str:
    """The text of a key."""
    return f"{key.group_id}:{uuid_to_text(key.topic_id)}:{key.partition}"


def parse_coordinator_key(text: str) -> ShareKey:
    """The key of a text. Raises KafkaError INVALID_REQUEST."""
    found = _KEY.fullmatch(text)
    try:
        if found is None or not found[1].strip():
            raise ValueError("it is not group:topic id:partition")
        topic_id, partition = uuid_from_text(found[2]), int(found[3])
        if not any(topic_id) or partition > _LAST_PARTITION:
            raise ValueError("there is no such topic or partition")
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The key of a share coordinator is wrong: {error}.") from error
    return ShareKey(found[1], topic_id, partition)

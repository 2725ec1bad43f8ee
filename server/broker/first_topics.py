"""Topics that exist from the start: `barnabas dev --topic` and the variable KAFKA_CREATE_TOPICS.

The variable is that of container images (wurstmeister/kafka and others): `orders:3:1,clicks:1:1:compact`, that is name,
partitions, replicas and cleanup.policy; defaults are the broker's settings. Existing topics are left
unchanged. In a cluster topics may need brokers that have not started yet, so creation is retried for a while, while the
broker serves; a broker alone has them before it is ready.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from barnabas.kproto import ErrorCode
from barnabas.replication import TopicRequest, name_fault

if TYPE_CHECKING:
    from barnabas.server.broker.broker import Broker
    from barnabas.server.broker.lives import Lives

VARIABLE: Final = "KAFKA_CREATE_TOPICS"
TRIES: Final = 60
REST_S: Final = 1.0
_CLEANUP: Final = "cleanup.policy"
_FORM: Final = "NAME:PARTITIONS:REPLICAS, of which the name is enough"
_POLICIES: Final = ("delete", "compact", "compact,delete", "delete,compact")

log = logging.getLogger("barnabas.controller")


def parse_topic(text: str) -> TopicRequest:
    """`NAME[:PARTITIONS[:REPLICAS[:CLEANUP_POLICY]]]`. Raises ValueError with what is wrong."""
    name, *counts = (part.strip() for part in text.split(":"))
    policy = counts.pop() if len(counts) == 3 else ""
    if len(counts) > 2 or not all(re.fullmatch("[0-9]{1,6}", count) and int(count) for count in counts):
        raise ValueError(f"{text!r} must be written as {_FORM}")
    fault = name_fault(name)
    if fault is not None:
        raise ValueError(f"{text!r}: {fault}")
    if policy and policy not in _POLICIES:
        raise ValueError(f"{text!r}: {policy} must be one of {', '.join(_POLICIES[:2])}")
    partitions, replicas = (*map(int, counts), -1, -1)[:2]
    return TopicRequest(name, partitions, replicas, configs=((_CLEANUP, policy),) if policy else ())


def topics_in(environ: Mapping[str, str]) -> list[TopicRequest]:
    """The topics in the environment. Raises ValueError, naming the variable."""
    text = environ.get(VARIABLE, "")
    try:
        return [parse_topic(part) for part in re.split(r"[,\s]+", text) if part]
    except ValueError as error:
        raise ValueError(f"{VARIABLE}={text} is refused: {error}.") from None


async def make_topics(broker: Broker | Lives, topics: Sequence[TopicRequest]) -> None:
    """Create those that do not exist; failures are logged. In a cluster up to `TRIES` attempts."""
    left = {topic.name: topic for topic in topics}
    for tries_left in reversed(range(TRIES if broker.config.is_clustered else 1)):
        codes = await broker.services.topics.ensure_topics(list(left.values()))
        for name, code in codes.items():
            if code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):  # the latter: being created
                del left[name]
        if not left:
            return
        if tries_left:
            await trio.sleep(REST_S)
    for name in left:
        log.warning("cannot create topic %s: %s", name, codes[name].name)

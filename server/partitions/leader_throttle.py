"""How fast this broker lets others copy from it (KIP-73, the leader's half).

`leader.replication.throttled.rate` limits, in bytes per second, the copying of the replicas that the topic's
`leader.replication.throttled.replicas` names and that are not in sync: reassignments, which must not crowd out clients.
While the rate is unlimited, as it is by default, nobody asks more than `limited`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from barnabas.replication import Image, ReplicationThrottle, TopicImage, throttled_partitions

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.partition import Partition

SETTING = "leader.replication.throttled.replicas"
UNLIMITED = 2**63 - 1


class LeaderThrottle:
    """See the module. `now`: seconds of trio's clock."""

    __slots__ = ("_broker_id", "_config", "_image", "_measured", "_named", "limited")

    def __init__(self, broker_id: int, current_image: Callable[[], Image]) -> None:
        self._broker_id = broker_id
        self._image = current_image
        self._measured = ReplicationThrottle()
        self._config: BrokerConfig | None = None
        self._named: dict[str, tuple[TopicImage, Collection[int]]] = {}
        self.limited = False

    def look_at(self, config: BrokerConfig) -> None:
        """Take over settings that changed."""
        if config is self._config:
            return
        self._config = config
        rate = config.get_int("leader.replication.throttled.rate")
        if not self.limited:
            self._measured = ReplicationThrottle()
        self.limited = rate < UNLIMITED
        self._measured.rate = rate
        self._measured.samples = config.get_int("replication.quota.window.num")
        self._measured.sample_s = float(config.get_int("replication.quota.window.size.seconds"))

    def covers(self, partition: Partition) -> bool:
        """Is the copying of this partition limited here?"""
        topic = self._image().topics.get(partition.topic)
        if topic is None:
            return False
        kept = self._named.get(topic.name)
        if kept is None or kept[0] is not topic:
            text = topic.config.get(SETTING, "")
            named = throttled_partitions([item.strip() for item in text.split(",")], self._broker_id)
            kept = self._named[topic.name] = (topic, named)
        return partition.index in kept[1]

    def exceeded(self, now: float) -> bool:
        """More was copied lately than may be."""
        return self._measured.exceeded(now)

    def record(self, size: int, now: float) -> None:
        """`size` bytes of covered partitions are on their way to a follower."""
        self._measured.record(size, now)

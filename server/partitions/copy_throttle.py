"""Replication throttling: how fast this broker copies partitions, or lets others copy them (KIP-73).

`leader.replication.throttled.rate` and `follower.replication.throttled.rate` limit, in bytes per second, the copying of
the replicas that the topics' `….replication.throttled.replicas` name: reassignments, which must not starve clients.
Replicas that are in sync are never throttled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.replication import Image, ReplicationThrottle, throttled_partitions

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig

UNLIMITED = 2**63 - 1


class Side(NamedTuple):
    """The settings' names: of the broker, in bytes per second, and of a topic."""

    rate: str
    replicas: str


LEADER: Final = Side("leader.replication.throttled.rate", "leader.replication.throttled.replicas")
FOLLOWER: Final = Side("follower.replication.throttled.rate", "follower.replication.throttled.replicas")


class CopyThrottle:
    """One side of the copying. `limited`: there is a limit; by default there is none. `now`: seconds of trio's
    clock.
    """

    __slots__ = ("_broker_id", "_config", "_image", "_measured", "_named", "_side", "limited")

    def __init__(self, side: Side, broker_id: int, current_image: Callable[[], Image]) -> None:
        self._side = side
        self._broker_id = broker_id
        self._image = current_image
        self._measured = ReplicationThrottle()
        self._config: BrokerConfig | None = None
        self._named: dict[str, tuple[Mapping[str, str], Collection[int]]] = {}
        self.limited = False

    def refresh(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        if config is self._config:
            return
        self._config = config
        self._measured.rate = config.get_int(self._side.rate)
        self._measured.samples = config.get_int("replication.quota.window.num")
        self._measured.sample_s = float(config.get_int("replication.quota.window.size.seconds"))
        self.limited = self._measured.rate < UNLIMITED

    def covers(self, topic_name: str, index: int) -> bool:
        """Is the copying of this partition limited here?"""
        topic = self._image().topics.get(topic_name)
        if topic is None:
            return False
        kept = self._named.get(topic_name)
        if kept is None or kept[0] is not topic.config:
            text = topic.config.get(self._side.replicas, "")
            named = throttled_partitions([item.strip() for item in text.split(",")], self._broker_id)
            kept = self._named[topic_name] = (topic.config, named)
        return index in kept[1]

    def exceeded(self, now: float) -> bool:
        """Whether the limit is exceeded."""
        return self._measured.exceeded(now)

    def record(self, size: int, now: float) -> None:
        """Count `size` bytes of covered partitions that came from a leader, or are sent to a follower."""
        self._measured.record(size, now)

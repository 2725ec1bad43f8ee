"""The topics as KIP-848 groups see them, made from images of the cluster: id, number of partitions, replicas' racks.

Another leader or in-sync set is nothing to a group; so most images change nothing here. A broker that is gone keeps
its rack: its replicas have not moved, and a group must not rebalance because a broker restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.coordinator import Topic, Topics
from barnabas.replication import BrokerImage, Image, TopicImage


class GroupTopics:
    """See the module. `topics`: the latest, replaced whole; its version counts the images that changed something."""

    def __init__(self) -> None:
        self.topics = Topics(0, {})
        self._seen: Mapping[str, TopicImage] = {}
        self._brokers: Mapping[int, BrokerImage] = {}
        self._racks: dict[int, str] = {}

    def refresh(self, image: Image) -> Collection[str]:
        """Apply an image. Names of topics that came, went or are others now; nothing to do if there are none."""
        if image.topics is self._seen and image.brokers is self._brokers:
            return ()
        seen, self._seen = self._seen, image.topics
        same_racks = self._learn_racks(image.brokers)
        changes: dict[str, Topic | None] = {}
        known = self.topics.by_name
        for name, topic in image.topics.items():
            if same_racks and seen.get(name) is topic:
                continue
            now = self._topic(topic)
            if now != known.get(name):
                changes[name] = now
        changes.update((name, None) for name in known if name not in image.topics)
        if changes:
            self.topics = self.topics.with_changes(self.topics.version + 1, changes)
        return changes.keys()

    def _learn_racks(self, brokers: Mapping[int, BrokerImage]) -> bool:
        """False if a broker has another rack than before."""
        self._brokers = brokers
        racks = {broker.id: broker.rack for broker in brokers.values() if broker.rack is not None}
        racks = {**self._racks, **racks}
        for broker in brokers.values():
            if broker.rack is None:
                racks.pop(broker.id, None)
        same = racks == self._racks
        self._racks = racks
        return same

    def _topic(self, topic: TopicImage) -> Topic | None:
        """None while it has no id (an old tool made it, and no controller has met it) or no partition."""
        if not any(topic.topic_id) or not topic.partitions:
            return None
        racks: tuple[tuple[str, ...], ...] = ()
        if self._racks:
            racks = tuple(
                tuple(self._racks[replica] for replica in partition.replicas if replica in self._racks)
                for partition in topic.partitions
            )
        return Topic(topic.name, topic.topic_id, len(topic.partitions), racks)

"""Topics that are deleted in a cluster: coordinators forget them, also on brokers that have no partition of them.

A broker alone has all partitions, and `barnabas.server.partitions.registry` notifies coordinators of each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from barnabas.replication import Image, TopicImage
from barnabas.server.coordinators.groups import GroupCoordinator
from barnabas.server.coordinators.share_states import ShareStateCoordinator


def _is_gone(before: TopicImage, after: TopicImage | None) -> bool:
    return after is None or (after.topic_id != before.topic_id and any(before.topic_id))


async def forget_deleted_topics(
    current_image: Callable[[], Image],
    image_until: Callable[[Callable[[Image], bool]], Awaitable[None]],
    groups: GroupCoordinator,
    share_states: ShareStateCoordinator,
) -> None:
    """Watch the images, until cancelled."""
    before = current_image()
    while True:
        seen = before.topics
        await image_until(lambda image: image.topics is not seen)  # noqa: B023
        before, old = current_image(), seen
        if groups.runtime.shards or share_states.runtime.shards:
            after = before.topics
            gone = [topic for name, topic in old.items() if _is_gone(topic, after.get(name))]
            if gone:
                groups.topics_deleted([topic.name for topic in gone])
                share_states.topics_deleted([topic.topic_id for topic in gone if any(topic.topic_id)])

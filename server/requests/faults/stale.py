"""Metadata from before: requests answered from an image of the cluster that is not the last one.

Of one topic, the image is the present one but for that topic: it is as it was, or not there yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.server.requests.image_cache import ImageCache

if TYPE_CHECKING:
    from barnabas.replication import Image
    from barnabas.server.requests.services import Services


def as_it_was(services: Services, before: Image, topic: str | None) -> Services:
    """The services of a handler that sees the cluster as in `before`; of a topic: only this one of it."""
    image = before if topic is None else _with_topic_of(services.image, before, topic)
    return replace(services, current_image=lambda: image, image_cache=ImageCache())


def _with_topic_of(present: Image, before: Image, name: str) -> Image:
    topic = before.topics.get(name)
    return present.with_topics([], [name]) if topic is None else present.with_topics([topic])

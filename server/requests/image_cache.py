"""Answers made from one image of the cluster, kept as long as the image is the current one.

Metadata of 2,000 partitions takes some 15 ms to put together; clients ask for it again and again while nothing changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from barnabas.replication import Image


class ImageCache:
    """Remembers values by key for the latest image only. What is kept must not be changed by whoever gets it."""

    def __init__(self) -> None:
        self._image: Image | None = None
        self._kept: dict[Hashable, Any] = {}

    def get(self, image: Image, key: Hashable) -> Any:
        """The value for `key`, None if there is none. `image` is the latest: a new one forgets all of the old one's."""
        if image is not self._image:
            self._image = image
            self._kept = {}
        return self._kept.get(key)

    def keep(self, image: Image, key: Hashable, value: Any) -> None:
        """Remember a value, unless it was made from an image that is not the latest any more."""
        if image is self._image:
            self._kept[key] = value

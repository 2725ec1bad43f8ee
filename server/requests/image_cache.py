"""Answers made from one image of the cluster, kept as long as the image is current.

Metadata of 2,000 partitions takes some 15 ms to build; clients request it again and again while nothing changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from barnabas.replication import Image


class ImageCache:
    """Caches values by key for the latest image only. Callers must not change a cached value."""

    def __init__(self) -> None:
        self._image: Image | None = None
        self._kept: dict[Hashable, Any] = {}

    def get(self, image: Image, key: Hashable) -> Any:
        """The value for `key`, None if there is none. `image` is the latest: a new one drops all older values."""
        if image is not self._image:
            self._image = image
            self._kept = {}
        return self._kept.get(key)

    def keep(self, image: Image, key: Hashable, value: Any) -> None:
        """Cache a value, unless it was made from an image that is no longer the latest."""
        if image is self._image:
            self._kept[key] = value

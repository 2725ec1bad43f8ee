"""What is kept belongs to one image."""

from __future__ import annotations

from barnabas.replication import Image
from barnabas.server.requests.image_cache import ImageCache


def test_values_last_as_long_as_their_picture() -> None:
    cache = ImageCache()
    first, second = Image("a"), Image("b")
    assert cache.get(first, "k") is None
    cache.keep(first, "k", "value 1")
    assert cache.get(first, "k") == "value 1"
    assert cache.get(second, "k") is None
    cache.keep(second, "k", "value 2")
    assert cache.get(second, "k") == "value 2"


def test_values_from_an_older_image_are_not_cached() -> None:
    cache = ImageCache()
    first, second = Image("a"), Image("b")
    assert cache.get(first, "k") is None
    assert cache.get(second, "k") is None  # which came while the value was being made
    cache.keep(first, "k", "of the first")
    assert cache.get(second, "k") is None

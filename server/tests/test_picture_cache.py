"""What is kept belongs to one picture."""

from __future__ import annotations

from replication import Image
from server.picture_cache import PictureCache


def test_values_last_as_long_as_their_picture() -> None:
    cache = PictureCache()
    first, second = Image("a"), Image("b")
    made: list[str] = []

    def make() -> str:
        made.append("made")
        return f"value {len(made)}"

    assert cache.get(first, "k", make) == "value 1"
    assert cache.get(first, "k", make) == "value 1"
    assert cache.get(second, "k", make) == "value 2"
    assert cache.get(second, "k", make) == "value 2"
    assert cache.get(first, "k", make) == "value 3"

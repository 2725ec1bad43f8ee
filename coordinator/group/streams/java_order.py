"""The orders that Java's hash tables and heaps have. No interface promises them; Apache Kafka's results depend on them
where things are equal otherwise, and so do ours, to be equal.

`HashMap`: by slot, in a slot by insertion; the table doubles when it is more than three quarters full. A slot with nine
or more keys is not followed (Java makes a tree of it, or doubles earlier). `PriorityQueue`: a binary heap, whose ties
Python's `heapq` breaks otherwise. `String.compareTo`: by UTF-16 units. Sources: OpenJDK's documentation and source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

DEFAULT_SLOTS: Final = 16
"""Of a `HashMap` made without a number."""


def hash_order(keys: Iterable[str], slots: int = DEFAULT_SLOTS) -> list[str]:
    """How a `HashMap` made for so many slots gives keys that were put into it as they come. They are distinct."""
    found = list(keys)
    size = 1
    while size < slots:
        size *= 2
    while len(found) > size * 3 // 4:
        size *= 2
    mask = size - 1
    return sorted(found, key=lambda key: _spread(key) & mask)


def text_order(text: str) -> bytes:
    """Sorts as Java sorts the texts themselves."""
    return text.encode("utf-16-be", "surrogatepass")


class Loaded(Protocol):
    """What a heap orders: the least load first."""

    load: float


_Item = TypeVar("_Item", bound=Loaded)


def push(heap: list[_Item], item: _Item) -> None:
    """Add to a heap; an empty list is one."""
    heap.append(item)
    load, at = item.load, len(heap) - 1
    while at > 0:
        above = (at - 1) >> 1
        if load >= heap[above].load:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = item


def pop(heap: list[_Item]) -> _Item:
    """Take the first. Raises IndexError if there is none."""
    last = heap.pop()
    if not heap:
        return last
    first, load, size, at = heap[0], last.load, len(heap), 0
    while at < size >> 1:
        below = 2 * at + 1
        if below + 1 < size and heap[below].load > heap[below + 1].load:
            below += 1
        if load <= heap[below].load:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = last
    return first


def again(heap: list[_Item], load: float) -> None:
    """`pop`, and `push` what came with this load."""
    first, last, size = heap[0], heap[-1], len(heap) - 1
    first.load = load
    if not size:
        return
    # As in `pop`, of a heap that is one shorter; its last place is where `push` begins.
    above_load, at, half = last.load, 0, size >> 1
    while at < half:
        below = 2 * at + 1
        item = heap[below]
        if below + 1 < size:
            other = heap[below + 1]
            if item.load > other.load:
                item, below = other, below + 1
        if above_load <= item.load:
            break
        heap[at] = item
        at = below
    heap[at] = last
    at = size
    while at > 0:
        above = (at - 1) >> 1
        item = heap[above]
        if load >= item.load:
            break
        heap[at] = item
        at = above
    heap[at] = first


def _spread(text: str) -> int:
    """A text's hash, its upper half folded into the lower."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)

"""The orders of Java's hash tables and heaps, as a JDK 17 gave them."""

from __future__ import annotations

from random import Random

from barnabas.coordinator.group.streams.java_order import again, hash_order, pop, push, text_order


class Item:
    def __init__(self, name: str, load: float) -> None:
        self.name = name
        self.load = load


def test_keys_come_by_slot_and_in_a_slot_as_they_were_put() -> None:
    assert hash_order(map(str, range(12))) == ["0", "11", *"123456789", "10"]
    assert hash_order(["BB", "Aa", "c"], 3) == ["BB", "Aa", "c"], "the first two have one hash"


def test_the_table_grows_past_three_quarters() -> None:
    assert hash_order(map(str, range(13))) == ["11", "12", *"0123456789", "10"]


def test_hashes_and_order_are_of_utf_16_units() -> None:
    assert hash_order(["Aa", "BB", "é", "😀"], 3) == ["Aa", "BB", "😀", "é"]
    assert sorted(["～", "😀"], key=text_order) == ["😀", "～"]


def test_equal_loads_leave_the_heap_as_in_java() -> None:
    heap: list[Item] = []
    for number in range(9):
        push(heap, Item(str(number), 0 if number % 3 == 2 else 1))
    order = ""
    while heap:
        item = pop(heap)
        order += item.name
        if item.load == 0:
            push(heap, Item(item.name, 2))
    assert order == "285317640582"


def test_a_heap_gives_the_least_load_first() -> None:
    rng = Random("heap")
    for size in range(40):
        heap: list[Item] = []
        loads = [float(rng.randint(0, 9)) for _ in range(size)]
        for load in loads:
            push(heap, Item("", load))
        assert [pop(heap).load for _ in range(size)] == sorted(loads)
        assert heap == []


def test_again_is_pop_and_push() -> None:
    rng = Random("again")
    for size in range(1, 40):
        one: list[Item] = []
        other: list[Item] = []
        for number in range(size):
            load = float(rng.randint(0, 5))
            push(one, Item(str(number), load))
            push(other, Item(str(number), load))
        for _ in range(100):
            load = one[0].load + rng.randint(0, 3)
            first = pop(one)
            first.load = load
            push(one, first)
            again(other, load)
            assert [(item.name, item.load) for item in one] == [(item.name, item.load) for item in other]

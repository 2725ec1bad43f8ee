"""What is done about memory, each in a process of its own as it is for all of it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")

FAULTS = """
import resource
from barnabas.server.runtime.heap import keep_freed_pages
assert keep_freed_pages()
for _ in range(3):
    bytearray(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    bytearray(1 << 20), bytes(1 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HOLES = """
from barnabas.server.runtime.heap import give_back, keep_freed_pages
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
assert keep_freed_pages()
blocks = [bytearray(1 << 20) for _ in range(100)]
kept = blocks[1::2]
full = resident()
del blocks
assert full - resident() < 10 << 20
assert give_back(60.0)
print(full - resident())
"""

REST = """
import ctypes
from barnabas.server.runtime.heap import give_back, keep_freed_pages
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
assert keep_freed_pages()
spare = [bytearray(1 << 20) for _ in range(14)]
del spare
give_back(60.0)
busy = libc.sbrk(0)
give_back(0.0)
print(busy - libc.sbrk(0))
"""
CYCLE = """
import gc
from barnabas.server.runtime.heap import give_back, keep_freed_pages
assert keep_freed_pages()
gc.disable()
class Cycle:
    gone = False
    def __init__(self):
        self.itself = self
    def __del__(self):
        Cycle.gone = True
Cycle()
give_back(60.0)
assert not Cycle.gone
give_back(0.0)
print(int(Cycle.gone))
"""
THREADS = """
import threading
from barnabas.server.runtime.heap import keep_freed_pages
assert keep_freed_pages()
kept = []
many = [threading.Thread(target=lambda: kept.append(bytearray(100_000))) for _ in range(20)]
for one in many:
    one.start()
for one in many:
    one.join()
with open("/proc/self/maps") as maps:
    heap, = (line.split()[0] for line in maps if line.rstrip().endswith("[heap]"))
first, last = (int(bound, 16) for bound in heap.split("-"))
import ctypes
addresses = [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in kept]
print(sum(first <= one < last for one in addresses))
"""
LISTS = """
import gc, sys
from barnabas.server.runtime.heap import give_back, keep_freed_pages
assert keep_freed_pages()
gc.disable()
def given():
    tuples = [(number, number, number) for number in range(1500)]
    del tuples
    kept = sys.getallocatedblocks()
    give_back(60.0)
    assert kept - sys.getallocatedblocks() < 1000
    give_back(0.0)
    return kept - sys.getallocatedblocks()
print(min(given() for minute in range(3)))
"""
BALLOON = """
import gc
from barnabas.server.runtime.heap import Balloon
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
gc.disable()
many = [b"%0100d" % number for number in range(300_000)]
kept = many[::1000]  # a few objects hold all arenas
before = resident()
del many
assert before - resident() < 10 << 20, "the interpreter gave them back by itself"
balloon = Balloon()
for _ in balloon.inflate():
    pass
given = before - resident()
at_first = balloon.given_bytes
for _ in range(20):
    for _ in balloon.inflate():
        pass
assert balloon.given_bytes - at_first < 1 << 20, "there was more to be taken"
assert before - resident() > given - (1 << 18), "it takes what was not there"
assert kept == [b"%0100d" % number for number in range(0, 300_000, 1000)]
for _ in balloon.deflate():
    pass
assert balloon.given_bytes == 0
again = [b"%0100d" % number for number in range(300_000)]
assert again == [b"%0100d" % number for number in range(300_000)]
assert again[::1000] == kept
del again
assert resident() - before < 16 << 20, "what was let go of was not used again"
print(given)
"""
SIZES = """
import gc
from barnabas.server.runtime.heap import Balloon
gc.disable()
many = [bytes(size) for _ in range(3000) for size in range(0, 448, 32)]
kept = many[::100]
del many
balloon = Balloon()
for _ in balloon.inflate():
    pass
sizes = set(balloon._runs[1::3])
again = [bytes([number % 251]) * (number % 448) for number in range(200_000)]
for _ in balloon.deflate():
    pass
more = [bytes([number % 251]) * (number % 448) for number in range(200_000)]
assert all(one == bytes([number % 251]) * (number % 448) for number, one in enumerate(again))
assert more == again and not any(map(any, kept))
print(len(sizes))
"""
LOAD = """
from barnabas.server.runtime.heap import Balloon
many = [b"%0100d" % number for number in range(100_000)]
kept = many[::1000]
del many
balloon = Balloon()
def given(share):
    for _ in balloon.adapt(60 * share):
        pass
    return balloon.given_bytes
assert given(0.05) == 0
at_rest = given(0.01)
assert at_rest > 8 << 20
assert given(0.05) == at_rest
assert given(0.01) >= at_rest
assert given(0.15) == 0
print(at_rest)
"""
NO_POOLS = """
from barnabas.server.runtime.heap import Balloon
many = [b"%0100d" % number for number in range(100_000)]
kept = many[::1000]
del many
balloon = Balloon()
for _ in balloon.inflate():
    pass
print(balloon.given_bytes)
for _ in balloon.deflate():
    pass
"""


def printed(program: str, **environment: str) -> int:
    env = {**os.environ, "PYTHONMALLOC": "", **environment}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, env=env
    )
    return int(done.stdout)


def test_freed_pages_are_used_again() -> None:
    """256 pages for each block of a megabyte are the alternative."""
    assert printed(FAULTS) < 2_000


def test_holes_are_given_back() -> None:
    assert printed(HOLES) > 40 << 20


def test_spare_pages_are_given_back_at_rest_only() -> None:
    assert printed(REST) > 10 << 20


def test_garbage_in_cycles_is_collected_at_rest_only() -> None:
    assert printed(CYCLE) == 1


def test_threads_share_the_heap() -> None:
    assert printed(THREADS) == 20


def test_lists_for_reuse_are_given_up_each_minute_of_a_rest() -> None:
    """The interpreter keeps freed tuples of each length, 2,000 at most."""
    assert printed(LISTS) > 1_000


def test_arenas_that_few_objects_hold_are_given_back_in_pages() -> None:
    """Of 41 MiB, of which no arena is empty: pools of which nothing is in use, all of each, and pages of the others."""
    assert printed(BALLOON) > 36 << 20


def test_free_blocks_of_all_sizes_are_given_back() -> None:
    assert printed(SIZES) >= 10


def test_a_little_work_does_not_bring_the_pages_back() -> None:
    """As when the broker looks after its logs, or a tool asks it something, once in a while."""
    assert printed(LOAD) > 8 << 20


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc_debug"])
def test_another_allocator_is_left_alone(allocator: str) -> None:
    assert printed(NO_POOLS, PYTHONMALLOC=allocator) == 0

"""What is done about memory, each in a process of its own as it is for all of it."""

from __future__ import annotations

import ctypes
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
BALLOON = """
import gc
from barnabas.server.runtime.heap import SLICE_BLOCKS, Balloon
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
held = balloon.held_bytes
for _ in balloon.inflate():
    pass
assert balloon.held_bytes - held < 4 << 20, "there was more to be taken"
assert kept == [b"%0100d" % number for number in range(0, 300_000, 1000)]
for _ in balloon.deflate():
    pass
assert balloon.held_bytes == 0
again = [b"%0100d" % number for number in range(300_000)]
assert again[::1000] == kept
assert resident() - before < 8 << 20, "what was let go of was not used again"
print(given)
"""


def printed(program: str) -> int:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
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


def test_arenas_that_few_objects_hold_are_given_back_in_pages() -> None:
    """Of 38 MiB, of which no arena is empty."""
    assert printed(BALLOON) > 12 << 20

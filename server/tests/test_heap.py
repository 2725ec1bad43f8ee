"""The C heap's settings, each in a process of its own as they are for all of it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")

FAULTS = """
import resource
from server.heap import keep_freed_pages
assert keep_freed_pages()
for _ in range(3):
    bytearray(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    bytearray(1 << 20), bytes(1 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HOLES = """
from server.heap import give_back_holes, keep_freed_pages
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
assert keep_freed_pages()
blocks = [bytearray(1 << 20) for _ in range(100)]
kept = blocks[1::2]
full = resident()
del blocks
assert full - resident() < 10 << 20
assert give_back_holes()
print(full - resident())
"""


def printed(program: str) -> int:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def test_freed_pages_are_used_again() -> None:
    """256 pages for each block of a megabyte are the alternative."""
    assert printed(FAULTS) < 2_000


def test_holes_are_given_back() -> None:
    assert printed(HOLES) > 40 << 20

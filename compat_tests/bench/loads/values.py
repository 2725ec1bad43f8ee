"""The values of the records, made from a seed before anything is measured: the same bytes for every broker and client.

They look like the events that services write: JSON with ids, times, numbers and a line of text. Sizes are spread evenly
between two bounds, and each value has its size to the byte. The text is made of 2,000 invented words, of which few are
frequent and most are rare, as in a language; batches of it shrink to about a third (`test_loads.py` looks at that).

A file holds for each value an int32 with its length, and its bytes (big-endian). Clients read it into memory before
the clock starts, and send its values in turn.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 20_261_125
WORDS = 2_000
TEXT_WORDS = 300_000
SMALL_BYTES = 200
CONSONANTS, VOWELS = "bdklmnprstv", "aeio"


@dataclass(frozen=True)
class Shape:
    """Sizes of values: bytes, both bounds included, and how many different ones there are."""

    smallest: int
    largest: int
    count: int

    @property
    def mean_bytes(self) -> float:
        """What a value has on average."""
        return (self.smallest + self.largest) / 2


ONE_KB = Shape(1024, 1024, 16_384)
MIXED = Shape(500, 1500, 16_384)
SMALL = Shape(60, 140, 131_072)


class Values:
    """The files of a run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[Shape, tuple[Path, list[int]]] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def file(self, shape: Shape) -> Path:
        """Its path; made when it is asked for the first time, which takes a second or two."""
        return self._get(shape)[0]

    def total_bytes(self, shape: Shape, count: int) -> int:
        """What the first `count` records have, when the values are sent in turn."""
        sizes = self._get(shape)[1]
        return sum(sizes) * (count // len(sizes)) + sum(sizes[: count % len(sizes)])

    def digests(self) -> dict[str, str]:
        """SHA-256 of the files made so far, by the bounds of their values."""
        return {
            f"{shape.smallest}-{shape.largest}": hashlib.sha256(path.read_bytes()).hexdigest()
            for shape, (path, _) in self._made.items()
        }

    def _get(self, shape: Shape) -> tuple[Path, list[int]]:
        if shape not in self._made:
            path = self._directory / f"values-{shape.smallest}-{shape.largest}"
            made = list(values(shape))
            path.write_bytes(b"".join(struct.pack(">i", len(value)) + value for value in made))
            self._made[shape] = path, [len(value) for value in made]
        return self._made[shape]


def values(shape: Shape, seed: int = SEED) -> Iterator[bytes]:
    """The values of a shape."""
    rng = random.Random(seed)
    words = _words(rng)
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    text = " ".join(rng.choices(words, weights, k=TEXT_WORDS))
    place = 0
    for number in range(shape.count):
        size = rng.randint(shape.smallest, shape.largest)
        head = _small(rng, words) if size < SMALL_BYTES else _event(rng, words, number)
        wanted = size - len(head) - 2
        if wanted < 0:
            raise ValueError(f"{size} bytes are too few for {head!r}")
        if place + wanted > len(text):
            place = 0
        yield f'{head}{text[place : place + wanted]}"}}'.encode()
        place += wanted


def read(path: Path) -> list[bytes]:
    """The values of a file."""
    data = path.read_bytes()
    found = []
    place = 0
    while place < len(data):
        (size,) = struct.unpack_from(">i", data, place)
        found.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return found


def _words(rng: random.Random) -> list[str]:
    syllables = [consonant + vowel for consonant in CONSONANTS for vowel in VOWELS]
    found: dict[str, None] = {}
    while len(found) < WORDS:
        found["".join(rng.choices(syllables, k=rng.choices((1, 2, 3, 4), (1, 6, 6, 2))[0]))] = None
    return list(found)


def _small(rng: random.Random, words: list[str]) -> str:
    return f'{{"id":{rng.randrange(10**9)},"ms":{rng.expovariate(0.02):.1f},"at":"{rng.choice(words)}","text":"'


def _event(rng: random.Random, words: list[str], number: int) -> str:
    event = {
        "id": f"{rng.getrandbits(128):032x}",
        "time": f"2026-11-25T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.{number % 997:03}Z",
        "service": rng.choice(("checkout", "catalogue", "accounts", "delivery")),
        "level": rng.choices(("info", "warn", "error"), (90, 8, 2))[0],
        "user": {"id": rng.randrange(10**7), "name": f"{rng.choice(words)} {rng.choice(words)}"},
        "duration_ms": round(rng.expovariate(0.02), 3),
        "items": [{"sku": f"{rng.randrange(10**6):06}", "price": rng.randrange(10**5) / 100} for _ in range(2)],
        "trace": f"{rng.getrandbits(64):016x}",
    }
    return json.dumps(event, separators=(",", ":"))[:-1] + ',"message":"'


def in_turn(values_of_file: list[bytes]) -> Iterator[bytes]:
    """Them, again and again."""
    return itertools.cycle(values_of_file)

"""Bytes that were right: changed, missing, doubled, or replaced by lengths that promise much."""

from __future__ import annotations

import random
import struct

COUNTS = (-1, -2, 0, 1, 1000, 32_767, 65_536, 100_001, 2**31 - 1, -(2**31))


def damaged(rng: random.Random, data: bytes | bytearray) -> bytes:
    """`data` after one to five accidents."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(7):
            case 0 if out:
                out[at] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del out[at : at + rng.choice((1, 4, 100))]
            case 3:
                out[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
            case 4:
                out[at : at + 4] = struct.pack(">i", rng.choice(COUNTS))
            case 5:
                del out[at:]
            case _:
                out[at:at] = out[at : at + rng.choice((1, 8, 50, 1000))]
    return bytes(out)


def damaged_frame(rng: random.Random, frame: bytes) -> bytes:
    """A frame whose length is right again after the damage, or sometimes not: then what follows is out of step."""
    if rng.random() < 0.1:
        return damaged(rng, frame)
    body = damaged(rng, frame[4:])
    return struct.pack(">i", len(body)) + body

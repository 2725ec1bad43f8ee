"""XXH3 with 64 bits, without a seed and with the default secret: by this hash Apache Kafka compares how topics look.

For inputs of any length; about a microsecond per byte, for it runs when topics change. Source: the specification of
xxHash (doc/xxhash_spec.md, version 0.2).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_PRIME32_1: Final = 0x9E3779B1
_PRIME32_2: Final = 0x85EBCA77
_PRIME32_3: Final = 0xC2B2AE3D
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_PRIME64_4: Final = 0x85EBCA77C2B2AE63
_PRIME64_5: Final = 0x27D4EB2F165667C5
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE: Final = 64
_U32 = Struct("<I")
_U64 = Struct("<Q")
_LANES = Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """The hash of `data`, unsigned."""
    length = len(data)
    if length <= 16:
        return _up_to_16(data, length)
    if length <= 128:
        return _up_to_128(data, length)
    if length <= 240:
        return _up_to_240(data, length)
    return _long(data, length)


def _secret64(offset: int) -> int:
    value: int = _U64.unpack_from(_SECRET, offset)[0]
    return value


def _fold(a: int, b: int) -> int:
    """The two halves of the 128 bits long product."""
    product = a * b
    return (product ^ (product >> 64)) & _MASK


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ (value >> 32)


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ (value >> 32)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _up_to_16(data: bytes, length: int) -> int:
    if length > 8:
        low = (_secret64(24) ^ _secret64(32)) ^ _U64.unpack_from(data)[0]
        high = (_secret64(40) ^ _secret64(48)) ^ _U64.unpack_from(data, length - 8)[0]
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((length + swapped + high + _fold(low, high)) & _MASK)
    if length >= 4:
        combined: int = _U32.unpack_from(data, length - 4)[0] | _U32.unpack_from(data)[0] << 32
        value: int = combined ^ (_secret64(8) ^ _secret64(16))
        value ^= _rotate(value, 49) ^ _rotate(value, 24)
        value = value * _PRIME_MX2 & _MASK
        value ^= (value >> 35) + length
        value = value * _PRIME_MX2 & _MASK
        return value ^ (value >> 28)
    if length:
        combined = data[length - 1] | length << 8 | data[0] << 16 | data[length >> 1] << 24
        secret = _U32.unpack_from(_SECRET)[0] ^ _U32.unpack_from(_SECRET, 4)[0]
        return _avalanche_64(combined ^ secret)
    return _avalanche_64(_secret64(56) ^ _secret64(64))


def _mix_16(data: bytes, offset: int, secret_offset: int) -> int:
    low, high = _U64.unpack_from(data, offset)[0], _U64.unpack_from(data, offset + 8)[0]
    return _fold(low ^ _secret64(secret_offset), high ^ _secret64(secret_offset + 8))


def _up_to_128(data: bytes, length: int) -> int:
    total = length * _PRIME64_1
    for i in range((length - 1) // 32 + 1):
        total += _mix_16(data, 16 * i, 32 * i)
        total += _mix_16(data, length - 16 * (i + 1), 32 * i + 16)
    return _avalanche(total & _MASK)


def _up_to_240(data: bytes, length: int) -> int:
    total = length * _PRIME64_1
    for i in range(8):
        total += _mix_16(data, 16 * i, 16 * i)
    total = _avalanche(total & _MASK)
    for i in range(8, length // 16):
        total += _mix_16(data, 16 * i, 16 * (i - 8) + 3)
    return _avalanche((total + _mix_16(data, length - 16, 136 - 17)) & _MASK)


def _accumulate(sums: list[int], data: bytes, offset: int, secret_offset: int) -> None:
    lanes = _LANES.unpack_from(data, offset)
    secrets = _LANES.unpack_from(_SECRET, secret_offset)
    for i in range(8):
        value = lanes[i] ^ secrets[i]
        sums[i ^ 1] = (sums[i ^ 1] + lanes[i]) & _MASK
        sums[i] = (sums[i] + (value & 0xFFFFFFFF) * (value >> 32)) & _MASK


def _long(data: bytes, length: int) -> int:
    sums = [_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1]
    stripes_per_block = (len(_SECRET) - _STRIPE) // 8
    last_secrets = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for stripe in range((length - 1) // _STRIPE):
        in_block = stripe % stripes_per_block
        _accumulate(sums, data, stripe * _STRIPE, 8 * in_block)
        if in_block == stripes_per_block - 1:
            sums = [
                (each ^ each >> 47 ^ secret) * _PRIME32_1 & _MASK
                for each, secret in zip(sums, last_secrets, strict=True)
            ]
    _accumulate(sums, data, length - _STRIPE, len(_SECRET) - _STRIPE - 7)
    total = length * _PRIME64_1
    for i in range(4):
        total += _fold(sums[2 * i] ^ _secret64(11 + 16 * i), sums[2 * i + 1] ^ _secret64(19 + 16 * i))
    return _avalanche(total & _MASK)

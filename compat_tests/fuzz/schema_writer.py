"""Requests as bytes, straight from a schema: every field is asked for its value, and every length may lie.

kproto's encoders write what is right and refuse the rest; here a string may be no UTF-8 or too long, a null may stand
where none is allowed, an array may promise more than it has. The shape of (class, version) is compiled once into nested
tuples; writing a message walks them. What comes out without lies is what kproto's decoders take, which a test shows.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple, Protocol

from barnabas.kproto import ZERO_UUID, request_class
from barnabas.kproto.notation import Field, Struct

Value = Any
STRING_MAX = 32_767
RANGES = {"i8": (8, "b"), "i16": (16, "h"), "u16": (16, "H"), "i32": (32, "i"), "u32": (32, "I"), "i64": (64, "q")}
LIES = (-1, -2, 0, 1, 2, 127, 128, 32_767, 32_768, 65_535, 100_001, 2**31 - 1, -(2**31))


class Shape(NamedTuple):
    """One field as it is written in one version; `inner` are the fields of its structure."""

    name: str
    type: str
    is_array: bool
    nullable: bool
    tag: int | None
    inner: tuple[Shape, ...] | None
    owner: str


class Form(NamedTuple):
    """One request in one version."""

    key: int
    version: int
    flexible: bool
    fields: tuple[Shape, ...]


class Chooser(Protocol):
    """Who decides what is written."""

    lie_rate: float
    """How many of the lengths are wrong."""

    room: int
    """How many bytes an array may take whose elements are repeated."""

    def value(self, shape: Shape) -> Value:
        """An int, bool, float, bytes (also for strings), or None."""

    def count(self, shape: Shape, depth: int) -> tuple[int, int]:
        """(elements, times they are written)."""

    def is_null(self, shape: Shape) -> bool: ...

    def has_tag(self, shape: Shape) -> bool: ...

    def unknown_tags(self) -> list[tuple[int, bytes]]: ...

    def lie(self, length: int) -> int: ...

    def chance(self) -> float: ...


@cache
def form(key: int, version: int) -> Form:
    """The shape of a request. Raises ValueError for a version that the schema does not have."""
    description = request_class(key).__description__
    if not description.versions.has(version):
        raise ValueError(f"{description.name} has no version {version}")
    return Form(key, version, description.is_flexible(version), _shapes(description.struct, version))


def _shapes(struct: Struct, version: int) -> tuple[Shape, ...]:
    return tuple(_shape(field, version, struct.name) for field in struct.fields if field.versions.has(version))


def _shape(field: Field, version: int, owner: str) -> Shape:
    inner = _shapes(field.struct, version) if field.struct is not None else None
    return Shape(field.name, field.type, field.is_array, field.is_nullable(version), field.tag, inner, owner)


def uvarint(value: int) -> bytes:
    """Of 32 bits; negative ones as Java writes them."""
    value &= 0xFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Writer:
    """Writes the bodies that a chooser chooses."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self.lied = False
        """Whether anything of the last body is malformed on purpose."""

    def body(self, form: Form) -> bytearray:
        out = bytearray()
        self.lied = False
        self._struct(out, form.fields, form.flexible, 0)
        return out

    def _struct(self, out: bytearray, fields: tuple[Shape, ...], flexible: bool, depth: int) -> None:
        tags: list[tuple[int, bytes]] = []
        for shape in fields:
            if shape.tag is None:
                self._field(out, shape, flexible, depth)
            elif self._chooser.has_tag(shape):
                payload = bytearray()
                self._field(payload, shape, flexible, depth)
                tags.append((shape.tag, bytes(payload)))
        if not flexible:
            return
        tags += self._chooser.unknown_tags()
        if not tags:
            out.append(0)
            return
        tags.sort()
        out += uvarint(self._length(len(tags)))
        for tag, payload in tags:
            out += uvarint(tag) + uvarint(self._length(len(payload))) + payload

    def _length(self, length: int) -> int:
        chooser = self._chooser
        if chooser.lie_rate and chooser.chance() < chooser.lie_rate:
            self.lied = True
            return chooser.lie(length)
        return length

    def _field(self, out: bytearray, shape: Shape, flexible: bool, depth: int) -> None:
        if shape.is_array:
            self._array(out, shape, flexible, depth)
        elif shape.inner is not None:
            if shape.nullable:
                null = self._chooser.is_null(shape)
                out += (b"\x00" if null else b"\x01") if shape.tag is not None else (b"\xff" if null else b"\x01")
                if null:
                    return
            self._struct(out, shape.inner, flexible, depth)
        else:
            self._scalar(out, shape, flexible)

    def _array(self, out: bytearray, shape: Shape, flexible: bool, depth: int) -> None:
        chooser = self._chooser
        if shape.nullable and chooser.is_null(shape):
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        count, times = chooser.count(shape, depth)
        element = shape._replace(is_array=False, nullable=False, tag=None)
        elements = bytearray()
        for _ in range(count):
            self._element(elements, element, flexible, depth)
        if times > 1:
            times = max(1, min(times, chooser.room // max(len(elements), 1)))
            elements *= times
        total = self._length(count * times)
        out += uvarint(total + 1) if flexible else struct.pack(">I", total & 0xFFFFFFFF)
        out += elements

    def _element(self, out: bytearray, shape: Shape, flexible: bool, depth: int) -> None:
        if shape.inner is not None:
            self._struct(out, shape.inner, flexible, depth + 1)
        else:
            self._scalar(out, shape, flexible)

    def _scalar(self, out: bytearray, shape: Shape, flexible: bool) -> None:
        value = self._chooser.value(shape)
        kind = shape.type
        if kind in RANGES:
            bits, _ = RANGES[kind]
            out += (int(value or 0) & ((1 << bits) - 1)).to_bytes(bits >> 3, "big")
        elif kind == "bool":
            out.append(1 if value else 0)
        elif kind == "uuid":
            out += value or ZERO_UUID
        elif kind == "f64":
            out += struct.pack(">d", value or 0.0)
        else:
            self._variable(out, shape, flexible, value)

    def _variable(self, out: bytearray, shape: Shape, flexible: bool, value: bytes | None) -> None:
        classic = "H" if shape.type == "str" else "I"
        mask = 0xFFFF if classic == "H" else 0xFFFFFFFF
        if value is None:
            if not shape.nullable and shape.type != "records":
                if self._chooser.chance() >= self._chooser.lie_rate:
                    out += b"\x01" if flexible else struct.pack(f">{classic}", 0)
                    return
                self.lied = True
            out += b"\x00" if flexible else struct.pack(f">{classic}", mask)
            return
        if classic == "H" and len(value) > STRING_MAX:
            self.lied = True
        length = self._length(len(value))
        out += uvarint(length + 1) if flexible else struct.pack(f">{classic}", length & mask)
        out += value

"""What decoder and encoder generation share: lines with indentation, fresh names, the constants of the generated
function.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any, Final

from barnabas.kproto.classes import Message, Record, has_shared_default, shared_default
from barnabas.kproto.notation import Field, Struct

__all__ = ["FIXED", "SIZES", "Source"]

FIXED: Final = {
    "bool": "?",
    "i8": "b",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "f64": "d",
    "uuid": "16s",
}
"""struct codes of the types of fixed width."""

SIZES: Final = {"bool": 1, "i8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "f64": 8, "uuid": 16}


class Source:
    """The source of a generated function for one message and version."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.message = cls.__description__
        self.version = version
        self.flexible = self.message.is_flexible(version)
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self._depth = 0
        self._names = 0
        self._layouts: dict[str, str] = {}

    @property
    def title(self) -> str:
        return f"{self.message.name} v{self.version}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines indented under `head`; an empty block gets `pass`."""
        self.line(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A name used nowhere else in the function: generated loops nest, and a shared name would be a silent error."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, name: str, value: object) -> str:
        self.namespace[name] = value
        return name

    def layout(self, codes: str) -> str:
        """The name of the bound struct method for big-endian `codes`."""
        if codes not in self._layouts:
            name = f"S{len(self._layouts)}_{codes.replace('?', 'o')}"
            self._layouts[codes] = self.constant(name, Layout(">" + codes))
        return self._layouts[codes]

    def class_of(self, struct: Struct) -> str:
        cls = self.cls if struct is self.message.struct else getattr(self.cls, struct.name)
        return self.constant(f"C_{struct.name}", cls)

    def default(self, field: Field) -> str:
        """The expression of a field's default."""
        if field.default is None:
            return "None"
        if field.is_array:
            return "[]"
        if field.struct is None:
            return repr(field.default) if field.type != "uuid" else self.constant("ZERO_UUID", field.default)
        cls = self.class_of(field.struct)
        if not has_shared_default(field.struct):
            return f"{cls}()"
        nested: type[Record] = getattr(self.cls, field.struct.name)
        return self.constant(f"D_{field.struct.name}", shared_default(nested))

    def fields(self, struct: Struct) -> tuple[list[Field], list[Field], list[Field]]:
        """(present in order, tagged by tag, absent) in this version."""
        present = [field for field in struct.fields if field.versions.has(self.version)]
        ordinary = [field for field in present if field.tag is None]
        tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
        absent = [field for field in struct.fields if not field.versions.has(self.version)]
        return ordinary, tagged, absent

    def minimum_size(self, struct: Struct) -> int:
        """The fewest bytes a value of `struct` takes: a count of more of them than fit in the rest of the frame is
        refused before any is read.
        """
        size = 1 if self.flexible else 0
        for field in self.fields(struct)[0]:
            if field.is_array:
                size += 1 if self.flexible else 4
            elif field.struct is not None:
                size += 1 if field.is_nullable(self.version) else self.minimum_size(field.struct)
            elif field.type in SIZES:
                size += SIZES[field.type]
            else:
                size += 1 if self.flexible else 2 if field.type == "str" else 4
        return size

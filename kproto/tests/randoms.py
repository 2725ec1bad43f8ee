"""Random messages of any class and version, for tests here and in other packages. Same seed, same message."""

import random
from typing import Any

from barnabas.kproto.classes import Message, Record
from barnabas.kproto.notation import Field, Struct

__all__ = ["every_message", "random_message"]

INTEGERS = {
    "i8": (-(2**7), 2**7 - 1),
    "i16": (-(2**15), 2**15 - 1),
    "u16": (0, 2**16 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "u32": (0, 2**32 - 1),
    "i64": (-(2**63), 2**63 - 1),
}
ALPHABET = "abcdefghijklmnopqrstuvwxyz-._09 éß€😀\x00"


def every_message() -> list[tuple[type[Message], int]]:
    """(class, version) of everything that has a schema: requests, responses, stored records."""
    import barnabas.kproto.stored
    from barnabas import kproto
    from barnabas.kproto.notation import SCHEMA_DIR, parse

    classes = [cls for key in kproto.ApiKey for cls in (kproto.request_class(key), kproto.response_class(key))]
    for path in sorted((SCHEMA_DIR / "stored").glob("*.rec")):
        classes += [getattr(barnabas.kproto.stored, description.name) for description in parse(path)]
    return [
        (cls, version)
        for cls in classes
        for version in range(cls.__description__.versions.first, cls.__description__.versions.last + 1)
    ]


def random_message(
    rng: random.Random, cls: type[Message], version: int, *, unknown_tags: bool = False, absent: bool = False
) -> Any:
    """A `cls` with random values in the fields `version` has; the others keep their default, or, with `absent`, the
    ignorable ones among them get values too (which encoding drops). `unknown_tags` adds tagged fields no schema knows.
    """
    return _Filler(rng, cls, version, unknown_tags, absent).struct(cls.__description__.struct)


class _Filler:
    def __init__(self, rng: random.Random, cls: type[Message], version: int, unknown_tags: bool, absent: bool) -> None:
        self.rng = rng
        self.cls = cls
        self.version = version
        self.absent = absent
        self.unknown_tags = unknown_tags and cls.__description__.is_flexible(version)
        # Deep or wide messages would otherwise grow beyond what a test has time for.
        self.budget = 200

    def struct(self, struct: Struct) -> Record:
        self.budget -= 1
        values = {
            field.name: self.field(field)
            for field in struct.fields
            if field.versions.has(self.version) or (self.absent and field.ignorable)
        }
        if self.unknown_tags and self.rng.random() < 0.3:
            tags = self.rng.sample(range(1000, 100_000), self.rng.randint(1, 3))
            values["unknown_tags"] = {tag: self.rng.randbytes(self.rng.choice([0, 1, 5, 200])) for tag in tags}
        own = self.cls if struct is self.cls.__description__.struct else getattr(self.cls, struct.name)
        message: Record = own(**values)
        return message

    def field(self, field: Field) -> Any:
        nullable = field.type == "records" or field.is_nullable(self.version)
        if nullable and self.rng.random() < 0.2:
            return None if field.type != "records" or field.is_nullable(self.version) else b""
        # Tagged fields are left out when they hold their default: both must come up.
        if field.tag is not None and self.rng.random() < 0.3:
            return getattr(self.struct_default(field), field.name)
        if field.is_array:
            return [self.value(field) for _ in range(self.count(field))]
        return self.value(field)

    def struct_default(self, field: Field) -> Any:
        for struct in [self.cls.__description__.struct, *self.cls.__description__.structs()]:
            if field in struct.fields:
                return (self.cls if struct is self.cls.__description__.struct else getattr(self.cls, struct.name))()
        raise AssertionError(field)

    def count(self, field: Field) -> int:
        if self.budget <= 0:
            return 0
        if field.struct is None and self.rng.random() < 0.1:
            return self.rng.choice([16, 17, 126, 127, 128, 300])
        return self.rng.choice([0, 1, 1, 2, 3])

    def value(self, field: Field) -> Any:
        rng = self.rng
        if field.struct is not None:
            return self.struct(field.struct)
        if field.type in INTEGERS:
            low, high = INTEGERS[field.type]
            return rng.choice([low, high, 0, 1, max(low, -1), rng.randint(low, high)])
        if field.type == "bool":
            return rng.random() < 0.5
        if field.type == "f64":
            return rng.choice([0.0, -1.5, 1e300, rng.random()])
        if field.type == "uuid":
            return rng.randbytes(16)
        size = rng.choice([0, 1, 3, 10, 10, 30, 126, 127, 128, 1000])
        if field.type == "str":
            return "".join([ALPHABET[number % len(ALPHABET)] for number in rng.randbytes(size)])
        return rng.randbytes(size)

"""The notation of `schema/*.api` and `schema/stored/*.rec`: one line per field, read into frozen descriptions.

    api 12 Heartbeat  0-4  flexible 4+        key, name, versions, first one with compact types and tagged fields
    request
      group_id           str                  name and type; present in every version its surroundings are
      group_instance_id  str?     3+          nullable; present from version 3
      topics             []Topic  0-2  ~      array of a structure, whose fields stand below it, indented by two more
        name             str?1+               nullable from version 1
      current_leader     Leader   4+   tag 0  tagged field
      error_code         i16           = -1   default, where it is not the type's own
    response ...

A `.rec` file has `record Name 0-4 flexible 4+` sections instead. For keys of coordinator records the version is the
number in front of the key, the type of the record. `~` means the field is dropped silently when the version
lacks it; otherwise only its default may be dropped. A structure is described where it is used first; later uses in
the same message only name it.

Types: bool i8 i16 u16 i32 u32 i64 f64 uuid str bytes records, a structure, or an array of one of them.
"""

from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

__all__ = ["SCHEMA_DIR", "Field", "Message", "SchemaError", "Struct", "Versions", "parse", "parse_line_of_versions"]

SCHEMA_DIR: Final = Path(__file__).parent / "schema"

PRIMITIVES: Final = frozenset(
    {"bool", "i8", "i16", "u16", "i32", "u32", "i64", "f64", "uuid", "str", "bytes", "records"}
)
NO_LIMIT: Final = 0x7FFF

Default: TypeAlias = bool | int | float | str | bytes | None


class SchemaError(Exception):
    """A schema file that does not follow the notation, with its name and line."""


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """`3`, `0-4` or `3+`."""
        if text.endswith("+"):
            return cls(int(text[:-1]), NO_LIMIT)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


ALWAYS: Final = Versions(0, NO_LIMIT)


class Field(NamedTuple):
    """One field. `type` is a primitive's or a structure's name, `struct` the latter; `default` is that of a field
    which is no array.
    """

    name: str
    type: str
    is_array: bool
    struct: "Struct | None"
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: Default
    ignorable: bool

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and self.nullable.has(version)


class Struct(NamedTuple):
    """A named group of fields, in the order of the wire."""

    name: str
    fields: tuple[Field, ...]


class Message(NamedTuple):
    """A request, a response or a stored record. `api_key` is None for records, `flexible_from` for messages that
    never became flexible.
    """

    name: str
    api_key: int | None
    versions: Versions
    flexible_from: int | None
    struct: Struct

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def structs(self) -> list[Struct]:
        """The nested structures, each once, in the order of their first use."""
        found: dict[str, Struct] = {}

        def walk(struct: Struct) -> None:
            for field in struct.fields:
                if field.struct is not None and field.struct.name not in found:
                    found[field.struct.name] = field.struct
                    walk(field.struct)

        walk(self.struct)
        return list(found.values())


def parse(path: Path) -> tuple[Message, ...]:
    """The messages of one schema file: request and response, or the records."""
    return _Parser(path).parse()


def parse_line_of_versions(line: str) -> tuple[str, Versions, int | None]:
    """(name, valid versions, first flexible version) of an `api` or `record` line."""
    words = line.split()
    if words[0] == "api":
        del words[1]
    name, versions = words[1], Versions.parse(words[2])
    if len(words) == 3:
        return name, versions, None
    if len(words) != 5 or words[3] != "flexible":
        raise ValueError(f"unexpected words in {line!r}")
    return name, versions, Versions.parse(words[4]).first


class _Parser:
    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text("utf-8").splitlines()
        self.lines = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        self.position = 0
        self.structs: dict[str, Struct] = {}

    def parse(self) -> tuple[Message, ...]:
        messages = []
        try:
            while self.position < len(self.lines):
                head = self._next()
                name, versions, flexible_from = parse_line_of_versions(head)
                if head.startswith("record "):
                    messages.append(Message(name, None, versions, flexible_from, self._message_struct(name)))
                    continue
                api_key = int(head.split()[1])
                for section in ("request", "response"):
                    if self._next() != section:
                        raise ValueError(f"expected {section!r}")
                    full_name = name + section.capitalize()
                    messages.append(
                        Message(full_name, api_key, versions, flexible_from, self._message_struct(full_name))
                    )
        except (ValueError, IndexError) as error:
            number = self.lines[self.position - 1][0] if self.position else 1
            raise SchemaError(f"{self.path.name}:{number}: {error}") from error
        return tuple(messages)

    def _next(self) -> str:
        line = self.lines[self.position][1]
        self.position += 1
        return line

    def _message_struct(self, name: str) -> Struct:
        self.structs = {}
        return Struct(name, self._fields(indent=2))

    def _fields(self, indent: int) -> tuple[Field, ...]:
        fields: list[Field] = []
        while self.position < len(self.lines):
            line = self.lines[self.position][1]
            depth = len(line) - len(line.lstrip())
            if depth < indent:
                break
            self.position += 1
            if depth > indent:
                raise ValueError(f"indented by {depth}, expected {indent}")
            fields.append(self._field(line, indent))
        return tuple(fields)

    def _field(self, line: str, indent: int) -> Field:
        name, type_text, *words = line.split()
        type_name, question, nullable_text = type_text.partition("?")
        is_array = type_name.startswith("[]")
        type_name = type_name.removeprefix("[]")
        nullable = (Versions.parse(nullable_text) if nullable_text else ALWAYS) if question else None
        versions = Versions.parse(words.pop(0)) if words and words[0][0].isdigit() else ALWAYS
        tag = None
        default_text = None
        ignorable = False
        while words:
            word = words.pop(0)
            if word == "tag":
                tag = int(words.pop(0))
            elif word == "=":
                default_text = words.pop(0)
            elif word == "~":
                ignorable = True
            else:
                raise ValueError(f"unknown word {word!r}")
        struct = None
        if type_name not in PRIMITIVES:
            children = self._fields(indent + 2)
            if children:
                if type_name in self.structs:
                    raise ValueError(f"{type_name} is described twice")
                self.structs[type_name] = Struct(type_name, children)
            if type_name not in self.structs:
                raise ValueError(f"{type_name} is described nowhere above")
            struct = self.structs[type_name]
        default = _default(type_name, is_array, default_text)
        if default is None and nullable is None and type_name != "records":
            raise ValueError("null by default, but not nullable")
        return Field(name, type_name, is_array, struct, versions, nullable, tag, default, ignorable)


# What a field holds when nothing is said. For arrays and structures "" stands for "a new one".
_TYPE_DEFAULTS: Final[dict[str, Default]] = {
    "bool": False,
    "f64": 0.0,
    "uuid": bytes(16),
    "str": "",
    "bytes": b"",
    "records": None,
}


def _default(type_name: str, is_array: bool, text: str | None) -> Default:
    if text == "null":
        return None
    if is_array or type_name not in PRIMITIVES:
        if text is not None:
            raise ValueError(f"an array or structure has no default {text!r}")
        return ""
    if text is None:
        return _TYPE_DEFAULTS.get(type_name, 0)
    if type_name == "bool":
        return {"true": True, "false": False}[text]
    if type_name == "str":
        return text
    return float(text) if type_name == "f64" else int(text)

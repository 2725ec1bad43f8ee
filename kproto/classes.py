"""Python classes for messages: one plain class with `__slots__` per structure, for all its versions.

Nested structures are attributes of their message's class (`FetchResponse.PartitionData`). The constructor takes
keywords; a field not given holds Kafka's default: arrays start as a list of their own; a structure without arrays is
one shared default value that refuses assignment (a Fetch response would otherwise build three structures per
partition only to find them empty). `copy.copy` of that shared value gives an ordinary one.
"""

import linecache
from collections.abc import Iterator
from typing import Any, ClassVar

from barnabas.kproto.notation import Field, Struct
from barnabas.kproto.notation import Message as Description

__all__ = ["Record", "message_class"]


class Record:
    """What every message and nested structure is: slots, equality by value, a readable repr.

    `unknown_tags` holds tagged fields the decoder did not know, {tag: bytes}, or None; they are written again when
    the message is encoded.
    """

    __slots__ = ("unknown_tags",)
    __fields__: ClassVar[tuple[str, ...]] = ()
    __struct__: ClassVar[Struct]
    unknown_tags: dict[int, bytes] | None
    __hash__ = None  # type: ignore[assignment]  # mutable values that compare by content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or other.__struct__ is not self.__struct__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__fields__)

    def __repr__(self) -> str:
        return f"{self.__struct__.name}({', '.join(self._shown())})"

    def _shown(self) -> Iterator[str]:
        for name in self.__fields__:
            value = getattr(self, name)
            if name == "unknown_tags" and not value:
                continue
            if isinstance(value, memoryview):
                yield f"{name}=<{value.nbytes} bytes>"
            else:
                yield f"{name}={value!r}"


class Message(Record):
    """A request, response or stored record."""

    __slots__ = ()
    __description__: ClassVar[Description]
    __codecs__: ClassVar[dict[tuple[str, int], Any]]


class SharedDefault:
    """Mixed into the class of a shared default value."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__mro__[2].__qualname__
        raise AttributeError(
            f"this {kind} is the default shared by all: assign a {kind}(...) of your own, {name!r} is not set in it"
        )

    def __copy__(self) -> Any:
        cls = type(self).__mro__[2]
        return cls(**{name: getattr(self, name) for name in cls.__fields__})  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: object) -> Any:
        return self.__copy__()


def message_class(description: Description, module: str) -> type[Message]:
    """The class of one message with those of its structures inside. Each call makes new classes."""
    structs = description.structs()
    namespace: dict[str, Any] = {
        "Record": Record,
        "Message": Message,
        "SharedDefault": SharedDefault,
        "MISSING": MISSING,
    }
    lines = []
    # Inner structures first: the default of an outer one may hold them.
    for struct in _inner_first(description.struct):
        lines += _class_source(struct, "Message" if struct is description.struct else "Record")
    source = "\n".join(lines) + "\n"
    filename = f"<kproto class {description.name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    cls: type[Message] = namespace[f"C_{description.name}"]
    for struct in [description.struct, *structs]:
        member = namespace[f"C_{struct.name}"]
        member.__struct__ = struct
        member.__module__ = module
        member.__name__ = struct.name
        member.__qualname__ = struct.name if member is cls else f"{description.name}.{struct.name}"
        if member is not cls:
            setattr(cls, struct.name, member)
    cls.__description__ = description
    cls.__codecs__ = {}
    return cls


class _Missing:
    """Stands in a signature for "a new one"."""

    def __repr__(self) -> str:
        return "<new>"


MISSING = _Missing()


def has_shared_default(struct: Struct) -> bool:
    """Whether one default value serves all: only if no list in it could be appended to."""
    return not any(
        field.is_array or (field.struct is not None and not has_shared_default(field.struct)) for field in struct.fields
    )


def shared_default(cls: type[Record]) -> Record:
    """The value structure fields of this class hold when nothing is said."""
    default: Record = cls.__dict__["__default__"]
    return default


def _inner_first(struct: Struct) -> list[Struct]:
    done: dict[str, Struct] = {}

    def walk(one: Struct) -> None:
        for field in one.fields:
            if field.struct is not None and field.struct.name not in done:
                walk(field.struct)
        done[one.name] = one

    walk(struct)
    return list(done.values())


def _class_source(struct: Struct, base: str) -> list[str]:
    name = f"C_{struct.name}"
    names = [field.name for field in struct.fields]
    slots = "".join(f"{field!r}, " for field in names)
    arguments = "".join(f"{field.name}={_argument(field)}, " for field in struct.fields)
    lines = [
        f"class {name}({base}):",
        f"    __slots__ = ({slots})",
        f"    __fields__ = ({slots}'unknown_tags')",
        f"    def __init__(self, *, {arguments}unknown_tags=None):",
    ]
    for field in struct.fields:
        value = field.name
        if _argument(field) == "MISSING":
            value = f"{'[]' if field.is_array else f'C_{field.type}()'} if {value} is MISSING else {value}"
        lines.append(f"        self.{field.name} = {value}")
    lines.append("        self.unknown_tags = unknown_tags")
    if base == "Record" and has_shared_default(struct):
        lines += [f"class D_{struct.name}(SharedDefault, {name}):", "    __slots__ = ()"]
        # The instance is filled as an ordinary one; then it changes class and is closed.
        lines += [f"{name}.__default__ = {name}()", f"{name}.__default__.__class__ = D_{struct.name}"]
    return lines


def _argument(field: Field) -> str:
    if field.default is not None:
        if field.is_array or (field.struct is not None and not has_shared_default(field.struct)):
            return "MISSING"
        if field.struct is not None:
            return f"C_{field.struct.name}.__default__"
    return repr(field.default)

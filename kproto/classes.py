"""Python classes for messages: one plain class with `__slots__` per structure, for all its versions.

Nested structures are attributes of their message's class (`FetchResponse.PartitionData`). The constructor takes
keywords; a field not given holds Kafka's default: arrays start as a list of their own; a structure without arrays is
one shared default value that refuses assignment (a Fetch response would otherwise build three structures per
partition only to find them empty). `copy.copy` of that shared value gives an ordinary one.
"""

import linecache
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

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
    __classes__: ClassVar[Mapping[str, "type[Record]"]]
    __default__: ClassVar["Record"]
    unknown_tags: dict[int, bytes] | None
    __hash__ = None  # type: ignore[assignment]  # mutable values that compare by content

    def __init__(self, **fields: Any) -> None:
        # The first value of its class alone comes by here.
        _write_constructor(type(self))
        self.__init__(**fields)  # type: ignore[misc]

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
    """The class of one message with those of its structures inside. Each call makes new classes.

    Their constructors are written when the first value is made: a broker names some 120 messages while it starts, and
    makes values of a few.
    """
    classes: dict[str, type[Record]] = {}
    cls: type[Message] = _class(description.struct, Message, description.name, module, classes)
    for struct in description.structs():
        setattr(cls, struct.name, _class(struct, Record, f"{description.name}.{struct.name}", module, classes))
    cls.__description__ = description
    cls.__codecs__ = {}
    return cls


R = TypeVar("R", bound=Record)


def _class(struct: Struct, base: type[R], name: str, module: str, classes: dict[str, type[Record]]) -> type[R]:
    fields = tuple(field.name for field in struct.fields)
    namespace = {
        "__slots__": fields,
        "__fields__": (*fields, "unknown_tags"),
        "__struct__": struct,
        "__classes__": classes,
        "__module__": module,
        "__qualname__": name,
    }
    made: type[R] = type(struct.name, (base,), namespace)
    classes[struct.name] = made
    return made


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
    default: Record | None = cls.__dict__.get("__default__")
    if default is None:
        default = cls()
        # Filled as an ordinary one; then it changes class and is closed.
        default.__class__ = type(f"Default{cls.__name__}", (SharedDefault, cls), {"__slots__": ()})
        cls.__default__ = default
    return default


def _write_constructor(cls: type[Record]) -> None:
    struct = cls.__struct__
    arguments = "".join(f"{field.name}={_argument(field)}, " for field in struct.fields)
    lines = [f"def __init__(self, *, {arguments}unknown_tags=None):"]
    namespace: dict[str, Any] = {"MISSING": MISSING}
    for field in struct.fields:
        value = field.name
        if _argument(field) == "MISSING":
            value = f"{'[]' if field.is_array else f'C_{field.type}()'} if {value} is MISSING else {value}"
        lines.append(f"    self.{field.name} = {value}")
        if field.struct is not None:
            nested = cls.__classes__[field.struct.name]
            namespace[f"C_{field.type}"] = nested
            if has_shared_default(field.struct):
                namespace[f"D_{field.type}"] = shared_default(nested)
    lines.append("    self.unknown_tags = unknown_tags")
    source = "\n".join(lines) + "\n"
    filename = f"<kproto class {cls.__qualname__}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    constructor = namespace["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = constructor  # type: ignore[method-assign]


def _argument(field: Field) -> str:
    if field.default is not None:
        if field.is_array or (field.struct is not None and not has_shared_default(field.struct)):
            return "MISSING"
        if field.struct is not None:
            return f"D_{field.struct.name}"
    return repr(field.default)

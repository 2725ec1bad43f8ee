"""Codecs made on first use: (class, version, direction) -> a function whose source is written for exactly that case.

    decode = decoder(FetchRequest, 12);  message, end = decode(buf, offset)
    encode = encoder(FetchResponse, 12); parts = encode(message)

The source is registered in `linecache`, so tracebacks show it; `python -m barnabas.kproto show Fetch 12` prints it.
What makes it fast: no loop over fields (the schema is unrolled, structures inlined), neighbouring fields of fixed width
and the length that follows them share one `struct` call, and values go straight into the slots of objects made without
calling `__init__`. All codecs together would take two seconds, so none is made before it is asked for.

Parts: an encoder returns bytes-like pieces; a `records` value that is no bytes (a slice of a file, anything with a
length) is passed through as a piece of its own, and so are large bytes, to spare the copy.
"""

import linecache
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, Protocol, TypeAlias, TypeVar

from barnabas.kproto.classes import Message
from barnabas.kproto.codec.decode import UNBOUNDED, DecoderSource
from barnabas.kproto.codec.encode import EncoderSource
from barnabas.kproto.errors import EncodeError
from barnabas.kproto.primitives import Buffer

__all__ = ["Part", "SizedPart", "decode", "decoder", "encode", "encoder", "source"]


class SizedPart(Protocol):
    """What stands for records without being bytes: it has a length, and who sends the parts knows how to read it."""

    def __len__(self) -> int: ...


Part: TypeAlias = bytes | bytearray | memoryview | SizedPart

M = TypeVar("M", bound=Message)
Decoded = TypeVar("Decoded", bound=Message, covariant=True)


class Decoder(Protocol[Decoded]):
    """What `decoder` returns."""

    def __call__(self, buf: Buffer, offset: int, room: int = UNBOUNDED, /) -> tuple[Decoded, int]: ...


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The function that reads one message of `cls` at an offset: (buf, offset, room) -> (message, offset behind it).

    `room`: how many elements the message may have, all levels together; `barnabas.kproto.codec.decode` says what
    counts. More raise DecodeError before they are made. Without it there is no bound but the buffer: for peers that are
    trusted.

    `buf` ends with the frame: what lies behind it counts as input. `records` fields become memoryviews over `buf`,
    everything else is copied. Malformed input raises DecodeError from the function; ValueError from here if the
    message has no such version.
    """
    found: Decoder[M] | None = cls.__codecs__.get(("decode", version))
    return found if found is not None else _compile(cls, version, "decode")


def encoder(cls: type[M], version: int) -> Callable[[M], list[Part]]:
    """The function that writes one message of `cls`: message -> parts. It raises EncodeError for what cannot be
    written; ValueError from here as above.
    """
    found: Callable[[M], list[Part]] | None = cls.__codecs__.get(("encode", version))
    return found if found is not None else _compile(cls, version, "encode")


def decode(cls: type[M], version: int, buf: Buffer, offset: int = 0) -> M:
    """One message from `buf`; extra bytes behind it are ignored, as Apache Kafka does."""
    return decoder(cls, version)(buf, offset)[0]


def encode(message: Message, version: int) -> bytes:
    """One message as bytes. Its `records`, if any, must be bytes-like."""
    parts = encoder(type(message), version)(message)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    try:
        return b"".join(parts)  # type: ignore[arg-type]
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__}: records are no bytes here: {error}") from error


def source(cls: type[Message], version: int, direction: str) -> str:
    """The Python source of a codec; `direction` is "decode" or "encode"."""
    return _generate(cls, version, direction)[0]


def _generate(cls: type[Message], version: int, direction: str) -> tuple[str, dict[str, Any]]:
    description = cls.__description__
    if not description.versions.has(version):
        first, last = description.versions
        raise ValueError(f"{description.name} has versions {first} to {last}, not {version}")
    maker = DecoderSource(cls, version) if direction == "decode" else EncoderSource(cls, version)
    return maker.generate(), maker.namespace


def _compile(cls: type[Message], version: int, direction: str) -> Any:
    text, namespace = _generate(cls, version, direction)
    for name, value in namespace.items():
        if isinstance(value, Layout):
            namespace[name] = value.unpack_from if direction == "decode" else value.pack
    filename = f"<kproto {direction} {cls.__name__} v{version}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), namespace)
    function = namespace[direction]
    function.__qualname__ = function.__name__ = f"{direction}_{cls.__name__}_v{version}"
    cls.__codecs__[direction, version] = function
    return function

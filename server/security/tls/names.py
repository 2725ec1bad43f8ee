"""The subject of a certificate as text: RFC 2253 as Java's `X500Principal.getName` writes it.

Most specific first, no blanks between the parts; keywords for the nine types that RFC 2253 names, for others the object
identifier and the value's DER in hex. Where Java writes `CN=a\\=b`, escaping more than RFC 2253 asks for, so does this.
One difference: Java garbles BMPString, which is written as the text that it is here.

Certificates come from OpenSSL, which has verified them; what is not DER all the same raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_TEXT: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "latin-1", 0x1E: "utf-16-be"}
"""String types by tag: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BEFORE_SUBJECT = 4  # serial number, signature's algorithm, issuer, validity


def subject_of(certificate: bytes) -> str:
    """The subject of an X.509 certificate in DER. Raises ValueError."""
    ((_, body, _),) = _values(certificate, 1)
    ((_, signed, _),) = _values(body, 1)
    parts = [part for part in _values(signed) if part[0] != _VERSION]
    if len(parts) <= _BEFORE_SUBJECT:
        raise ValueError("a certificate without a subject")
    return name_text(parts[_BEFORE_SUBJECT][1])


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """The names in a certificate's extension subjectAltName, each as its DER; none without it. Raises ValueError."""
    ((_, body, _),) = _values(certificate, 1)
    ((_, signed, _),) = _values(body, 1)
    for tag, content, _ in _values(signed):
        if tag != _EXTENSIONS:
            continue
        ((_, extensions, _),) = _values(content, 1)
        for _, extension, _ in _values(extensions):
            (_, number, _), *_, (_, value, _) = _values(extension)
            if _identifier(number) == _ALTERNATIVE_NAMES:
                ((_, names, _),) = _values(value, 1)
                return frozenset(whole for _, _, whole in _values(names))
    return frozenset()


def name_text(names: bytes) -> str:
    """A name: what lies in its outer SEQUENCE. Raises ValueError."""
    parts = []
    for tag, relative, _ in _values(names):
        _expect(tag, _SET)
        parts.append("+".join(_attribute(attribute) for attribute in _values(relative)))
    return ",".join(reversed(parts))


def _attribute(attribute: tuple[int, bytes, bytes]) -> str:
    _expect(attribute[0], _SEQUENCE)
    (kind, number, _), (tag, value, whole) = _values(attribute[1], 2)
    _expect(kind, _OBJECT_IDENTIFIER)
    identifier = _identifier(number)
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or tag not in _TEXT:
        return f"{keyword or identifier}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(_TEXT[tag]))}"


def _escaped(text: str) -> str:
    core = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(core)
    written = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in core)
    return "\\ " * before + written + "\\ " * after


def _identifier(number: bytes) -> str:
    """An object identifier in numbers."""
    arcs, arc = [], 0
    for byte in number:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs:
        raise ValueError("an empty object identifier")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _values(data: bytes, count: int | None = None) -> list[tuple[int, bytes, bytes]]:
    """Tag, content and whole of the DER values that lie behind each other: all of them, or the first `count`."""
    found = list(_each(data, count))
    if count is not None and len(found) != count:
        raise ValueError(f"{len(found)} values instead of {count}")
    return found


def _each(data: bytes, count: int | None) -> Iterator[tuple[int, bytes, bytes]]:
    position = 0
    while position < len(data) and count != 0:
        start = position
        try:
            tag, length = data[position], data[position + 1]
        except IndexError:
            raise ValueError("a value without a length") from None
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise ValueError("a value that is longer than what holds it")
        yield tag, data[position:end], data[start:end]
        position = end
        count = None if count is None else count - 1


def _expect(tag: int, wanted: int) -> None:
    if tag != wanted:
        raise ValueError(f"a value of type {tag:#x} instead of {wanted:#x}")

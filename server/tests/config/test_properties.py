"""The properties parser against java.util.Properties' rules, one row per rule."""

import pytest

from barnabas.server.config.properties import PropertiesError, decode_properties, parse_properties

CASES = {
    "plain": ("a=b", [("a", "b")]),
    "colon": ("a:b", [("a", "b")]),
    "blank separates": ("a b", [("a", "b")]),
    "blanks around the separator": ("a \t=\f b", [("a", "b")]),
    "only one separator": ("a==b", [("a", "=b")]),
    "separator after blanks": ("a = : b", [("a", ": b")]),
    "blanks at the end stay": ("a=b  ", [("a", "b  ")]),
    "leading blanks": ("  \ta=b", [("a", "b")]),
    "key alone": ("a", [("a", "")]),
    "empty value": ("a=", [("a", "")]),
    "empty key": ("=b", [("", "b")]),
    "comments and empty lines": ("# a=b\n ! c=d\n\n   \ne=f", [("e", "f")]),
    "hash inside a value": ("a=b#c", [("a", "b#c")]),
    "continuation": ("a=b\\\n   c", [("a", "bc")]),
    "continuation of the key": ("a\\\n  b=c", [("ab", "c")]),
    "comment sign in a continuation is data": ("a=b\\\n#c", [("a", "b#c")]),
    "continuation after CRLF": ("a=b\\\r\n  c\r\nd=e", [("a", "bc"), ("d", "e")]),
    "old Mac line ends": ("a=b\rc=d", [("a", "b"), ("c", "d")]),
    "two backslashes do not continue": ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
    "three backslashes do": ("a=b\\\\\\\nc=d", [("a", "b\\c=d")]),
    "continuation into the end of the file": ("a=b\\", [("a", "b")]),
    "continuation into an empty line ends there": ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
    "comment lines do not continue": ("# a\\\nb=c", [("b", "c")]),
    "escaped separators in the key": ("a\\:b\\=c\\ d=e", [("a:b=c d", "e")]),
    "letter escapes": ("a=\\t\\n\\r\\f", [("a", "\t\n\r\f")]),
    "other escapes stand for themselves": ("a=\\q\\\\\\#", [("a", "q\\#")]),
    "unicode": ("gr\\u00fc\\u00DF=\\u20ac", [("grüß", "€")]),
    "surrogate pair": ("a=\\ud83d\\ude00", [("a", "😀")]),
    "repeated keys are all told": ("a=1\na=2", [("a", "1"), ("a", "2")]),
    "listener list": (
        "listeners=PLAINTEXT://127.0.0.1:9092,\\\n    INTERNAL://[::1]:9093",
        [("listeners", "PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9093")],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_rules(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(entry.key, entry.value) for entry in parse_properties(text)] == expected


def test_line_numbers_are_of_the_first_line() -> None:
    assert [e.line for e in parse_properties("# one\na=b\\\n c\n\nd=e")] == [2, 5]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "\\u=b"])
def test_bad_unicode_escape_names_the_line(text: str) -> None:
    with pytest.raises(PropertiesError, match="line 2") as caught:
        parse_properties("x=y\n" + text)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("ü".encode(), "ü"),
        ("ü".encode("latin-1"), "ü"),
        (b"\xef\xbb\xbfa=b", "a=b"),
    ],
)
def test_encodings(data: bytes, text: str) -> None:
    assert decode_properties(data) == text

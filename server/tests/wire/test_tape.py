"""The file of a recording."""

from __future__ import annotations

import pytest

from barnabas.server.wire import tape
from barnabas.server.wire.tape import BadTape, Entry


def test_there_and_back() -> None:
    entries = [
        Entry(0.0, 1, tape.OPENED, text="b:9092"),
        Entry(0.000125, 1, tape.REQUEST, b"\0\xffframe"),
        Entry(0.5, 1, tape.ANSWER, b""),
        Entry(0.6, 2, tape.LEFT_OUT, text="SaslAuthenticate"),
        Entry(1.0, 1, tape.CLOSED, text="client"),
    ]
    text = tape.head("b:9092") + "".join(map(tape.line, entries))
    assert list(tape.read(text.splitlines())) == entries


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "it is empty"),
        (["{}"], "no recording"),
        (["nonsense"], "line 1 is not JSON"),
        (['{"tape": "barnabas wire", "version": 2}'], "its version is 2"),
        ([tape.head("b:1"), "[]"], "line 2 is not an object"),
        ([tape.head("b:1"), '{"at": 0, "connection": 1}'], "line 2 is no entry"),
        ([tape.head("b:1"), '{"at": 0, "connection": 1, "request": "", "answer": ""}'], "line 2 is no entry"),
        ([tape.head("b:1"), '{"at": "x", "connection": 1, "opened": ""}'], "line 2 is no entry"),
        ([tape.head("b:1"), '{"at": 0, "connection": 1, "opened": 5}'], "opened is not text"),
        ([tape.head("b:1"), '{"at": 0, "connection": 1, "request": "%"}'], "request is not base64"),
    ],
)
def test_what_is_no_tape(lines: list[str], why: str) -> None:
    with pytest.raises(BadTape, match=why):
        list(tape.read(lines))

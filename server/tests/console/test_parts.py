"""The console's parts without a cluster: names in paths, fields, hosts, visitors, audit, JSON paths, bytes shown."""

from __future__ import annotations

import json
import logging
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.server.client.offsets import Span
from barnabas.server.client.reading import Backward, BatchFacts, Read
from barnabas.server.console.doors import NoEntry, PasswordDoor
from barnabas.server.console.search.filters import Filter
from barnabas.server.console.search.json_path import JsonPath
from barnabas.server.console.search.places import Beginning, parse_positions, written
from barnabas.server.console.search.shown import dump, shown, typed
from barnabas.server.console.web.audit import Audit
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.guard import is_known_host, is_of_this_origin
from barnabas.server.console.web.segments import named, segment
from barnabas.server.console.web.visitors import LOGIN_S, LOGINS_MAX, PAUSE_S, TRIES, Visitors

# -- names in paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("orders", "orders"),
        ("a.b_c-D9", "a.b_c-D9"),
        ("", "~"),
        (".", "~2E"),
        ("..", "~2E~2E"),
        ("a/b", "a~2Fb"),
        ("~", "~7E"),
        ("é", "~C3~A9"),
        ("<x>", "~3Cx~3E"),
    ],
)
def test_names_in_paths(name: str, part: str) -> None:
    assert segment(name) == part
    assert named(part) == name


@given(st.text())
@settings(deadline=None)
def test_every_name_comes_back(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    part = segment(name)
    assert named(part) == name
    assert part not in ("", ".", "..")
    assert set(part) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~")


def test_names_that_were_typed() -> None:
    assert named("my group") == "my group"
    for bad in ("a~", "~zz", "a~2"):
        with pytest.raises(ValueError, match="hexadecimal"):
            named(bad)
    with pytest.raises(ValueError):
        named("~FF")  # no name of Kafka's


# -- fields ------------------------------------------------------------------------------------------------------------


def test_fields() -> None:
    fields = Fields.parse(b"a=1&b=+x+&c=&a=2&n=1%2C200&d=one%0D%0Atwo&u=%C3%A9")
    assert fields.text("a") == "1"
    assert fields.text("b") == "x"
    assert fields.raw("b") == " x "
    assert fields.raw("d") == "one\ntwo"
    assert fields.many("a") == ["1", "2"]
    assert fields.many("c") == []
    assert fields.has("c")
    assert not fields.has("z")
    assert fields.number("n", 0) == 1200
    assert fields.number("c", 7) == 7
    assert fields.raw("u") == "é"
    assert fields.choice("z", ("x", "y")) == "x"
    for wrong in (
        lambda: fields.number("b", 0),
        lambda: fields.number("n", 0, most=10),
        lambda: fields.choice("a", ("x", "y")),
        lambda: Fields.parse(b"&".join([b"a=1"] * 30_000)),
        lambda: Fields.parse(b"a=%FF"),
        lambda: Fields.parse(b"\xff=1"),
    ):
        with pytest.raises(Unclear):
            wrong()


# -- guards ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True),
        ("localhost:9999", True),
        ("LOCALHOST.", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("10.0.0.7", True),
        ("kafka.example", True),
        ("Kafka.Example:80", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("user@127.0.0.1", False),
        ("127.0.0.1/", False),
        ("", False),
        ("localhost:port", False),
        ("[evil]", False),
    ],
)
def test_hosts(host: str, is_known: bool) -> None:
    assert is_known_host(host, {"kafka.example"}) is is_known


def test_origins() -> None:
    assert is_of_this_origin({"host": "a:1"})
    assert is_of_this_origin({"host": "a:1", "origin": "http://a:1"})
    assert is_of_this_origin({"host": "a:1", "sec-fetch-site": "same-origin", "origin": "null"})
    assert not is_of_this_origin({"host": "a:1", "origin": "http://b:1"})
    assert not is_of_this_origin({"host": "a:1", "origin": "null"})
    assert not is_of_this_origin({"host": "a:1", "sec-fetch-site": "cross-site"})
    assert not is_of_this_origin({"host": "a:1", "sec-fetch-site": "same-site", "origin": "http://a:1"})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def visitors(*, must_log_in: bool = False) -> tuple[Visitors, Clock]:
    clock = Clock()
    return Visitors(Random(1).randbytes, clock, "c", must_log_in=must_log_in), clock


def cookie_of(made: Visitors, visitor: Any) -> str:
    return made.cookie(visitor).partition(";")[0]


def test_a_visitor_is_known_by_a_signed_cookie() -> None:
    made, _ = visitors()
    first = made.of("")
    assert (first.is_new, first.is_in) == (True, True)
    assert not made.is_token(first, first.token)  # it has not been given a cookie yet
    again = made.of(f"x=1; {cookie_of(made, first)}")
    assert (again.id, again.is_new) == (first.id, False)
    assert made.is_token(again, first.token)
    assert not made.is_token(again, made.of("").token)
    assert "HttpOnly; SameSite=Strict" in made.cookie(first)
    for forged in ("c=abc.def", "c=abc", "c=.", "c", 'c="', f"{cookie_of(made, first)}x", "c=\u00e9.\u00e9"):
        assert made.of(forged).is_new, forged
    other = Visitors(Random(2).randbytes, Clock(), "c")
    assert other.of(cookie_of(made, first)).is_new


def test_a_log_in_makes_a_new_visitor() -> None:
    made, clock = visitors(must_log_in=True)
    stranger = made.of("")
    stranger = made.of(cookie_of(made, stranger))
    assert not stranger.is_in
    known = made.admit(stranger, "here", "eve", held := object())
    assert known.id != stranger.id
    assert made.held(known) is held
    assert made.held(stranger) is None
    assert made.of(cookie_of(made, known))[3:] == (True, "eve")
    assert not made.of(cookie_of(made, stranger)).is_in  # whoever has the old cookie is not in with it
    for _ in range(2):
        clock.now += LOGIN_S - 1
        assert made.of(cookie_of(made, known)).is_in  # and counts from here on
    assert made.take_gone() == []
    clock.now += LOGIN_S + 1
    assert made.take_gone() == [held]
    assert not made.of(cookie_of(made, known)).is_in
    again = made.admit(stranger, "here", "eve", held)
    made.log_out(again)
    made.log_out(again)
    assert not made.of(cookie_of(made, again)).is_in
    assert made.take_gone() == [held]
    late = made.admit(stranger, "here", "eve", held)
    clock.now += LOGIN_S + 1
    assert not made.of(cookie_of(made, late)).is_in
    assert made.take_gone() == [held]


def test_guessing_takes_time() -> None:
    made, clock = visitors(must_log_in=True)
    for _ in range(TRIES):
        assert made.may_try("there")
    assert made.must_wait("there")
    assert not made.may_try("there")
    assert made.may_try("elsewhere")
    clock.now += PAUSE_S
    assert made.may_try("there")
    assert not made.may_try("there")
    clock.now += PAUSE_S
    assert made.may_try("there")
    made.admit(made.of(""), "there", "eve")
    assert not made.must_wait("there")


def test_log_ins_are_bounded() -> None:
    made, _ = visitors(must_log_in=True)
    every = [made.admit(made.of(""), "here", "eve", number) for number in range(LOGINS_MAX + 1)]
    assert not made.of(cookie_of(made, every[0])).is_in
    assert made.of(cookie_of(made, every[-1])).is_in
    assert made.take_gone() == [0]


async def test_the_consoles_password() -> None:
    door = PasswordDoor("open sesame", Random(1).randbytes)
    assert (await door.enter("", "open sesame")).desk is None
    for wrong in ("", "open", "open sesame ", "\udcff"):
        with pytest.raises(NoEntry, match="wrong"):
            await door.enter("", wrong)


def test_the_audit_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    with caplog.at_level(logging.INFO, "barnabas.console.audit"):
        audit.done("a\nb", "127.0.0.1", "created topic x\n#2 root from 127.0.0.1: deleted topic y")
        audit.refused("a", "127.0.0.1", "topics.delete", {"topic": "x\n\x1b[2J"}, 403, "no\rno")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("#1 a\\nb from 127.0.0.1: created topic x\\n#2 root")
    assert lines[1] == '#2 a from 127.0.0.1: topics.delete {"topic": "x\\n\\u001b[2J"} was refused (403): no\\rno'
    assert all(line.isprintable() for line in lines)


# -- filters -----------------------------------------------------------------------------------------------------------

DOCUMENT = {
    "user": {"id": 17, "name": "Eve", "tags": ["a", "b"], "x y": True, "none": None},
    "items": [{"price": 3}, {"price": 12.5}, {"price": "12"}],
    "deep": {"er": {"id": "z"}},
}


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("$.user", True),
        ("$.nobody", False),
        ("$.user.none", True),
        ("user.id == 17", True),
        ("$.user.id = 17.0", True),
        ("$.user.id == '17'", False),
        ("$.user.id != 17", False),
        ("$.user.id >= 17", True),
        ("$.user.id > 17", False),
        ("$.user.id < 100", True),
        ("$.user.name == Eve", True),
        ('$.user.name == "Eve"', True),
        ("$.user.name ~ ve", True),
        ("$.user.name ~ VE", False),
        ("$.user.name < F", True),
        ("$.user.name > 3", False),
        ('$.user["x y"] == true', True),
        ("$.user['x y'] == 1", False),
        ("$.user.none == null", True),
        ("$.user.tags[0] == a", True),
        ("$.user.tags[-1] == b", True),
        ("$.user.tags[2]", False),
        ("$.user.tags[*] == b", True),
        ("$.items[*].price > 12", True),
        ("$.items[*].price == 12", False),
        ('$.items[*].price == "12"', True),
        ("$..id == z", True),
        ("$..price < 4", True),
        ("$..nobody", False),
        ("$.user ~ Eve", True),
        ("$.user.* == Eve", True),
        ("$ ~ price", True),
    ],
)
def test_json_paths(path: str, holds: bool) -> None:
    assert JsonPath(path).is_in(json.dumps(DOCUMENT).encode()) is holds


@pytest.mark.parametrize("path", ["", "$", "$.", "$[", "$.a[b]", "$.a ==", '$["\\u12"]', "$.a b", "x" * 600, "$.a[]"])
def test_json_paths_that_are_none(path: str) -> None:
    with pytest.raises(ValueError):
        JsonPath(path)


@pytest.mark.parametrize("data", [None, b"", b"no", b"\xff", b"[" * 100_000, b"1" * 2_000_000, b'{"a": NaN}'])
def test_json_paths_take_any_bytes(data: bytes | None) -> None:
    assert JsonPath("$.b").is_in(data) is False


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)), st.text())
@settings(max_examples=200, deadline=None)
def test_json_paths_never_fail(document: Any, text: str) -> None:
    try:
        path = JsonPath(text)
    except ValueError:
        return
    path.is_in(json.dumps(document).encode())


def read(value: bytes | None = b"v", key: bytes | None = b"k", headers: Any = (), offset: int = 0) -> Read:
    return Read("t", 0, offset, 1, key, value, headers, BatchFacts())


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        ("", True),
        ("text=alu", True),
        ("text=ke", True),
        ("text=trac", False),  # a header's name is not looked at
        ("text=abc", True),
        ("text=nothing", False),
        ("key=ke", True),
        ("key=value", False),
        ("header=trace", True),
        ("header=trace%3Dab", True),
        ("header=trace%3Dx", False),
        ("header=other", False),
        ("text=value&key=zz", False),
    ],
)
def test_filters(query: str, holds: bool) -> None:
    wanted = Filter.of(Fields.parse(query.encode())).predicate()
    record = read(b"a value", b"a key", (("trace", b"abc"), ("none", None)))
    assert (wanted is None or wanted(record)) is holds
    assert (wanted is None) is (query == "")


def test_a_filter_of_json_and_text() -> None:
    wanted = Filter.of(Fields.parse(b"json=%24.a+%3D%3D+1&text=x")).predicate()
    assert wanted is not None
    assert wanted(read(b'{"a": 1, "b": "x"}'))
    assert not wanted(read(b'{"a": 1}'))
    assert not wanted(read(None, None))
    with pytest.raises(Unclear, match="json: "):
        Filter.of(Fields.parse(b"json=%24%5B")).predicate()
    with pytest.raises(Unclear, match="1000"):
        Filter.of(Fields.parse(f"key={'x' * 1001}".encode()))


# -- places ------------------------------------------------------------------------------------------------------------


def test_positions() -> None:
    assert parse_positions("") is None
    assert parse_positions("0:12,3:4") == {0: 12, 3: 4}
    assert written({("t", 3): 4, ("t", 0): 12}) == "0:12,3:4"
    for bad in ("0", "a:1", "0:-1", "0:1,", "0:1;1:2"):
        with pytest.raises(Unclear):
            parse_positions(bad)


def test_beginnings() -> None:
    assert Beginning.of(Fields.parse(b"")).is_backward
    assert Beginning.of(Fields.parse(b"from=offset&at=5&go=0:1")) == Beginning("offset", "5", {0: 1})
    for bad in ("from=offset", "from=time", "from=group", "from=somewhere"):
        with pytest.raises(Unclear):
            Beginning.of(Fields.parse(bad.encode()))


@pytest.mark.parametrize("seed", range(40))
def test_going_on_backwards_gives_each_record_once(seed: int) -> None:
    """A model: whatever filter and size, the steps together are all records that are wanted, from new to old."""
    rng = Random(seed)
    count, partitions = rng.choice([1, 2, 5, 20]), rng.randint(1, 4)
    logs = {
        ("t", index): [
            Read("t", index, offset, rng.randrange(50), None, b"%d" % rng.randrange(4), (), BatchFacts())
            for offset in range(rng.randrange(40))
            if rng.random() < 0.8  # compacted
        ]
        for index in range(partitions)
    }
    ends = {place: (log[-1].offset + 1 if log else 0) for place, log in logs.items()}
    starts = dict.fromkeys(logs, 0)
    seen: list[Read] = []
    for _ in range(400):
        spans = {place: Span(starts[place], end) for place, end in ends.items() if end > 0}
        if not spans:
            break
        bytes_max = rng.choice([1, 3, 1000])
        search = Backward(spans, count, wanted=lambda record: record.value == b"1", bytes_max=bytes_max)
        while windows := search.windows():
            records = [
                record
                for place, span in windows.items()
                for record in logs[place]
                if span.start <= record.offset < span.end
            ]
            if not search.shrink(windows, len(records), len(records)):
                search.found(windows, [each for each in records if search.is_wanted(each)], len(records))
        step = search.result()[::-1]
        older = search.older()
        assert len(step) <= count
        assert all(older[place] <= span.end for place, span in spans.items())
        seen += step
        ends = {place: older[place] for place in spans}
    else:
        raise AssertionError(f"seed {seed}: it never ends")
    for place, log in logs.items():
        mine = [record.offset for record in seen if record.partition == place[1]]
        assert mine == [record.offset for record in reversed(log) if record.value == b"1"], f"seed {seed}"


# -- bytes shown -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "form", "kind", "text"),
    [
        (None, "auto", "null", ""),
        (b"", "auto", "text", ""),
        (b"hello", "auto", "text", "hello"),
        (b'{"a":1}', "auto", "json", '{"a":1}'),
        (b"{broken", "auto", "text", "{broken"),
        (b"17", "auto", "text", "17"),
        (b"17", "json", "json", "17"),
        (b"no", "json", "text", "no"),
        (b"\xff\x00", "auto", "hex", "ff 00"),
        (b"a\x00b", "auto", "hex", "61 00 62"),
        (b"\xffa", "text", "text", "\\xffa"),
        (b"hi", "hex", "hex", "68 69"),
        (b"[" * 5000, "auto", "text", "[" * 100),
    ],
)
def test_bytes_are_shown(data: bytes | None, form: str, kind: str, text: str) -> None:
    found = shown(data, form, 100)
    assert (found["kind"], found["text"]) == (kind, text)
    assert found["size"] == len(data or b"")
    assert found["is_cut"] is (len(data or b"") > 100)


def test_long_bytes_are_cut() -> None:
    assert shown(b"x" * 100, "auto", 100)["is_cut"] is False
    assert shown(b"x" * 101, "auto", 100) == {"kind": "text", "text": "x" * 100, "size": 101, "is_cut": True}
    for data in ("é".encode() * 100_000, b"x" + "é".encode() * 100_000):
        found = shown(data, "auto", 100)
        assert (found["kind"], len(found["text"]), found["is_cut"]) == ("text", 100, True)
    found = shown(b"\x00\xff" * 100_000, "auto", 99)
    assert (found["kind"], found["text"], found["is_cut"]) == ("hex", ("00 ff " * 17)[: 33 * 3 - 1], True)
    pretty = shown(b'{"a":[1,2]}', "auto", 1000, is_pretty=True)
    assert pretty["text"] == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    assert dump(bytes(range(65, 82))).splitlines() == [
        "00000000  41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP",
        "00000010  51                                               Q",
    ]


@given(st.none() | st.binary(), st.sampled_from(["auto", "text", "json", "hex"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_bytes_can_be_shown(data: bytes | None, form: str, is_pretty: bool) -> None:
    found = shown(data, form, 12, is_pretty=is_pretty)
    assert isinstance(found["text"], str)
    json.dumps(found)


@given(st.none() | st.binary() | st.text().map(str.encode))
@settings(deadline=None)
def test_what_was_typed_comes_back(data: bytes | None) -> None:
    from base64 import b64decode

    way, text = typed(data)
    assert "\r" not in text
    back = None if way == "null" else text.encode() if way == "text" else b64decode(text)
    assert back == data

"""`barnabas topic`, `produce`, `consume`, `group`: the commands in this process, with a broker in a thread."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.server.cli import main as cli
from barnabas.server.cli.client import client_arguments, group_commands
from barnabas.server.cli.client.record_texts import hex_format, text_format
from barnabas.server.cli.client.tables import print_table, printable
from barnabas.server.client.batching import ToSend
from barnabas.server.client.groups.resets import Reset, To
from barnabas.server.client.offsets import Span
from barnabas.server.client.reading import BatchFacts, Read
from barnabas.server.client.texts.amounts import counted, size
from barnabas.server.client.texts.record_json import from_json, json_format
from barnabas.server.client.texts.when import Log, Place, duration, outside, parse_place, time_here, time_utc
from barnabas.server.testing import broker_thread
from barnabas.server.tests.test_layers import ROOT


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_thread(num_partitions="2") as address:
        yield address


class Calls:
    """Calls the command line as if in a process of its own."""

    def __init__(self, bootstrap: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
        self._bootstrap = bootstrap
        self._patched = monkeypatch
        self._captured = capfdbinary

    def __call__(self, line: str, stdin: bytes = b"", code: int = 0, **environ: str) -> tuple[str, str]:
        self._patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        patience = ["--timeout", "60"]
        ended = cli.main([*line.split(" "), *patience], {"BARNABAS_BOOTSTRAP": self._bootstrap, **environ})
        out, err = self._captured.readouterr()
        assert ended == code, (ended, out, err)
        return out.decode(), err.decode()

    def out(self, line: str, stdin: bytes = b"") -> str:
        return self(line, stdin)[0]

    def json(self, line: str) -> Any:
        return json.loads(self.out(f"{line} --json"))


@pytest.fixture
def call(bootstrap: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Calls:
    return Calls(bootstrap, monkeypatch, capfdbinary)


@pytest.fixture
def topic(call: Calls, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())
    call(f"topic create {name} --partitions 2")
    return name


@pytest.fixture(scope="module")
def json_topic(bootstrap: str) -> str:
    assert cli.main(["topic", "create", "json-lines", "--timeout", "60"], {"BARNABAS_BOOTSTRAP": bootstrap}) == 0
    return "json-lines"


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics(call: Calls) -> None:
    out, _ = call("topic create life other-life --replicas 1 --set retention.ms=5000")
    assert out == "topic life was created with 2 partitions\ntopic other-life was created with 2 partitions\n"
    assert call("topic create life --if-not-exists") == ("topic life exists already\n", "")
    _, err = call("topic create life new-life", code=1)
    assert err == "barnabas: topic life was not created: Topic 'life' already exists (TOPIC_ALREADY_EXISTS)\n"
    assert call.out("topic list *life").splitlines() == [
        "TOPIC       PARTITIONS  REPLICAS",
        "life                 2         1",
        "new-life             2         1",
        "other-life           2         1",
    ]
    call("produce life", b"a\nb\n")
    assert re.fullmatch(
        r"TOPIC  PARTITIONS  REPLICAS  RECORDS +SIZE\nlife +2 +1 +2 +\d+ B\n", call.out("topic list -l life")
    )
    described = call.out("topic describe life")
    assert described.startswith("life: 2 partitions, 1 replica, 2 records, ")
    assert described.endswith("\nretention.ms=5000\n")
    assert "retention.bytes=-1  # default\n" in call.out("topic describe life --all")
    out, err = call("topic describe life no-life", code=1)
    assert out.startswith("life: ")
    assert err == (
        "barnabas: topic no-life: there is no such topic, or it may not be seen (UNKNOWN_TOPIC_OR_PARTITION)\n"
    )
    assert call.out("topic alter life --partitions 3 --unset retention.ms --set cleanup.policy=compact") == (
        "topic life has 3 partitions\ntopic life was changed\n"
    )
    (whole,) = call.json("topic describe life")
    assert [each["partition"] for each in whole["partitions"]] == [0, 1, 2]
    assert whole["settings"]["cleanup.policy"]["value"] == "compact"
    assert whole["settings"]["retention.ms"]["source"] == "default"
    _, err = call("topic alter life --set cleanup.policy=maybe", code=1)
    assert err.startswith("barnabas: topic life was not changed: ")
    assert call("topic delete life no-life", code=1)[0] == "topic life was deleted\n"


def test_an_unknown_setting_is_not_taken_back(call: Calls, topic: str) -> None:
    refused = f"barnabas: topic {topic} was not changed: Unknown topic setting: nosuch.key (INVALID_CONFIG)\n"
    for line in ("--set nosuch.key=1", "--unset nosuch.key", "--unset nosuch.key --unset retention.ms --partitions 3"):
        out, err = call(f"topic alter {topic} {line}", code=1)
        assert err == refused, line
        assert not out
    assert len(call.json(f"topic describe {topic}")[0]["partitions"]) == 2
    assert call.out(f"topic alter {topic} --unset retention.ms") == f"topic {topic} was changed\n", "not set, but known"
    _, err = call("topic alter no-such --unset retention.ms", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in err


def test_what_is_not_there_is_said(call: Calls) -> None:
    pattern = "no-such-*"
    assert call(f"topic list {pattern}") == ("", f"no topic is called {pattern}\n")
    assert call(f"group list -l {pattern}") == ("", f"no group is called {pattern}\n")
    assert call(f"topic list {pattern} --json") == ("[]\n", "")
    assert call(f"group list {pattern} --json") == ("[]\n", "")


def test_internal_topics_are_shown_when_asked_for(call: Calls, topic: str) -> None:
    call(f"group reset internal --topic {topic} --to earliest --yes")
    assert "__consumer_offsets" not in call.out("topic list")
    assert "__consumer_offsets" in call.out("topic list --internal")
    assert [each["internal"] for each in call.json("topic list __consumer* --internal")] == [True]


# -- records -----------------------------------------------------------------------------------------------------------


def test_the_newest_ten_and_what_else(call: Calls, topic: str) -> None:
    assert call(f"consume {topic}") == ("", f"topic {topic}: no record\n")
    _, err = call(f"produce {topic} -p 0", b"".join(b"%d\n" % number for number in range(30)))
    assert err == f"30 records sent to {topic}\n"
    assert call.out(f"consume {topic}").split() == [str(number) for number in range(20, 30)]
    assert call.out(f"consume {topic} -n 3").split() == ["27", "28", "29"]
    assert call.out(f"consume {topic} --from earliest").split() == [str(number) for number in range(30)]
    assert call.out(f"consume {topic} --from 12 -n 3").split() == ["12", "13", "14"]
    assert call.out(f"consume {topic} --from 12 --from 28").split() == ["28", "29"]
    assert call.out(f"consume {topic} --from 1h").count("\n") == 30
    assert call.out(f"consume {topic} --filter 9").split() == ["9", "19", "29"]
    assert call.out(f"consume {topic} --filter 9 -n 1").split() == ["29"]
    assert call(f"consume {topic} --filter nobody") == ("", f"topic {topic}: no record with 'nobody'\n")
    assert call(f"consume {topic} -p 1")[1] == f"topic {topic}: no record\n"
    assert call(f"consume {topic} --from 2099-01-01") == ("", f"topic {topic}: no record from there on\n")
    assert call.out(f"consume {topic} --follow --from earliest -n 4").split() == ["0", "1", "2", "3"]


def test_who_follows_ends_when_nobody_reads(call: Calls, bootstrap: str, topic: str) -> None:
    """`barnabas consume TOPIC -f | head -1`, although no other record comes."""
    call(f"produce {topic} -p 0", b"a\n")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from barnabas.server.cli import main; main.run()"
    follow = [sys.executable, "-P", "-c", code, "consume", topic, "-f", "-b", bootstrap, "--timeout", "60"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": "/bin"}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == b"a\n"
            process.stdout.close()
            assert process.wait(timeout=60) == 0
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_keys_headers_and_places(call: Calls, topic: str) -> None:
    call(f"produce {topic} --key-separator : -H source=shop -H x=", b"alice:1\nbob:2:3\n:4\n")
    found = [json.loads(line) for line in call.out(f"consume {topic} --from earliest --json").splitlines()]
    assert {(each["key"], each["value"]) for each in found} == {("alice", "1"), ("bob", "2:3"), ("", "4")}
    assert all(each["headers"] == [{"name": "source", "value": "shop"}, {"name": "x", "value": ""}] for each in found)
    assert call.out(f"consume {topic} --filter shop --filter bob --key") == "bob\t2:3\n"
    assert re.fullmatch(
        rf"{topic}-[01]@\d+ \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}\talice\t1\n",
        call.out(f"consume {topic} --filter alice --key --meta"),
    )
    _, err = call(f"produce {topic} --key-separator :", b"good:1\nbad\n", code=2)
    assert "line 2 has no ':' after a key" in err


def test_values_as_they_are(call: Calls, topic: str, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\x00\xff\n{}")
    call(f"produce {topic} --key k --file {body} --compression gzip")
    call(f"produce {topic} --key k --tombstones", b"\n")
    (whole,) = [json.loads(line) for line in call.out(f"consume {topic} --json --from earliest -n 1").splitlines()]
    assert whole["value_base64"] == "AP8Ke30="
    assert "value" not in whole
    found = [json.loads(line) for line in call.out(f"consume {topic} --json").splitlines()]
    assert found[1]["value"] is None
    assert "key: 1 bytes" in call.out(f"consume {topic} --format hex")
    assert "value: null" in call.out(f"consume {topic} --format hex")
    assert "value: 5 bytes\n    00000000  00 ff 0a 7b 7d" in call.out(f"consume {topic} --format hex")
    _, err = call(f"produce {topic} --file {tmp_path / 'nothing'}", code=2)
    assert err == f"barnabas: {tmp_path / 'nothing'}: no such file or directory\n"


def test_json_in_and_out(call: Calls, topic: str) -> None:
    call(
        f"produce {topic} --json",
        b'{"key": "k", "value": {"a": [1, "\xc3\xa9"]}, "timestamp": 1000, "headers": {"h": "v"}}\n',
    )
    line = call.out(f"consume {topic} --json")
    document = json.loads(line)
    assert (document["timestamp"], document["time"]) == (1000, "1970-01-01T00:00:01.000Z")
    assert json.loads(document["value"]) == {"a": [1, "é"]}
    call(f"produce {topic} --json", line.encode())
    first, second = [json.loads(each) for each in call.out(f"consume {topic} --json").splitlines()]
    assert {name: first[name] for name in ("key", "value", "headers", "timestamp")} == {
        name: second[name] for name in ("key", "value", "headers", "timestamp")
    }
    call(f"produce {topic} --json", b'{"value": null, "key": null}\n')
    assert json.loads(call.out(f"consume {topic} --json -n 1"))["value"] is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"total": 7}',
            "no field value or value_base64 (have: total); to send JSON as the value leave --json out",
        ),
        ("{}", "no field value or value_base64 (have: none); to send JSON as the value leave --json out"),
        ('{"key": "k"}', "no field value or value_base64 (have: key); to send JSON as the value leave --json out"),
        (
            '{"value": 1, "heders": [], "x": 1}',
            "unknown field heders, x; known are topic, partition, offset, timestamp, time, key, key_base64, value, "
            "value_base64, headers",
        ),
        ('{"value": "a", "value_base64": "YQ=="}', "value and value_base64 both; which is meant?"),
        ('{"value": null, "value_base64": "YQ=="}', "value and value_base64 both; which is meant?"),
        ('{"value": "a", "key": "a", "key_base64": "YQ=="}', "key and key_base64 both; which is meant?"),
        ('{"value_base64": "*"}', "value_base64 is no base64"),
        ('{"value_base64": null}', "value_base64 must be text"),
        ('{"value": 1, "key_base64": 1}', "key_base64 must be text"),
        ('{"value": 1, "headers": [1]}', "headers must have names"),
        ('{"value": 1, "headers": 1}', "headers must be a list, or an object"),
        ('{"value": 1, "headers": [{"name": "h"}]}', "no field value or value_base64 in header h"),
        (
            '{"value": 1, "headers": [{"name": "h", "value": 1, "v": 1}]}',
            "unknown field v in header h; known are name, value, value_base64",
        ),
        ('{"value": 1, "timestamp": -1}', "timestamp must be milliseconds"),
        ('{"value": 1, "timestamp": true}', "timestamp must be milliseconds"),
        ("[]", "an object is expected, not a list; to send JSON as the value leave --json out"),
        ("7", "an object is expected, not a number; to send JSON as the value leave --json out"),
        ("null", "an object is expected, not null; to send JSON as the value leave --json out"),
        (
            '{"value": }',
            "no JSON from character 11 on: a value is expected there; to send JSON as the value leave --json out",
        ),
        (
            "hello",
            "no JSON from character 1 on: a value is expected there; to send JSON as the value leave --json out",
        ),
        (
            '{"value": 1} {}',
            "no JSON from character 14 on: the record ends before that, and a line is one record; "
            "to send JSON as the value leave --json out",
        ),
        (" ", "a record is expected, and the line is empty"),
        pytest.param("[" * 100_000, "lists and objects are nested too deeply", id="deep"),
    ],
)
def test_what_is_no_record_in_json(call: Calls, json_topic: str, line: str, said: str) -> None:
    _, err = call(f"produce {json_topic} --json", b'{"value": "x"}\n' + line.encode() + b"\n", code=2)
    assert err == f"barnabas: line 2: {said}\nbefore it 1 record went to {json_topic}\n"


def test_what_is_no_text_in_json(call: Calls, json_topic: str) -> None:
    _, err = call(f"produce {json_topic} --json", b'{"value": "\xff"}\n', code=2)
    assert err == "barnabas: line 1: byte 12 is no UTF-8\n"


def test_a_record_that_is_refused_ends_it(call: Calls, topic: str) -> None:
    call(f"topic alter {topic} --set max.message.bytes=500")
    call(f"produce {topic} -p 0", b"small\n")
    _, err = call(f"produce {topic} -p 0", b"a\nb\n" + b"x" * 1000 + b"\nc\n", code=1)
    said, before = err.splitlines()
    assert said.startswith("barnabas: line 3 was not sent: ")
    assert "MESSAGE_TOO_LARGE" in said
    assert before == f"before it 2 records went to {topic}"
    assert call.out(f"consume {topic}").split() == ["small", "a", "b"]
    hint = re.search("; `barnabas (topic alter .*)` makes room for it$", said)
    assert hint is not None
    call(hint[1])
    call(f"produce {topic} -p 0", b"x" * 1000 + b"\n")


def test_what_became_of_the_others(call: Calls, topic: str, tmp_path: Path) -> None:
    """Of two partitions key a is in one, key d in the other."""
    call(f"topic alter {topic} --set max.message.bytes=500")
    lines = b"a:1\nd:1\nd:" + b"x" * 1000 + b"\na:2\nd:2\na:3\n"
    _, err = call(f"produce {topic} --key-separator :", lines, code=1)
    assert [err.split(" not sent")[0], *err.splitlines()[1:]] == [
        "barnabas: line 3 was",
        f"before it 2 records went to {topic}",
        "after it 2 records went to other partitions",
    ]
    out = call.out(f"consume {topic} --key")
    assert sorted(out.splitlines()) == ["a\t1", "a\t2", "a\t3", "d\t1"], "no record of d overtakes"
    (file := tmp_path / "big").write_bytes(b"x" * 1000)
    _, err = call(f"produce {topic} --key a --file {file}", code=1)
    assert err.startswith(f"barnabas: {file} was not sent: ")


def test_a_good_record_in_the_batch_of_a_bad_one(call: Calls, topic: str) -> None:
    """A compacted topic takes no record without a key."""
    call(f"topic alter {topic} --set cleanup.policy=compact")
    _, err = call(f"produce {topic} --json -p 0", b'{"key": "a", "value": 1}\n{"value": 1}\n', code=1)
    assert err.startswith("barnabas: line 2 was not sent: ")
    assert err.endswith(f"before it 0 of 1 record went to {topic}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "consume {topic} --from soon",
            "--from: 'soon' is no place in a topic; expected is earliest,",
        ),
        ("consume {topic} --from latest", "--from latest is the end: with --follow it prints what comes"),
        ("consume {topic} -p 7", "has no partition 7; it has 2 partitions"),
        ("produce {topic} -p 7", "has no partition 7; it has 2 partitions"),
        ("produce {topic} --json --key-separator :", "--json goes with neither"),
        ("produce {topic} --key a --key-separator :", "either --key, or --key-separator"),
        ("produce {topic} --key-separator ", "--key-separator must not be empty"),
        ("produce {topic} -H x", "--header x: NAME=VALUE is expected"),
        ("topic alter {topic}", "nothing is to be changed: say what with --set, --unset or --partitions"),
        (
            "topic alter {topic} --set retention.ms=1 --unset retention.ms",
            "retention.ms: in --set and in --unset; which is meant?",
        ),
        ("group reset g --to soon", "--to: 'soon' is no place in a topic"),
        ("group reset g --topic {topic}:x --to 1", ":x: expected is TOPIC, or TOPIC:0,1,2"),
        ("topic list --command-config /no/such/file", "/no/such/file cannot be read"),
    ],
)
def test_command_lines_that_cannot_be_used(call: Calls, topic: str, line: str, said: str) -> None:
    _, err = call(line.format(topic=topic), code=2)
    assert said in err
    assert err.startswith("barnabas: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "line", ["topic create", "topic create t --partitions 0", "topic create t --set x", "group reset g"]
)
def test_what_argparse_refuses(call: Calls, line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        call(line)
    assert ended.value.code == 2


# -- groups ------------------------------------------------------------------------------------------------------------


def test_groups(call: Calls, topic: str) -> None:
    group = f"g-{topic}"
    call(f"produce {topic} -p 0", b"a\nb\nc\n")
    planned = call.out(f"group reset {group} --topic {topic} --to latest")
    assert planned.splitlines()[-1] == "Nothing was changed. With --yes it is done."
    assert call(f"group describe {group}", code=1)[1].endswith("there is no such group (GROUP_ID_NOT_FOUND)\n")
    assert call(f"group reset {group} --to latest", code=1)[1].startswith(
        f"barnabas: group {group} has read nothing yet"
    )
    done = call.out(f"group reset {group} --topic {topic}:0 --to 1 --yes")
    assert done.splitlines()[-1] == f"1 partition of group {group} changed."
    described = call.out(f"group describe {group}").splitlines()
    assert described[0] == f"{group}: classic, Empty, 0 members, coordinator 1"
    assert described[1].startswith("lag 2 records, behind by ")
    assert re.fullmatch(rf"{topic} +0 +1 +3 +2 +\d+ s  -       -", described[4])
    rows = call.out(f"group reset {group} --shift 1").splitlines()
    assert rows[1].split() == [topic, "0", "1", "2", "+1"]
    assert call(f"group reset {group} --topic {topic}:9 --to 0", code=1)[1].startswith(f"barnabas: {topic}-9: topic")
    assert call(f"group reset {group} --topic nope --to 0", code=1)[1].startswith("barnabas: topic nope: there is no")
    (listed,) = call.json(f"group list -l {group}")
    assert (listed["lag"], listed["members"], listed["state"]) == (2, 0, "Empty")
    assert f"{group}  classic  Empty" in call.out("group list")
    (whole,) = call.json(f"group describe {group}")
    assert whole["partitions"][0]["committed"] == 1
    assert whole["partitions"][0]["first_unread"].endswith("Z")
    assert call.out(f"group delete {group}") == f"group {group} was deleted\n"
    assert call(f"group delete {group}", code=1)[1].startswith(f"barnabas: group {group} was not deleted: ")


def test_a_reset_in_json_says_whether_it_was_done(call: Calls, topic: str) -> None:
    group = f"g-{topic}"
    call(f"produce {topic} -p 0", b"a\nb\n")
    line = f"group reset {group} --topic {topic}:0 --to 1"
    row = {"topic": topic, "partition": 0, "committed": None, "new": 1}
    assert call.json(line) == [{**row, "done": False}]
    assert call.json(f"{line} --yes") == [{**row, "done": True}]
    assert call.json(line) == [{**row, "committed": 1, "done": False}]


def test_an_offset_that_is_not_in_the_log_skips_nothing(call: Calls, topic: str) -> None:
    group, stamp = f"g-{topic}", "1795712769142"
    call(f"produce {topic} -p 0", b"a\nb\nc\n")
    time = "; if these are milliseconds since 1970, write 2026-11-26T17:06:09.142Z"
    for more in ("", " --yes", " --json", " --json --yes"):
        assert call(f"group reset {group} --topic {topic}:0 --to {stamp}{more}", code=2) == (
            "",
            f"barnabas: --to: offset {stamp} is not in the log: {topic}-0 begins at 0 and ends at 3{time}\n",
        )
    _, err = call(f"group reset {group} --topic {topic} --to 3 --yes", code=2)
    assert err == f"barnabas: --to: offset 3 is not in the log: {topic}-1 begins at 0 and ends at 0\n"
    assert call(f"group describe {group}", code=1)[1].endswith("there is no such group (GROUP_ID_NOT_FOUND)\n")
    call(f"group reset {group} --topic {topic}:0 --to 3 --yes")
    out, err = call(f"group reset {group} --shift -5")
    assert out.splitlines()[1].split() == [topic, "0", "3", "0", "-3"]
    assert err == f"{topic}-0: -5 would leave the log, which begins at 0 and ends at 3\n"


def test_consume_from_an_offset_that_is_not_in_the_log(call: Calls, topic: str) -> None:
    call(f"produce {topic} -p 0", b"a\nb\nc\n")
    for more in ("", " -f"):
        _, err = call(f"consume {topic} --from 1795712769142{more}", code=2)
        assert err == (
            f"barnabas: --from: offset 1795712769142 is not in the log: {topic}-0 begins at 0 and ends at 3, "
            f"{topic}-1 begins at 0 and ends at 0; if these are milliseconds since 1970, "
            "write 2026-11-26T17:06:09.142Z\n"
        )
    assert call(f"consume {topic} --from 2") == ("c\n", "")
    assert call(f"consume {topic} --from 2 -f -n 1") == (
        "c\n",
        f"before offset 2 {topic}-1 ends at 0: what comes there is printed from now on\n",
    )


# -- words -------------------------------------------------------------------------------------------------------------

NOW_MS = 1_750_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place(end="earliest")),
        ("latest", Place(end="latest")),
        ("0", Place(offset=0)),
        ("123456789012345678", Place(offset=123456789012345678)),
        ("90s", Place(time_ms=NOW_MS - 90_000)),
        ("2h", Place(time_ms=NOW_MS - 7_200_000)),
        ("7d", Place(time_ms=NOW_MS - 7 * 86_400_000)),
        ("999999999d", Place(time_ms=0)),
        ("1970-01-01T00:00:01Z", Place(time_ms=1000)),
        ("1970-01-01T02:00:01.5+02:00", Place(time_ms=1500)),
        ("2026-11-26T17:06:09.142Z", Place(time_ms=1795712769142)),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["", "-1", "1x", "yesterday", "2026-13-01", "9" * 30, "٣"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is no place in a topic"):
        parse_place(text, NOW_MS)


def test_an_offset_outside_of_many_logs() -> None:
    logs = [Log(f"t-{index}", index, 9) for index in range(5)]
    assert outside(12, logs) == (
        "offset 12 is not in the log: t-0 begins at 0 and ends at 9, t-1 begins at 1 and ends at 9, "
        "t-2 begins at 2 and ends at 9, and 2 more"
    )


def test_times_and_durations() -> None:
    assert time_here(-1) == ""
    assert time_here(2**62) == f"{2**62} ms"
    assert time_utc(2**62) is None
    assert time_utc(1) == "1970-01-01T00:00:00.001Z"
    assert [duration(each) for each in (None, 0, 59.9, 60, 125, 7200, 90_061, 10**9)] == [
        *("-", "0 s", "59 s", "1 m", "2 m 5 s", "2 h", "1 d 1 h", "11574 d 1 h"),
    ]


def test_sizes_and_counts() -> None:
    assert [size(each) for each in (0, 999, 1000, 12_345, 999_999, 10**9, 10**16)] == [
        *("0 B", "999 B", "1.0 kB", "12 kB", "1,000 kB", "1.0 GB", "10,000 TB"),
    ]
    assert counted(1, "record") == "1 record"
    assert counted(2000, "record") == "2,000 records"


def test_tables_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["a" * 80, 1_000_000, "b" * 40], ["c", None, "\x1b[31m"]]
    print_table(["TOPIC", ">LAG", "CLIENT"], rows, width=100)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" in lines[1]
    assert "1,000,000" in lines[1]
    assert lines[2].endswith(r"\x1b[31m")
    print_table(["TOPIC", ">LAG", "CLIENT"], rows, width=None)
    assert "a" * 80 in capsys.readouterr().out, "no terminal here"


def record(**fields: Any) -> Read:
    values = {"key": b"k", "value": b"v", "headers": (), **fields}
    return Read("t", 0, 7, 1000, values["key"], values["value"], values["headers"], BatchFacts())


def test_a_terminal_is_not_told_what_to_do() -> None:
    hostile = record(value=b"\x1b]0;x\x07\ttab\n\xff")
    assert text_format(key=False, meta=False, to_terminal=True)(hostile) == b"\\x1b]0;x\\x07\ttab\n\\xff\n"
    assert text_format(key=True, meta=False, to_terminal=False)(hostile) == b"k\t\x1b]0;x\x07\ttab\n\xff\n"
    assert printable("a\u202eb") == "a\\u202eb"
    named = record(headers=(("\x1b", b"x"),))
    assert b"\x1b" not in hex_format(named)
    assert b"\x1b" not in json_format(named)
    assert json_format(record(value="\x9b\u202e\u2028é".encode())).count(b"\\u") == 3


@pytest.mark.parametrize(
    "whole",
    [
        record(),
        record(key=None, value=None),
        record(key=b"\xff", value=b"", headers=(("h", b"\xfe"), ("h", None))),
        record(value='{"a": "\u2028"}'.encode()),
    ],
)
def test_json_is_read_as_it_was_written(whole: Read) -> None:
    line = json_format(whole)
    assert line.count(b"\n") == 1
    assert from_json(line, "u") == ToSend("u", whole.value, whole.key, tuple(whole.headers), None, whole.timestamp)


# -- the command line --------------------------------------------------------------------------------------------------


def test_arguments_are_made_for_the_command_that_is_called() -> None:
    for name in client_arguments.COMMANDS:
        assert name in cli.parser(["health"]).format_help()
        for broker in ("serve", "dev"):  # alone
            assert cli.parser([broker, "--set", "a=b"]).parse_args([broker, "--set", "a=b"]).set == ["a=b"]
            with pytest.raises(SystemExit):
                cli.parser([broker]).parse_args([name, "--bootstrap", "x"])
    assert cli.parser(["topic", "list"]).parse_args(["topic", "list"]).action == "list"
    assert cli.parser().parse_args(["consume", "t", "-f"]).follow


def test_a_command_loads_no_broker() -> None:
    """Its start is its time: a tenth of a second of processor time as it is, most of it trio's."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from barnabas.server.cli import health; "
        "from barnabas.server.cli.client import client_commands, consume, group_commands, produce, topic_commands; "
        "print(sorted({'.'.join(name.split('.')[1:3]) for name in sys.modules if name.startswith('barnabas.server.')}))"
        "; print([name for name in ('barnabas.replication', 'barnabas.logdir') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, env={"PATH": "/bin"}
    )
    rooms = ["server.cli", "server.client", "server.network", "server.runtime"]
    assert (done.stderr, done.stdout) == ("", f"{rooms}\n[]\n")


@pytest.mark.parametrize("name", client_arguments.COMMANDS)
def test_help_fits_a_terminal(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"], {})
    assert not ended.value.code
    out = capsys.readouterr().out
    assert "examples:" in out
    assert max(map(len, out.splitlines())) <= 100


def test_an_offset_that_is_gone_means_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """As with Apache Kafka's command: nothing that is there is skipped."""
    group_commands._within_the_logs(To(offset=0), {("t", 0): Reset(5, 3, Span(3, 9)), ("t", 1): Reset(0, 0)})
    assert capsys.readouterr().err == "t-0: offset 0 is no longer in the log, which begins at 3\n"

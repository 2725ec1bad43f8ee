"""kcat: list (-L), produce (-P), consume (-C), query (-Q) and balanced consumption (-G)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from compat_tests.harness.processes import Background, run
from compat_tests.harness.tools import Program, kcat

# Each case starts the program some times, and each time it takes a second.
pytestmark = [pytest.mark.slow, pytest.mark.kcat]
CLIENT = "kcat"
Names = Callable[..., str]


def case(title: str) -> pytest.MarkDecorator:
    """The place of a kcat case."""
    return pytest.mark.case("kcat", title, CLIENT)


class Kcat:
    """kcat bound to a broker."""

    def __init__(self, program: Program, bootstrap: str) -> None:
        self.program = program
        self.bootstrap = bootstrap

    def command(self, *arguments: str) -> list[str]:
        return [self.program.path, "-b", self.bootstrap, "-m", "60", "-X", "message.timeout.ms=120000", *arguments]

    def __call__(self, *arguments: str, text: str | bytes = "", expect: int | None = 0) -> str:
        done = run(self.command(*arguments), text=text, environment=self.program.environment(), expect=expect)
        return (done.stdout if expect == 0 else done.stdout + done.stderr).decode()

    def background(self, *arguments: str) -> Background:
        return Background(self.command("-u", *arguments), self.program.environment())

    def produce(self, topic: str, lines: list[str], *arguments: str) -> None:
        self("-P", "-t", topic, *arguments, text="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, *arguments: str) -> list[str]:
        return self("-C", "-q", "-e", "-X", "fetch.wait.max.ms=50", "-t", topic, *arguments).splitlines()


@pytest.fixture(scope="module")
def cat(bootstrap: str) -> Kcat:
    """kcat, found or fetched; a machine where that is impossible fails here and says what to install."""
    return Kcat(kcat(), bootstrap)


@case("-L lists brokers and topics; as JSON too")
def test_list(cat: Kcat, unique: Names) -> None:
    topic = unique()
    cat.produce(topic, ["x"])
    host, _, port = cat.bootstrap.rpartition(":")
    text = cat("-L")
    assert f'topic "{topic}"' in text
    found = json.loads(cat("-L", "-J", "-t", topic))
    assert [one["topic"] for one in found["topics"]] == [topic]
    assert found["topics"][0]["partitions"][0]["leader"] == found["brokers"][0]["id"]
    assert any(one["name"].endswith(f":{port}") for one in found["brokers"]), (host, found["brokers"])


@case("-P and -C: lines in, lines out, in order")
def test_round_trip(cat: Kcat, unique: Names) -> None:
    topic = unique()
    lines = [f"line {n}" for n in range(1000)]
    cat.produce(topic, lines, "-p", "0")
    assert cat.consume(topic, "-p", "0") == lines


@case("-z gzip, snappy, lz4, zstd")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codec(cat: Kcat, unique: Names, codec: str) -> None:
    topic = unique()
    lines = [f"compressible line {n} " * 20 for n in range(500)]
    cat.produce(topic, lines, "-p", "0", "-z", codec)
    assert cat.consume(topic, "-p", "0") == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@case("-X acks=0, 1, all")
def test_acks(cat: Kcat, unique: Names, acks: str) -> None:
    topic = unique()
    cat.produce(topic, [], "-p", "0")
    cat("-L", "-t", topic)
    lines = [f"{n}" for n in range(50)]
    cat.produce(topic, lines, "-p", "0", "-X", f"acks={acks}")
    deadline = time.monotonic() + 60
    while (found := cat.consume(topic, "-p", "0")) != lines and acks == "0" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == lines


@case("-X enable.idempotence=true")
def test_idempotent(cat: Kcat, unique: Names) -> None:
    topic = unique()
    lines = [f"{n}" for n in range(3000)]
    cat.produce(topic, lines, "-p", "0", "-X", "enable.idempotence=true", "-X", "batch.num.messages=100")
    assert cat.consume(topic, "-p", "0") == lines


@case("keys, null values, headers, timestamps as -J shows them")
def test_keys_headers(cat: Kcat, unique: Names) -> None:
    topic = unique()
    cat.produce(topic, ["k1:v1", "k2:", ":v3"], "-p", "0", "-K:", "-Z", "-H", "a=1", "-H", "b=two", "-H", "a=2")
    found = [json.loads(line) for line in cat.consume(topic, "-p", "0", "-J")]
    assert [(one["key"], one["payload"]) for one in found] == [("k1", "v1"), ("k2", None), (None, "v3")]
    assert [one["offset"] for one in found] == [0, 1, 2]
    assert all(one["headers"] == ["a", "1", "b", "two", "a", "2"] for one in found)
    assert all(abs(one["ts"] / 1000 - time.time()) < 60 and one["tstype"] == "create" for one in found)


@case("-o beginning, end, absolute, relative")
def test_offsets(cat: Kcat, unique: Names) -> None:
    topic = unique()
    cat.produce(topic, [f"{n}" for n in range(20)], "-p", "0")
    numbers = [f"{n}" for n in range(20)]
    assert cat.consume(topic, "-p", "0", "-o", "beginning") == numbers
    assert cat.consume(topic, "-p", "0", "-o", "end") == []
    assert cat.consume(topic, "-p", "0", "-o", "7") == numbers[7:]
    assert cat.consume(topic, "-p", "0", "-o", "-3") == numbers[-3:]
    assert cat.consume(topic, "-p", "0", "-o", "5", "-c", "4") == numbers[5:9]


@case("-o s@ and e@ timestamps; -Q")
def test_timestamps(cat: Kcat, unique: Names) -> None:
    topic = unique()
    cat.produce(topic, ["early 1", "early 2"], "-p", "0")
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    cat.produce(topic, ["late 1", "late 2"], "-p", "0")
    assert cat.consume(topic, "-p", "0", "-o", f"s@{middle}") == ["late 1", "late 2"]
    assert cat.consume(topic, "-p", "0", "-o", f"e@{middle}") == ["early 1", "early 2"]
    assert cat("-Q", "-t", f"{topic}:0:{middle}").strip() == f"{topic} [0] offset 2"
    assert cat("-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 4"
    assert cat("-Q", "-t", f"{topic}:0:-2").strip() == f"{topic} [0] offset 0"


@case("a record of 900 KB; a too large one is refused")
def test_large(cat: Kcat, unique: Names) -> None:
    topic = unique()
    large = "x" * 900_000
    cat.produce(topic, [large], "-p", "0", "-X", "message.max.bytes=3000000")
    assert cat.consume(topic, "-p", "0") == [large]
    text = cat(
        *("-P", "-t", topic, "-p", "0", "-X", "message.max.bytes=3000000"), text="y" * 1_200_000 + "\n", expect=None
    )
    assert "Message size too large" in text
    assert cat.consume(topic, "-p", "0") == [large]


@case("an unknown topic without auto-creation is an error")
def test_unknown_topic(cat: Kcat, unique: Names) -> None:
    text = cat("-C", "-e", "-t", unique(), "-p", "0", "-X", "allow.auto.create.topics=false", expect=1)
    assert "Unknown topic" in text or "Unknown partition" in text


@case("a waiting consumer gets what is produced later")
def test_follow(cat: Kcat, unique: Names) -> None:
    topic = unique()
    cat.produce(topic, ["first"], "-p", "0")
    with cat.background("-C", "-q", "-t", topic, "-p", "0") as follower:
        follower.wait_for("first")
        cat.produce(topic, ["second"], "-p", "0")
        follower.wait_for("second")


@case("-G: one reads all and commits; another goes on")
def test_group(cat: Kcat, unique: Names) -> None:
    topic, group = unique(), unique("group")
    cat.produce(topic, [f"{n}" for n in range(10)])
    arguments = ("-G", group, "-q", "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=100")
    first = cat(*arguments, "-c", "10", topic).split()
    assert sorted(map(int, first)) == list(range(10))
    cat.produce(topic, [f"{n}" for n in range(10, 15)])
    second = cat(*arguments, "-c", "5", topic).split()
    assert sorted(map(int, second)) == list(range(10, 15))


@pytest.mark.slow
@case("-G: a killed member's partitions move after its session timeout")
def test_killed_member(cat: Kcat, unique: Names) -> None:
    topic, group = unique(), unique("group")
    cat.produce(topic, ["x"])
    timings = ("-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500")
    waits: list[float] = []
    with cat.background("-G", group, *timings, topic) as stays:

        def given() -> int:
            """How often it has been told what it holds."""
            return sum("assigned:" in line for line in stays.lines)

        stays.wait_for("assigned:")
        # Six seconds after its last heartbeat, which is older than the kill where nobody has time for it: then another
        # is killed. A broker that expels whom it has lost does so every time.
        while max(waits, default=0) <= 2 and len(waits) < 5:
            before = given()
            goes = cat.background("-G", group, "-X", f"group.instance.id=goes-{len(waits)}", *timings, topic)
            try:
                goes.wait_for("assigned:")
                # Either of the two holds the topic's partition(s) now; with one partition one of them holds none.
                stays.wait_for("assigned:", before + 1)
            finally:
                before, killed = given(), time.monotonic()
                goes.stop(kill=True)
            stays.wait_for("assigned:", before + 1)
            waits.append(time.monotonic() - killed)
    assert max(waits) > 2, f"expelled after {waits} s, the session timeout is 6 s"

"""`barnabas log`: what is printed, the exit codes, broken pipes, the progress bar."""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.kproto.records import Record, build_batch
from barnabas.kproto.stored import OffsetCommitKey, OffsetCommitValue, encode_versioned
from barnabas.logdir.offline import open_log
from barnabas.logdir.offline.stats import log_stats
from barnabas.logdir.tests.kit import NOW
from barnabas.logdir.tests.offline.offline_kit import copy, make_dir
from barnabas.server.cli import main as cli
from barnabas.server.cli.log_dump import time_text
from barnabas.server.cli.log_stats import lines
from barnabas.server.cli.progress import Progress, readable

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "logs"
    make_dir(path, rounds=20)
    return path


class Called:
    """One call of the command line."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> None:
        capsys.readouterr()
        assert cli.main(["log", *map(str, arguments)]) == code
        self.out, self.err = capsys.readouterr()

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def damaged(made: Path, tmp_path: Path) -> Path:
    """A copy with one bad batch in its second segment."""
    home = copy(made, tmp_path / "bad")
    segment = open_log(home / "t-0").segments[1]
    batch = list(segment.batches())[1]
    file = Path(segment.path)
    data = bytearray(file.read_bytes())
    data[batch.position + 40] ^= 1
    file.write_bytes(data)
    return home


# ---- dump


def test_dump_shows_batches(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = list(open_log(made / "t-0").batches())
    for path in (made, made / "t-0"):
        shown = Called(capsys, "dump", path, "--json").json
        assert [(one["type"], one["base_offset"], one["position"], one["crc"]) for one in shown] == [
            ("batch", batch.base_offset, batch.position, batch.crc) for batch in batches
        ]
        assert all(one["crc_is_right"] and one["topic"] == "t" for one in shown)
    text = Called(capsys, "dump", made / "t-0").lines
    assert sum(line.startswith("offsets ") for line in text) == len(batches)
    assert sum("starts at offset" in line for line in text) == len(open_log(made / "t-0").segments)
    assert f"crc {batches[0].crc:#010x}" in text[1]


def test_dump_shows_records_within_bounds(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = made / "t-0"
    records = list(open_log(home).records(control=True))

    def shown(*options: object) -> list[int]:
        found = Called(capsys, "dump", home, "--records", "--json", *options).json
        return [one["offset"] for one in found if one["type"] == "record"]

    everything = [record.offset for record in records]
    assert shown() == everything
    assert shown("--offset", "7:12") == [7, 8, 9, 10, 11]
    assert shown("--offset", "60") == everything[60:]
    assert shown("--offset", ":5") == [0, 1, 2, 3, 4]
    assert shown("--limit", 3) == [0, 1, 2]
    early, late = NOW + 200, NOW + 900
    wanted = [record.offset for record in records if early <= record.timestamp <= late]
    assert shown("--time", f"{early}..{late}") == wanted
    assert shown("--time", f"{time_text(early)}..{time_text(late)[:-1]}") == wanted
    assert shown("--committed") == [r.offset for r in open_log(home).records(isolation="read_committed")]
    assert Called(capsys, "dump", home, "--limit", 2, "--json").out.count("\n") == 2


def test_dump_shows_keys_and_values_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "t-0"
    home.mkdir()
    file = home / f"{0:020d}.log"
    records = [
        Record(0, NOW, b"k", b"\xff\0", (("h", b"x"), ("n", None))),
        Record(1, NOW, None, None),
        Record(2, NOW, b"", "a\nü".encode()),
    ]
    file.write_bytes(build_batch(records, producer_id=3, producer_epoch=0, base_sequence=2**31 - 2))
    plain = Called(capsys, "dump", file, "--records", "--json").json[1:]
    assert all("key" not in one and "value" not in one for one in plain)
    assert [(one["key_size"], one["value_size"], one["sequence"]) for one in plain] == [
        *((1, 2, 2**31 - 2), (-1, -1, 2**31 - 1), (0, 4, 0)),
    ]
    first, second, third = Called(capsys, "dump", file, "--keys", "--values", "--json").json[1:]
    assert (first["key"], first["value"]) == ("k", {"base64": "/wA="})
    assert first["headers"] == [{"key": "h", "value": "x"}, {"key": "n", "value": None}]
    assert (second["key"], second["value"]) == (None, None)
    assert (third["key"], third["value"]) == ("", "a\nü")
    text = Called(capsys, "dump", file, "--keys", "--values").lines[2:]
    assert text == [
        r"  0  2023-11-14T22:13:20.000Z  key 1 bytes  value 2 bytes  headers [h=x, n=null]  key: k  value: b'\xff\x00'",
        "  1  2023-11-14T22:13:20.000Z  key null  value null",
        r"  2  2023-11-14T22:13:20.000Z  key 0 bytes  value 4 bytes  key:   value: 'a\nü'",
    ]


def test_dump_decodes_what_brokers_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    value = encode_versioned(OffsetCommitValue(offset=9, metadata="m", commit_timestamp=NOW), 3)
    data = build_batch([Record(0, NOW, key, value), Record(1, NOW, key, None), Record(2, NOW, b"\0\1", b"")])
    for name in ("__consumer_offsets-7", "other-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(data)
    for options in (("__consumer_offsets-7",), ("other-0", "--decode", "offsets")):
        arguments = (tmp_path / options[0], "--records", *options[1:])
        shown = [one["decoded"] for one in Called(capsys, "dump", *arguments, "--json").json[1:]]
        assert [one["kind"] for one in shown] == ["offset_commit", "offset_commit", "unknown"]
        assert (shown[0]["key"]["group"], shown[0]["value"]["offset"], shown[1]["value"]) == ("g", 9, None)
        assert "offset_commit  key {group: g, topic: t, partition: 3}" in Called(capsys, "dump", *arguments).out
    for options in (("other-0",), ("__consumer_offsets-7", "--decode", "none")):
        shown = Called(capsys, "dump", tmp_path / options[0], "--records", "--json", *options[1:]).json[1:]
        assert not any("decoded" in one for one in shown)


def test_dump_shows_small_files(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [file for file in (made / "t-0").iterdir() if file.suffix != ".log"]
    kinds = {one["type"] for one in Called(capsys, "dump", "--json", made / "meta.properties", *files).json}
    assert kinds == {
        *("offset index", "time index", "transaction index", "producer snapshot"),
        *("leader epochs", "partition.metadata", "meta.properties"),
    }
    text = Called(capsys, "dump", made / "replication-offset-checkpoint").lines
    end = open_log(made / "t-0").end_offset()
    assert text == [f"{made}/replication-offset-checkpoint: offset checkpoint", f"  topic t  partition 0  offset {end}"]
    bad = made.parent / "leader-epoch-checkpoint"
    bad.write_text("x")
    assert "version" in Called(capsys, "dump", bad, code=1).err


def test_dump_reads_what_recovery_has_set_aside(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = copy(made, tmp_path / "set-aside") / "t-0"
    *_, last = sorted(home.glob("*.log"))
    before = Called(capsys, "dump", last, "--json").json
    aside = last.rename(home / f"{last.name}.1700000000000.aside")
    after = Called(capsys, "dump", aside, "--json").json
    assert [{**one, "path": ""} for one in after] == [{**one, "path": ""} for one in before]
    assert not {one["base_offset"] for one in before} & {
        one["base_offset"] for one in Called(capsys, "dump", home, "--json").json if one["type"] == "batch"
    }, "it is no part of the log any more"


def test_dump_goes_on_behind_a_bad_batch(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = damaged(made, tmp_path)
    whole = Called(capsys, "dump", made, "--json").json
    shown = Called(capsys, "dump", home, "--json").json
    assert [one["base_offset"] for one in shown] == [one["base_offset"] for one in whole]
    assert [one["crc_is_right"] for one in shown].count(False) == 1
    assert "is WRONG, should be 0x" in Called(capsys, "dump", home).out
    # Where it cannot go on in a segment, it goes on with the next.
    file = Path(open_log(home / "t-0").segments[1].path)
    file.write_bytes(file.read_bytes()[:-5])
    called = Called(capsys, "dump", home, "--json", code=1)
    assert f"{file}, position" in called.err
    assert "ends inside a batch" in called.err
    assert len(called.json) == len(whole) - 1


def test_dump_mentions_a_torn_end(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = copy(made, tmp_path / "torn")
    file = Path(open_log(home / "t-0").segments[-1].path)
    file.write_bytes(file.read_bytes() + bytes(10))
    assert "10 bytes are no whole batch" in Called(capsys, "dump", home).err


# ---- verify


def test_verify(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = Called(capsys, "verify", made)
    assert good.out.startswith("0 problems, 0 warnings in ")
    assert Called(capsys, "verify", made, "--json").out == ""
    home = damaged(made, tmp_path)
    bad = Called(capsys, "verify", home, code=1)
    assert bad.lines[0].startswith(f"problem: {home}/t-0/")
    assert bad.lines[0].endswith("[crc]")
    (problem,) = Called(capsys, "verify", home, "--json", code=1).json
    assert (problem["level"], problem["kind"]) == ("problem", "crc")
    (home / "strange").touch()
    (made / "t-0" / "strange").touch()
    try:
        assert "0 problems, 1 warnings" in Called(capsys, "verify", made).out
        Called(capsys, "verify", made, "--strict", code=1)
    finally:
        (made / "t-0" / "strange").unlink()
    listed = Called(capsys, "verify", "--list").lines
    assert any(line.startswith("torn-tail ") for line in listed)


# ---- stats


def test_stats(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = copy(made, tmp_path / "logs")
    copy(made / "t-0", home / "t-1")
    copy(made / "t-0", home / "u-0")
    shown = Called(capsys, "stats", home, "--json").json
    assert [(one["topic"], one["partition"]) for one in shown] == [("t", 0), ("t", 1), ("u", 0)]
    records = len(list(open_log(made / "t-0").records(control=True)))
    assert {one["records"] for one in shown} == {records}
    head, *rows = Called(capsys, "stats", "--wide", home).lines
    assert [row.split()[0] for row in rows] == ["t-0", "t-1", "u-0", "t", "all"]
    columns = [head.split().index(name) for name in ("partition", "records")]
    assert [rows[-1].replace(" kB", "kB").split()[column] for column in columns] == ["all", str(3 * records)]
    assert "ratio" in head
    assert "ratio" not in Called(capsys, "stats", "--quick", home).lines[0]
    fitting = Called(capsys, "stats", home).lines  # into a pipe, without --wide
    assert max(map(len, fitting)) <= 100 < max(map(len, (head, *rows)))
    assert {"partition", "size", "records", "offsets", "from", "to", "codecs", "keys"} <= set(fitting[0].split())
    assert " ".join(fitting).endswith("(--wide or --json has all)")
    for file in (home / "t-1").glob("*.log"):
        file.write_bytes(file.read_bytes()[:-3])
    called = Called(capsys, "stats", home, "--json", code=1)
    assert "t-1 is left out" in called.err
    assert [one["topic"] for one in called.json] == ["t", "u"]


def test_stats_show_internal_topics_behind_the_others(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = copy(made, tmp_path / "logs")
    for name in ("__consumer_offsets-0", "__consumer_offsets-7", "__transaction_state-3"):
        copy(made / "t-0", home / name)
    names = [row.split()[0] for row in Called(capsys, "stats", "--wide", home).lines]
    assert names == ["partition", "t-0", "__consumer_offsets", "__transaction_state-3", "all"]
    internal = ["__consumer_offsets-0", "__consumer_offsets-7", "__transaction_state-3", "__consumer_offsets"]
    names = [row.split()[0] for row in Called(capsys, "stats", "--wide", "--internal", home).lines]
    assert names == ["partition", "t-0", *internal, "all"]
    named = [home / name for name in internal[:2]]
    assert [row.split()[0] for row in Called(capsys, "stats", *named).lines][1:3] == internal[:2]


def test_stats_fit_a_terminal_and_say_what_had_no_room(made: Path) -> None:
    found = [log_stats(open_log(made / "t-0"))]
    everything = lines(found, full=True, internal=False, width=None)
    needed = max(map(len, everything))
    assert lines(found, full=True, internal=False, width=needed) == everything
    for width in range(needed - 1, 79, -1):
        head, row, *said = lines(found, full=True, internal=False, width=width)
        assert max(map(len, (head, row, *said))) <= width
        hidden = set(everything[0].split()) - set(head.split())
        assert (head, row) != (*everything,)  # shorter cells are tried first
        assert " ".join(said).startswith("no room for: ") == bool(hidden)
        assert all(name in " ".join(said) for name in hidden)
    assert {"partition", "size", "records", "offsets"} <= set(head.split())
    assert "partition" in lines(found, full=True, internal=False, width=1)[0]


def test_a_log_directory_without_partitions_says_so(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = copy(made, tmp_path / "logs")
    shutil.rmtree(home / "t-0")
    assert Called(capsys, "stats", home).out == "no partitions\n"
    assert Called(capsys, "stats", home, "--json").out == ""
    assert "has no partitions" in Called(capsys, "dump", home).err


def test_a_dump_outside_of_the_log_says_where_the_log_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "t-0"
    home.mkdir()
    file = home / f"{7456:020d}.log"
    file.write_bytes(build_batch([Record(at, NOW, None, b"v") for at in range(4)], base_offset=7456))
    for bounds in (("--offset", "0:2"), ("--offset", "8000"), ("--time", "2030-01-01")):
        for more in ((), ("--json",), ("--records",)):
            called = Called(capsys, "dump", home, *bounds, *more)
            assert "nothing is within these bounds; the log begins at offset 7456 and ends before 7460" in called.err
    assert Called(capsys, "dump", home, "--offset", "7458:7459").err == ""
    file.write_bytes(b"")
    assert "the log is empty, at offset 7456" in Called(capsys, "dump", home, "--offset", "0:2").err


# ---- the command line


@pytest.mark.parametrize("action", ["dump", "verify", "stats"])
def test_paths_that_are_no_logs(action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        called = Called(capsys, action, path, code=2)
        assert called.err.startswith("barnabas: ")
        assert str(path) in called.err
        assert called.out == ""


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--offset", "x", "is not FROM"),
        ("--offset", ":", "is not FROM"),
        ("--time", "..", "is not FROM"),
        ("--time", "yesterday", "neither milliseconds nor a time"),
        ("--limit", "0", "a number from 1 on is expected"),
        ("--decode", "json", "invalid choice"),
    ],
)
def test_options_that_cannot_be_used(option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["log", "dump", "x", option, value])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_comes_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["log"], ["log", "dump"], ["log", "verify"], ["log", "stats"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*arguments, "--help"])
        assert ended.value.code == 0
        assert "examples:\n  barnabas log " in capsys.readouterr().out


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    """`barnabas log dump ... | head -1`."""
    home = tmp_path / "t-0"
    home.mkdir()
    data = b"".join(build_batch([Record(value=b"v")], base_offset=at) for at in range(5000))
    (home / f"{0:020d}.log").write_bytes(data)
    command = [sys.executable, str(ROOT / "barnabas" / "__main__.py"), "log", "dump", str(home), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["base_offset"] == 0
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()


def test_an_interrupt_ends_it_without_a_traceback(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # where the interpreter looks at signals

    monkeypatch.setattr("barnabas.logdir.offline.verify.verify", interrupted)
    # A shell starts what it runs in the background with the signal ignored, and these tests with it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        called = Called(capsys, "verify", made, code=130)
    finally:
        signal.signal(signal.SIGINT, before)
    assert called.err == "\n"


# ---- progress


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_progress_is_shown_on_a_terminal_after_a_moment() -> None:
    now = [100.0]
    screen = Screen(True)
    progress = Progress(screen, 2_000_000, lambda: now[0])
    progress(10)
    progress.clear()
    assert screen.getvalue() == ""
    now[0] += 2
    progress(999_990)
    assert screen.getvalue() == "\r[===============               ]  50%  1.0 MB of 2.0 MB, 500.0 kB/s, 2 s left\x1b[K"
    progress(10)  # too soon for another look
    progress.clear()
    assert screen.getvalue().endswith("\r\x1b[K")
    now[0] += 1
    progress(5_000_000)
    assert "100%" in screen.getvalue()
    other = Screen(False)
    progress = Progress(other, 10, lambda: now[0])
    now[0] += 100
    progress(5)
    assert other.getvalue() == ""


def test_sizes_and_times_for_people() -> None:
    assert [readable(size) for size in (0, 999, 1000, 1_500_000, 2.5e9, 3e12, 4e15)] == [
        *("0 B", "999 B", "1.0 kB", "1.5 MB", "2.5 GB", "3.0 TB", "4000.0 TB"),
    ]
    assert [time_text(time) for time in (-1, 0, NOW + 7, 1 << 62)] == [
        *("-1", "1970-01-01T00:00:00.000Z", "2023-11-14T22:13:20.007Z", str(1 << 62)),
    ]

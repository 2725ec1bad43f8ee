"""The generated .pyi files are up to date, and a type checker reads in them what holds at run time."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.kproto import __main__ as program
from barnabas.kproto.stubs import TARGETS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", TARGETS, ids=lambda path: path.name)
def test_up_to_date(path: Path) -> None:
    assert path.read_text("utf-8") == TARGETS[path](), "run `python -m barnabas.kproto stubs`"


@pytest.mark.slow
def test_mypy_sees_messages(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text(
        "from barnabas.kproto import decode, decoder, encode\n"
        "from barnabas.kproto.messages import FetchResponse, HeartbeatRequest\n"
        "from barnabas.kproto.stored import OffsetCommitValue, decode_versioned\n"
        "request: HeartbeatRequest = decode(HeartbeatRequest, 0, b'')\n"
        "name: str = request.group_id\n"
        "instance: str | None = decoder(HeartbeatRequest, 1)(b'', 0)[0].group_instance_id\n"
        "part = FetchResponse.PartitionData(partition_index=1, records=memoryview(b''))\n"
        "topic = FetchResponse.FetchableTopicResponse(partitions=[part])\n"
        "parts: list[FetchResponse.PartitionData] = topic.partitions\n"
        "value: int = decode_versioned(OffsetCommitValue, b'')[1].offset\n"
        "data: bytes = encode(request, 0)\n"
    )
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from barnabas.kproto.messages import HeartbeatRequest\n"
        "HeartbeatRequest(grup_id='g')\n"
        "HeartbeatRequest('g')\n"
        "HeartbeatRequest(group_id=3)\n"
        "HeartbeatRequest().member\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    done = subprocess.run([*command, str(good)], capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert done.stdout == ""
    done = subprocess.run([*command, str(bad)], capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    complaints = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in complaints] == ["2", "3", "4", "5"], done.stdout


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["show", "Fetch", "12"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        "# FetchRequest v12 decode",
        "# FetchRequest v12 encode",
        "# FetchResponse v12 decode",
        "# FetchResponse v12 encode",
    ]
    assert program.main(["show", "OffsetCommitValue", "3", "encode"]) == 0
    assert "def encode(m):" in capsys.readouterr().out
    assert program.main(["show", "Fetch", "99"]) == 1
    assert program.main(["show", "Fetsch", "1"]) == 1
    assert "no message is called Fetsch" in capsys.readouterr().err


def test_import_stays_cheap() -> None:
    """Nothing of records or compression, no schema parsed: a broker starts in half a second altogether."""
    code = (
        "import sys; before = set(sys.modules); from barnabas.kproto import messages\n"
        "new = {name.removeprefix('barnabas.kproto.') for name in set(sys.modules) - before}\n"
        "assert 'messages' in new and not new & {'records', 'records_legacy', 'compression', 'crc32c'}, new\n"
        "assert not any(name.endswith(('Request', 'Response')) for name in vars(messages)), 'a class was made'\n"
        "foreign = {'trio', 'crc32c', 'backports', 'cramjam', 'asyncio', 'inspect', 'dataclasses'}\n"
        "assert not foreign & (set(sys.modules) - before), foreign & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)

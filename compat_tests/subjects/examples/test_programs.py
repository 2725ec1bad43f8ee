"""The small examples: what they print is what the broker did."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.harness.ports import free_ports
from compat_tests.subjects.examples.programs import attempt, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def case(title: str, client: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Examples", title, client=client)


@case("produce_consume.py", "kafka-python")
def test_produce_consume(bootstrap: str, unique: Callable[..., str]) -> None:
    printed = run("produce_consume.py", "--bootstrap", bootstrap, "--topic", unique(), timeout=300)
    by_partition = [int(count) for count in re.findall(r"partition \d: (\d+) records", printed)]
    assert len(by_partition) == 3
    assert sum(by_partition) == 1000
    assert "key=b'customer 0' value=b'greeting 0' headers=[('language', b'en')]" in printed
    assert printed.endswith("read 1000 records back\n")


@case("groups.py", "kafka-python")
def test_groups(bootstrap: str, unique: Callable[..., str]) -> None:
    printed = run("groups.py", "--bootstrap", bootstrap, "--topic", unique(), timeout=600)
    assert "anna and ben: 2 + 2 partitions, 100 + 100 records" in printed
    assert "600 records handled, 600 of them exactly once" in printed
    assert printed.endswith("lag 0\n")


@case("topics.py", "kafka-python")
def test_topics(bootstrap: str, unique: Callable[..., str]) -> None:
    name = unique()
    printed = run("topics.py", "--bootstrap", bootstrap, "--topic", name, timeout=300)
    assert printed.splitlines()[1:] == [
        f"created {name}: retention.ms=3600000",
        f"altered {name}: retention.ms=7200000",
        "the first reading of the last 40 seconds has offset 60",
        "records before it deleted: offsets 60 to 100",
        "partitions: 5",
        f"deleted {name}",
    ]


@pytest.mark.campaign
@pytest.mark.jvm
@case("spark_stream.py", "spark")
def test_spark_stream(
    bootstrap: str, unique: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    printed = run("spark_stream.py", "--bootstrap", bootstrap, "--topic", unique(), timeout=600, spark=True)
    assert dict(line.split() for line in printed.splitlines()) == {"the": "30", "dog": "20"} | dict.fromkeys(
        ["brown", "fox", "jumps", "lazy", "over", "quick", "sleeps"], "10"
    )
    assert not list(tmp_path.glob("spark-stream-*"))


def test_without_a_broker_a_program_says_so_in_one_line(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    programs = [[f"{name}.py"] for name in ("produce_consume", "groups", "topics", "spark_stream")]
    programs.append(["pipeline/run.py", "--out", str(tmp_path)])
    with ThreadPoolExecutor() as pool:  # each tries for twenty seconds
        ended = list(pool.map(lambda command: attempt(*command, "--bootstrap", address, timeout=600), programs))
    for each in ended:
        assert each.stderr == f"no broker answers at {address}; to start one: python3 run.py serve\n"
        assert each.returncode

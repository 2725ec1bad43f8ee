"""Which test is in which step of which tier, and what is said of those that are in none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.harness.jars import PROJECT_ROOT, ToolMissing, java
from compat_tests.runner.plan import (
    CALL_PURE,
    CONNECTOR,
    ENVIRONMENT,
    FRANZ,
    JARS,
    PURE_TOO,
    WAITING,
    Group,
    Plan,
    beginning,
    groups,
    plan,
    with_environment,
)
from compat_tests.runner.preflight import Tool, go, jdk, kcat, rust

FOUND = [
    Group("kproto/tests/test_codec.py", frozenset(), 5000),
    Group("kproto/tests/deep/test_oracle.py", frozenset({"slow", "jvm"}), 3),
    Group("compat_tests/python/test_cases.py", frozenset(), 70),
    Group("compat_tests/python/test_cases.py", frozenset({"slow"}), 50),
    Group("compat_tests/java/test_cases.py", frozenset({"slow", "jvm"}), 300),
    Group("compat_tests/cat/test_cat.py", frozenset({"slow", "kcat"}), 18),
    Group("compat_tests/cluster/test_faults.py", frozenset({"slow", "campaign", "jvm"}), 40),
    Group("compat_tests/cluster/test_network.py", frozenset({"slow", "campaign"}), 1),
]
HERE = [
    Tool("JDK and Maven", "jvm", found="Java 17"),
    Tool("kcat", "kcat", found="kcat"),
    Tool("net", "", missing="no"),
]
NO_JDK = [Tool("JDK and Maven", "jvm", missing="install it"), *HERE[1:]]


def steps(made: Plan) -> dict[str, int | None]:
    return {step.title: step.cases for step in made.steps if not step.title.startswith("fast tests")}


def test_the_first_tier() -> None:
    made = plan(FOUND, HERE, everything=False)
    assert [(step.title, step.cases) for step in made.steps[:1]] == [("fast tests, part 1", 5070)]
    assert steps(made) == {"compat_tests/java": 300, "compat_tests/python": 50, "compat_tests/cat": 18, "kproto": 3}
    assert made.steps[1].title == "compat_tests/java"
    assert made.left_out == {"not in this tier: python3 run.py test --all": 41}


def test_what_needs_no_environment_goes_on_while_it_is_made() -> None:
    no_go = Tool("Go", "go", missing="no go: install it")
    assert beginning(HERE) == [ENVIRONMENT, JARS, FRANZ]
    assert beginning([*HERE, no_go]) == [ENVIRONMENT, JARS]
    assert beginning(NO_JDK) == [ENVIRONMENT, FRANZ]
    assert CONNECTOR in with_environment(Path("listing"), HERE)
    assert CONNECTOR not in with_environment(Path("listing"), NO_JDK)
    for step in (JARS, FRANZ):
        module = step.arguments[1]
        # No site-packages: what is imported must do without.
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); import {module}"],
            cwd=PROJECT_ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr


def test_everything() -> None:
    made = plan(FOUND, HERE, everything=True)
    assert sum(step.cases or 0 for step in made.steps) == sum(group.count for group in FOUND)
    assert made.steps[1].title == "compat_tests/cluster"
    assert not made.left_out


def test_a_file_that_may_take_long_is_a_step_of_its_own_and_first() -> None:
    """All of it: its tests with other markers, too."""
    slow = [
        Group("server/tests/sim/test_faults.py", frozenset({"slow"}), 4),
        Group("server/tests/sim/test_faults.py", frozenset({"slow", "campaign"}), 2, 2400),
        Group("server/tests/test_other.py", frozenset({"slow"}), 7, 600),
    ]
    made = plan(slow, HERE, everything=True)
    assert steps(made) == {"server/tests/sim/test_faults": 6, "server": 7}
    assert [step.arguments[-1] for step in made.steps[-2:]] == [
        "server/tests/sim/test_faults.py",
        "server/tests/test_other.py",
    ]


def test_the_fast_tests_are_cut_between_files_into_parts_that_take_as_long() -> None:
    """Those of the server take three times as long for a test."""
    fast = [
        Group(f"barnabas/{name}/tests/test_{n}.py", frozenset(), 50) for name in ("logdir", "server") for n in range(6)
    ]
    fast.append(Group("barnabas/server/tests/test_5.py", frozenset({"kcat"}), 2))
    made = plan(fast, HERE, everything=False).steps
    files = [argument for step in made for argument in step.arguments if argument.endswith(".py")]
    assert [step.cases for step in made] == [350, 100, 100, 52]
    assert files == sorted({group.file for group in fast})


def test_the_campaign_of_a_package_is_another_step() -> None:
    server = [
        Group("server/tests/test_a.py", frozenset({"slow", *more}), n) for more, n in (((), 3), (("campaign",), 4))
    ]
    found = {step.title: step for step in plan([*FOUND, *server], HERE, everything=True).steps}
    for title, count, which in (("server", 3, "slow and not campaign"), ("server: campaign", 4, "campaign")):
        assert found[title].cases == count
        assert found[title].arguments[-3:] == ("-m", which, "server/tests/test_a.py")
    together = Group("compat_tests/java/test_kills.py", frozenset({"slow", "campaign"}), 2)
    found = {step.title: step for step in plan([*FOUND, together], HERE, everything=True).steps}
    assert found["compat_tests/java"].cases == 302
    assert found["compat_tests/java"].arguments[-3] == "slow"


def test_with_native_some_fast_tests_run_without_it_too() -> None:
    records = Group("barnabas/kproto/tests/records/test_scan.py", frozenset(), 300)
    both = Group("barnabas/kproto/tests/records/test_compiled_scan.py", frozenset(), 30)
    faults = Group("barnabas/server/tests/requests/faults/test_every_api.py", frozenset(), 600)
    callers = Group("barnabas/server/tests/storage/test_reader.py", frozenset(), 20)
    found = [*FOUND, records, both, faults, callers]
    made = plan(found, HERE, everything=False, has_native=True)
    fast = [step for step in made.steps if step.title.startswith("fast tests, part")]
    assert sum(step.cases or 0 for step in fast) == 6020
    assert not any(step.environment for step in fast)
    [pure] = [step for step in made.steps if step.environment]
    assert (pure.title, pure.cases) == ("fast tests, without barnabas-native", 300)
    assert pure.environment == (("BARNABAS_PURE", "1"),)
    assert pure.arguments[-1] == records.file
    assert sum(made.left_out.values()) == 41 + 20
    whole = plan(found, HERE, everything=True, has_native=True)
    [pure] = [step for step in whole.steps if step.environment]
    assert (pure.cases, pure.arguments[-2:]) == (320, (records.file, callers.file))
    assert not whole.left_out


def test_the_files_of_both_ways_exist() -> None:
    assert all((PROJECT_ROOT / place).exists() for place in (*PURE_TOO, *CALL_PURE, *WAITING))


def test_those_that_wait_begin_before_as_many_that_compute() -> None:
    found = [
        Group("compat_tests/cat/test_cat.py", frozenset({"slow"}), 60),
        Group(f"{WAITING[0]}test_rates.py", frozenset({"slow"}), 20),
        Group("compat_tests/java/test_cases.py", frozenset({"slow"}), 90),
    ]
    assert list(steps(plan(found, HERE, everything=False))) == [
        "compat_tests/java",
        WAITING[0].removesuffix("/"),
        "compat_tests/cat",
    ]


@pytest.mark.parametrize(("everything", "cases", "campaign"), [(False, 303, 41), (True, 343, 0)])
def test_without_a_jdk(everything: bool, cases: int, campaign: int) -> None:
    made = plan(FOUND, NO_JDK, everything=everything)
    assert steps(made) == {"compat_tests/python": 50, "compat_tests/cat": 18} | (
        {"compat_tests/cluster": 1} if everything else {}
    )
    [why] = [reason for reason in made.left_out if reason.startswith("without JDK and Maven")]
    assert "DumpLogSegments" in why
    assert why.endswith(": install it")
    assert made.left_out[why] == cases
    assert sum(made.left_out.values()) == cases + campaign
    assert all("not jvm" in step.arguments[step.arguments.index("-m", 2) + 1] for step in made.steps[1:])


def test_the_listing_is_read(tmp_path: Path) -> None:
    listing = tmp_path / "listing"
    listing.write_text(
        json.dumps({"file": "a/tests/b/test_c.py", "markers": ["slow", "jvm"], "count": 2, "limit_s": 60})
    )
    assert groups(listing) == [Group("a/tests/b/test_c.py", frozenset({"slow", "jvm"}), 2, 60)]
    assert groups(listing)[0].title == "a"


def program(directory: Path, name: str, says: str = "", status: int = 0) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "lacks"),
    [('openjdk version "17.0.15" 2025-04-15', ""), ('java version "1.8.0_402"', "this is 8"), ("?", "this is none")],
)
def test_a_jdk_must_be_new_enough(tmp_path: Path, version: str, lacks: str) -> None:
    for name in ("java", "javac", "mvn"):
        program(tmp_path, name, version)
    found = jdk({"PATH": str(tmp_path)})
    assert lacks in found.missing
    assert bool(found.missing) == bool(lacks)


@pytest.mark.parametrize(
    ("version", "found", "missing"),
    [
        ("go version go1.26.0 linux/amd64", "Go 1.26", ""),
        ("go version go2.0 linux/arm64", "Go 2.0", ""),
        ("go version go1.19.8 linux/amd64", "", "Go 1.26 or newer is wanted, this is go version go1.19.8 linux/amd64"),
        ("?", "", "Go 1.26 or newer is wanted, this is ?"),
    ],
)
def test_a_go_must_be_new_enough(tmp_path: Path, version: str, found: str, missing: str) -> None:
    (tmp_path / "go").write_text(f"#!/bin/sh\necho '{version}'\n")
    (tmp_path / "go").chmod(0o755)
    looked = go({"PATH": str(tmp_path)})
    assert (looked.found, looked.missing) == (found, missing)


def test_without_go() -> None:
    franz = Group("compat_tests/go/test_go.py", frozenset({"slow", "go"}), 20)
    here = plan([*FOUND, franz], [*HERE, Tool("Go", "go", found="Go 1.26")], everything=True)
    assert steps(here)["compat_tests/go"] == 20
    made = plan([*FOUND, franz], [*HERE, Tool("Go", "go", missing="no go: install it")], everything=True)
    assert "compat_tests/go" not in steps(made)
    assert made.left_out == {"without Go: no go: install it": 20}


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}
    assert jdk(nothing).missing.startswith("no java, javac, mvn: install")
    assert kcat(nothing).missing.startswith("no kcat: install")
    assert go(nothing).missing.startswith("no go: install")
    home = tmp_path / "home" / "bin"
    home.mkdir(parents=True)
    for name in ("java", "javac"):
        program(home, name, 'openjdk version "21"')
    assert jdk({**nothing, "JAVA_HOME": str(home.parent)}).missing.startswith("no mvn: install")


def test_a_cargo_is_found_where_rustup_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    nothing = {"PATH": str(tmp_path)}
    assert rust(nothing).missing.startswith("no cargo: install")
    home = tmp_path / ".cargo" / "bin"
    home.mkdir(parents=True)
    program(home, "cargo")
    assert rust(nothing).found
    assert rust({**nothing, "BARNABAS_PURE": "1"}).missing == "BARNABAS_PURE is set"
    (home / "cargo").write_text("#!/bin/sh\nexit 1\n")
    assert "does not answer" in rust(nothing).missing


def test_a_test_without_the_marker_finds_no_jvm() -> None:
    with pytest.raises(ToolMissing, match="without having the marker `jvm`"):
        java()

"""Our bytes through Apache Kafka's own generated classes, every message in every version: read there to the last byte
and written again the same.

This reaches what kafka-python does not have: controller requests, share and streams groups, stored records, and
unknown tagged fields. One JVM per release, fed through a pipe by the program JavaCodec.java beside this file.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas import kproto
from barnabas.kproto.classes import Message
from barnabas.kproto.tests.oracle import NEWEST, OLDER, RELEASES, OracleMissing, definitions, jars
from barnabas.kproto.tests.randoms import every_message, random_message

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

PROGRAM = Path(__file__).with_name("JavaCodec.java")


def java_version_of(cls: type[Message], version: int, release: str) -> int | None:
    """The number this version has in a release, None if it has none there."""
    definition = definitions(release).get(cls.__name__)
    if definition is None:
        return None
    if definition.json["type"] == "coordinator-key":
        return 0 if definition.json["apiKey"] == version else None
    stem = cls.__name__.removesuffix("Response")
    marked = definitions(release)[f"{stem}Request"] if stem != cls.__name__ else definition
    return version if version in marked.usable_versions else None


def run(release: str, lines: list[str]) -> list[str]:
    java = shutil.which("java") or str(Path(os.environ.get("JAVA_HOME", "/nonexistent")) / "bin" / "java")
    if not Path(java).exists():
        raise OracleMissing("no `java` found: install a JDK 17 or set JAVA_HOME")
    classpath = os.pathsep.join(map(str, jars(release)))
    # A small heap and the serial collector keep the JVM out of the way of other tests.
    command = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", classpath, str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("release", [pytest.param(OLDER, marks=pytest.mark.campaign), NEWEST])
def test_java_reads_and_writes_the_same(release: str) -> None:
    cases = []
    for cls, version in every_message():
        java_version = java_version_of(cls, version, release)
        if java_version is not None:
            for seed in range(4):
                rng = random.Random(f"{cls.__name__} {version} java {seed}")
                message = random_message(rng, cls, version, unknown_tags=seed % 2 == 1)
                cases.append((f"{cls.__name__} {java_version}", seed, kproto.encode(message, version).hex()))
    assert len(cases) > 4 * 550
    answers = run(release, [f"{name} {data}" for name, _, data in cases])
    assert len(answers) == len(cases)
    different = [
        f"{name} seed {seed}: {answer[:300]} instead of {data[:300]}"
        for (name, seed, data), answer in zip(cases, answers, strict=True)
        if answer != f"0 {data}"
    ]
    assert different == []


def test_every_version_is_in_a_release() -> None:
    missing = [
        f"{cls.__name__} {version}"
        for cls, version in every_message()
        if all(java_version_of(cls, version, release) is None for release in RELEASES)
    ]
    assert missing == []

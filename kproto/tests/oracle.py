"""Apache Kafka's own message definitions, taken out of its jars: what our schemas are compared with.

The jars come from the directories in BARNABAS_KAFKA_JARS (separated as in PATH), or from a set of jars that other
tests have in `.cache/jars` at the project root (BARNABAS_CACHE names another directory than `.cache`), else Maven
copies them once into `.cache/jars/schemas`. Without any `OracleMissing` says what to do: a test that could not compare
has not passed.

Definitions are expanded per version into plain rows, one per field, so that two notations can be compared without a
word about either.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["NEWEST", "OLDER", "RELEASES", "Definition", "OracleMissing", "Row", "definitions", "jars", "rows_of"]

OLDER, NEWEST = RELEASES = ("3.9.1", "4.3.1")
ARTIFACTS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator")
# Share groups came with 4.0: what 3.9.1 has of their records is a draft.
SHARE_ARTIFACT = "kafka-share-coordinator"
DRAFTS = ("3.9.1", "Share")
# What their classes cannot be loaded without.
LIBRARIES = (("org.slf4j", "slf4j-api", "1.7.36"),)
PROJECT_ROOT = Path(__file__).resolve().parents[2]
NO_LIMIT = 0x7FFF


class OracleMissing(AssertionError):
    """The jars are not here and could not be fetched."""


class Row(NamedTuple):
    """One field in one version. `path` has the names of the structures around it, `type` is Kafka's word for it."""

    path: tuple[str, ...]
    type: str
    nullable: bool
    tag: int | None
    default: object
    ignorable: bool


class Definition(NamedTuple):
    """A parsed JSON file with what decides its use."""

    name: str
    json: dict[str, Any]
    versions: tuple[int, int]
    flexible: tuple[int, int] | None

    @property
    def usable_versions(self) -> range:
        """The versions the release stands by: an unstable last one is left out."""
        first, last = self.versions
        return range(first, last if self.json.get("latestVersionUnstable") else last + 1)


@cache
def definitions(release: str) -> dict[str, Definition]:
    """All definitions of a release by message name, those without versions (removed messages) left out."""
    found = {}
    for path in _definition_jars(release):
        with zipfile.ZipFile(path) as jar:
            for entry in jar.namelist():
                if entry.startswith("common/message/") and entry.endswith(".json"):
                    definition = _definition(jar.read(entry).decode("utf-8"))
                    if definition is not None and not _is_draft(release, definition):
                        found[definition.name] = definition
    assert len(found) > 150, f"only {len(found)} definitions in the jars of {release}"
    return found


def jars(release: str) -> list[Path]:
    """The jars of a release: its generated classes are in them too."""
    return [*_definition_jars(release), *(_jar(*library) for library in LIBRARIES)]


def _is_draft(release: str, definition: Definition) -> bool:
    of, prefix = DRAFTS
    is_stored = definition.json["type"] not in ("request", "response")
    return release == of and is_stored and definition.name.startswith(prefix)


def _definition_jars(release: str) -> list[Path]:
    artifacts = ARTIFACTS if release == DRAFTS[0] else (*ARTIFACTS, SHARE_ARTIFACT)
    return [_jar("org.apache.kafka", artifact, release) for artifact in artifacts]


def rows_of(definition: Definition, version: int) -> list[Row]:
    """Every field of one version, in the order of the wire (tagged fields by tag, behind the others), and every field
    the version lacks, with type `absent`.
    """
    commons = {struct["name"]: struct for struct in definition.json.get("commonStructs", [])}
    return list(_rows(definition.json["fields"], (), version, commons))


def _rows(fields: list[Any], path: tuple[str, ...], version: int, commons: dict[str, Any]) -> Iterator[Row]:
    def order(field: dict[str, Any]) -> int:
        tagged = _has(field.get("taggedVersions"), version)
        return 1 + int(field["tag"]) if tagged else 0

    for field in sorted(fields, key=order):
        name = (*path, field["name"])
        if not _has(field.get("versions", field.get("taggedVersions")), version):
            continue
        tagged = _has(field.get("taggedVersions"), version)
        kind = field["type"]
        element = kind.removeprefix("[]")
        yield Row(
            name,
            kind,
            _has(field.get("nullableVersions"), version),
            int(field["tag"]) if tagged else None,
            default_of(kind, field.get("default")),
            bool(field.get("ignorable", False)),
        )
        if element[0].isupper():
            children = field["fields"] if "fields" in field else commons[element]["fields"]
            yield from _rows(children, name, version, commons)


def default_of(kind: str, given: object) -> object:
    """A default as Kafka's generator understands it: a JSON null counts as nothing said, the word "null" as null."""
    text = "" if given is None else str(given)
    if text == "null" or kind == "records":
        return None
    if kind.startswith("[]") or kind[0].isupper():
        return "new"
    if kind in ("string", "bytes"):
        return text
    if kind == "bool":
        return text.lower() == "true"
    if kind == "uuid":
        return text or "zero"
    if kind == "float64":
        return float(text or 0)
    return int(text or "0", 0)


def parse_versions(text: str | None) -> tuple[int, int] | None:
    """`3+`, `0-4`, `2` or `none`."""
    if text is None or text == "none":
        return None
    if text.endswith("+"):
        return int(text[:-1]), NO_LIMIT
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _has(text: str | None, version: int) -> bool:
    versions = parse_versions(text)
    return versions is not None and versions[0] <= version <= versions[1]


def _definition(text: str) -> Definition | None:
    # The files are JSON with // comments; none of their strings holds two slashes outside of a URL.
    plain = re.sub(r"(?m)(?<!:)//.*$", "", text)
    content = json.loads(plain)
    versions = parse_versions(content["validVersions"])
    if versions is None:
        return None
    return Definition(content["name"], content, versions, parse_versions(content["flexibleVersions"]))


def _jar(group: str, artifact: str, release: str) -> Path:
    name = f"{artifact}-{release}.jar"
    sets = Path(os.environ.get("BARNABAS_CACHE") or PROJECT_ROOT / ".cache") / "jars"
    named = [Path(directory) for directory in os.environ.get("BARNABAS_KAFKA_JARS", "").split(os.pathsep) if directory]
    for directory in (*named, *sorted(mark.parent for mark in sets.glob("*/.complete"))):
        if (directory / name).exists():
            return directory / name
    target = sets / "schemas"
    target.mkdir(parents=True, exist_ok=True)
    # Test processes may run side by side: one fetches, the others wait.
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / name).exists():
            _fetch(group, artifact, release, target)
    return target / name


def _fetch(group: str, artifact: str, release: str, target: Path) -> None:
    maven = shutil.which("mvn")
    hint = f"put {artifact}-{release}.jar into a directory and name that in BARNABAS_KAFKA_JARS"
    if maven is None:
        raise OracleMissing(f"no `mvn` found: install Maven, or {hint}")
    part = target / f"{artifact}-{release}.part"
    shutil.rmtree(part, ignore_errors=True)
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={group}:{artifact}:{release}"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={part}"],
        env={**os.environ, "MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} -XX:-UsePerfData"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=target,
    )
    if done.returncode != 0:
        raise OracleMissing(
            f"Maven could not fetch {artifact} {release}; {hint}\n{done.stdout[-2000:]}{done.stderr[-500:]}"
        )
    # Renamed last: a file of that name is always whole.
    (part / f"{artifact}-{release}.jar").rename(target / f"{artifact}-{release}.jar")
    part.rmdir()

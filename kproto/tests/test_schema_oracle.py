"""Our schemas against the definitions in Apache Kafka's jars, 3.9.1 and 4.3.1: field by field, version by version.

The rule of the union: every version a release stands by must be described as that release describes it. Where a name
differs between the releases (ListConfigResources was ListClientMetricsResources) the newer one counts.
"""

import re

import pytest

import barnabas.kproto.stored
from barnabas import kproto
from barnabas.kproto.apikeys import ApiKey
from barnabas.kproto.classes import Message
from barnabas.kproto.notation import SCHEMA_DIR, Field, Struct, parse
from barnabas.kproto.tests.oracle import RELEASES, Definition, Row, default_of, definitions, parse_versions, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

# KRaft's controller traffic, and Envelope, in which a KRaft broker forwards.
NOT_OURS = {52, 53, 54, 58, 59, 62, 63, 70, 73}
RENAMED = {"ListClientMetricsResources": "ListConfigResources"}
# Words of 3.9.1 that 4.x replaced while the bytes stayed the same.
RENAMED_FIELDS = {
    ("client_metrics_resources",): ("config_resources",),
    ("client_metrics_resources", "name"): ("config_resources", "resource_name"),
}
RENAMED_STRUCTURES = {"ClientMetricsResource": "ConfigResource"}

KINDS = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "float64": "f64",
    "string": "str",
    "bytes": "bytes",
    "records": "records",
    "uuid": "uuid",
}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def requests_and_responses(release: str) -> list[Definition]:
    found = [one for one in definitions(release).values() if one.json["type"] in ("request", "response")]
    return [one for one in found if one.json["apiKey"] not in NOT_OURS]


def coordinator_records() -> dict[str, int]:
    """Keys of records in 4.3.1: {name: kind}, the int16 in front of them."""
    found = definitions("4.3.1").values()
    return {one.name: one.json["apiKey"] for one in found if one.json["type"] == "coordinator-key"}


def our_class(name: str) -> type[Message]:
    if name.endswith(("Request", "Response")):
        cls: type[Message] = getattr(kproto.messages, name)
    else:
        cls = getattr(barnabas.kproto.stored, name)
    return cls


def our_rows(struct: Struct, path: tuple[str, ...], version: int) -> list[Row]:
    rows = []

    def order(field: Field) -> int:
        return 0 if field.tag is None else 1 + field.tag

    for field in sorted(struct.fields, key=order):
        if not field.versions.has(version):
            continue
        name = (*path, field.name)
        default = {"": "new", None: None}[field.default] if field.is_array or field.struct else field.default  # type: ignore[index]
        kind = "[]" * field.is_array + field.type
        default = "zero" if default == bytes(16) else "" if default == b"" else default
        rows.append(Row(name, kind, field.is_nullable(version), field.tag, default, field.ignorable))
        if field.struct is not None:
            rows += our_rows(field.struct, name, version)
    return rows


def their_rows(definition: Definition, version: int) -> list[Row]:
    rows = []
    for row in rows_of(definition, version):
        element = row.type.removeprefix("[]")
        word = RENAMED_STRUCTURES.get(element, element) if element[0].isupper() else KINDS[element]
        path = tuple(map(snake, row.path))
        rows.append(row._replace(path=RENAMED_FIELDS.get(path, path), type=row.type.replace(element, word)))
    return rows


def compare(definition: Definition, version: int, release: str, cls: type[Message], our_version: int) -> None:
    theirs = their_rows(definition, version)
    ours = our_rows(cls.__description__.struct, (), our_version)
    newer = definitions("4.3.1").get(cls.__name__) if release == "3.9.1" else None
    if newer is not None:
        latest = [row for later in newer.usable_versions for row in their_rows(newer, later)]
        # What a version may drop is a matter of the writer, not of the bytes: 4.x made names ignorable when topic ids
        # came, and that counts.
        ignorable = {row.path: row.ignorable for row in latest}
        theirs = [row._replace(ignorable=ignorable.get(row.path, row.ignorable)) for row in theirs]
        # 4.x may add tagged fields to a version that exists already: readers of 3.9.1 skip them. (Only stored records
        # do.)
        before = {row.path for row in theirs}
        added = {row.path for row in ours if row.tag is not None and row.path not in before}
        assert not (added and cls.__description__.api_key is not None)
        ours = [row for row in ours if not any(row.path[: len(path)] == path for path in added)]
    assert ours == theirs, f"{cls.__name__} v{version} against {release}"
    flexible = definition.flexible is not None and definition.flexible[0] <= version <= definition.flexible[1]
    assert cls.__description__.is_flexible(our_version) == flexible


@pytest.mark.parametrize("release", RELEASES)
def test_requests_and_responses(release: str) -> None:
    compared = 0
    for definition in requests_and_responses(release):
        stem, kind = re.fullmatch(r"(.*)(Request|Response)", definition.name).groups()  # type: ignore[union-attr]
        cls = our_class(RENAMED.get(stem, stem) + kind)
        assert cls.__description__.api_key == definition.json["apiKey"]
        # A response has no mark of its own: it is as unstable as its request.
        request = definitions(release)[f"{stem}Request"]
        for version in request.usable_versions:
            compare(definition, version, release, cls, version)
            compared += 1
    assert compared > 500


def test_no_version_is_ours_alone() -> None:
    union: dict[str, set[int]] = {}
    for release in RELEASES:
        for definition in requests_and_responses(release):
            stem, kind = re.fullmatch(r"(.*)(Request|Response)", definition.name).groups()  # type: ignore[union-attr]
            usable = definitions(release)[f"{stem}Request"].usable_versions
            union.setdefault(RENAMED.get(stem, stem) + kind, set()).update(usable)
    ours = {
        cls.__name__: set(range(cls.__description__.versions.first, cls.__description__.versions.last + 1))
        for key in ApiKey
        for cls in (kproto.request_class(key), kproto.response_class(key))
    }
    assert ours == {name: versions for name, versions in union.items() if versions}


def stored_names() -> list[str]:
    return [message.name for path in sorted((SCHEMA_DIR / "stored").glob("*.rec")) for message in parse(path)]


@pytest.mark.parametrize("name", stored_names())
def test_stored_records(name: str) -> None:
    cls = our_class(name)
    described = set()
    for release in RELEASES:
        definition = definitions(release).get(name)
        if definition is None:
            continue
        kind = coordinator_records().get(name) if release == "4.3.1" else None
        for version in definition.usable_versions:
            # 4.x counts the versions of a coordinator's key from 0 and keeps the kind, which is what stands in front
            # of the bytes, elsewhere.
            our_version = version if kind is None else kind
            compare(definition, version, release, cls, our_version)
            described.add(our_version)
        described |= {kind} if kind is not None else set(definition.usable_versions)
    first, last = cls.__description__.versions
    # OffsetCommitKey 0 is LegacyOffsetCommitKey in 4.x.
    assert described == set(range(first, last + 1))


def test_the_oracle_itself() -> None:
    assert parse_versions("3+") == (3, 0x7FFF)
    assert parse_versions("none") is None
    assert default_of("int32", "0x7fffffff") == 2**31 - 1
    assert default_of("[]string", "null") is None
    heartbeat = definitions("3.9.1")["HeartbeatRequest"]
    assert [row.path[0] for row in rows_of(heartbeat, 0)] == ["GroupId", "GenerationId", "MemberId"]
    assert [row.nullable for row in rows_of(heartbeat, 4)] == [False, False, False, True]

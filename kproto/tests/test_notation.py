"""The notation: what a line says, and what is refused with file and line."""

import re
from pathlib import Path

import pytest

from barnabas.kproto.apikeys import ApiKey
from barnabas.kproto.messages import schema_file
from barnabas.kproto.notation import ALWAYS, SCHEMA_DIR, Field, SchemaError, Versions, parse

EXAMPLE = """\
api 12 Example  0-4  flexible 3+
request
  group_id            str
  count               i32      1+   = -1  ~
  limit               i64      0-2  = 9223372036854775807
  name                str?2+
  maybe               str?     3    = null
  flag                bool          = true
  topics              []Topic?
    name              str
    parts             []i32
    leader            Leader   4+   tag 1
      epoch           i32           = -1
  others              []Topic  4+
  cursor              Leader?  2+   = null
response
  error_code          i16
  records             records
"""


def written(tmp_path: Path, text: str, name: str = "12_example.api") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_example(tmp_path: Path) -> None:
    request, response = parse(written(tmp_path, EXAMPLE))
    assert (request.name, request.api_key, request.versions, request.flexible_from) == ("ExampleRequest", 12, (0, 4), 3)
    assert [request.is_flexible(version) for version in range(5)] == [False, False, False, True, True]
    fields = {field.name: field for field in request.struct.fields}
    assert fields["group_id"] == Field("group_id", "str", False, None, ALWAYS, None, None, "", False)
    assert fields["count"] == Field("count", "i32", False, None, Versions(1, 0x7FFF), None, None, -1, True)
    assert fields["limit"].versions == (0, 2)
    assert fields["limit"].default == 2**63 - 1
    assert [fields["name"].is_nullable(version) for version in (1, 2)] == [False, True]
    assert fields["maybe"].default is None
    assert fields["maybe"].versions == (3, 3)
    assert fields["flag"].default is True
    topic = fields["topics"].struct
    assert topic is not None
    assert fields["topics"].is_array
    assert fields["others"].struct is topic
    assert [field.name for field in topic.fields] == ["name", "parts", "leader"]
    assert topic.fields[2].tag == 1
    assert fields["cursor"].struct is topic.fields[2].struct
    assert [struct.name for struct in request.structs()] == ["Topic", "Leader"]
    assert response.struct.fields[1].default is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        pytest.param("  field i33", "i33 is described nowhere", id="unknown-type"),
        pytest.param("  field []Topic", "Topic is described nowhere", id="unknown-structure"),
        pytest.param("  field i32 = null", "null by default", id="null-default"),
        pytest.param("  field str 3+ sometimes", "unknown word 'sometimes'", id="unknown-word"),
        pytest.param("  field i32 tag", "", id="tag-without-number"),
        pytest.param("  field i32 = x", "", id="default-no-number"),
        pytest.param("  field []i32 = 3", "no default", id="array-default"),
        pytest.param("  field", "", id="no-type"),
        pytest.param("     field i32", "indented by 5", id="indentation"),
        pytest.param("  field Topic\n    a i32\n  other Topic\n    b i32", "described twice", id="described-twice"),
        pytest.param("answer", "expected 'response'", id="section"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = written(tmp_path, f"api 12 Example  0-4  flexible 3+\nrequest\n{line}\nresponse\n")
    with pytest.raises(SchemaError, match=rf"12_example\.api:[3-6]: .*{re.escape(complaint)}"):
        parse(path)


def test_bad_heads(tmp_path: Path) -> None:
    for head in ("api 12 Example 0-4 flexibel 3+", "api twelve Example 0-4", "api 12 Example", "message Example 0-4"):
        with pytest.raises(SchemaError):
            parse(written(tmp_path, f"{head}\nrequest\nresponse\n"))


def test_records(tmp_path: Path) -> None:
    key, value = parse(
        written(tmp_path, "record AKey  2\n  a str\n\nrecord AValue  0-1  flexible 1+\n  b i32\n", "a.rec")
    )
    assert (key.name, key.api_key, key.versions, key.flexible_from) == ("AKey", None, (2, 2), None)
    assert value.flexible_from == 1


def test_one_file_per_key() -> None:
    assert {path.name for path in SCHEMA_DIR.glob("*.api")} == {schema_file(key).name for key in ApiKey}
    for key in ApiKey:
        request, response = parse(schema_file(key))
        assert request.api_key == response.api_key == key
        assert re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", request.name.removesuffix("Request")).upper() == key.name
        assert response.name == request.name.removesuffix("Request") + "Response"
        assert len(request.structs()) == len({struct.name for struct in request.structs()})


def test_files_hold_facts_only() -> None:
    line = re.compile(
        r"(api \d+ \w+  \d+(-\d+)?(  flexible \d+\+)?|request|response|record \w+  \d+(-\d+)?(  flexible \d+\+)?|"
        r" {2,}[a-z0-9_]+ +\S+( +\d+(\+|-\d+)?)?( +tag \d+)?( +=  ?\S+)?( +~)?|)"
    )
    for path in [*SCHEMA_DIR.glob("*.api"), *SCHEMA_DIR.glob("stored/*.rec")]:
        for text in path.read_text().splitlines():
            assert line.fullmatch(text), f"{path.name}: {text!r}"

"""Avro in a process of its own: what is shown, and that hostile bytes and schemas harm nobody else."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

pytest.importorskip("fastavro")

from barnabas.server.console.avro import process as process_module
from barnabas.server.console.avro.decoding import Attempt, NotAvro, compiled, decoded
from barnabas.server.console.avro.process import (
    CHUNK_ITEMS,
    DATUM_BYTES_MAX,
    DIED,
    HUNG,
    LEFT,
    NOT_BEGUN,
    SCHEMA_CHARACTERS_MAX,
    SCHEMAS_MAX,
    TOO_LONG,
    TOO_MUCH,
    Decoded,
    Item,
    ProcessDecoder,
    Texts,
)
from barnabas.server.console.avro.worker import TOO_LARGE
from barnabas.server.tests.console.avro_kit import ORDER, encoded

LIST = json.dumps({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})
NULLS = json.dumps({"type": "array", "items": "null"})
MONEY = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 100_000_000, "scale": 2})
PATIENCE_S = 400
"""The process is bounded by what it uses of a processor; for how little of one it gets, no test fails."""


def zigzag(number: int) -> bytes:
    """A long of Avro, not negative."""
    number <<= 1
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def item(schema: str, data: bytes, skip: int = 0) -> Item:
    return Item(data, ((Texts((schema,)), skip),))


class Patient(ProcessDecoder):
    """Of a call, too, no clock is the judge."""

    def __init__(self) -> None:
        super().__init__(chunk_s=PATIENCE_S)

    async def decode(
        self, items: Sequence[Item], characters_max: int, *, is_pretty: bool = False, total_s: float = PATIENCE_S
    ) -> list[Decoded | str]:
        return await super().decode(items, characters_max, is_pretty=is_pretty, total_s=total_s)


@pytest.fixture(autouse=True)
def _time_to_begin_and_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("START_S", "WAIT_S"):
        monkeypatch.setattr(process_module, name, PATIENCE_S)


@pytest.fixture
async def decoder() -> AsyncIterator[ProcessDecoder]:
    made = Patient()
    with trio.fail_after(PATIENCE_S):
        yield made
        await made.aclose()


def shown(schema: Any, data: bytes) -> Any:
    texts = [schema if isinstance(schema, str) else json.dumps(schema)]
    return json.loads(decoded([Attempt(compiled(texts), 0)], data)[1])


@pytest.mark.parametrize(
    ("kind", "value", "seen"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("long", -(1 << 63), -(1 << 63)),
        ("double", float("nan"), "nan"),
        ("float", float("-inf"), "-inf"),
        ("bytes", b"\x00\xff", "00ff"),
        ("string", "größe</script>", "größe</script>"),
        ({"type": "map", "values": ["null", "int"]}, {"a": 1, "b": None}, {"a": 1, "b": None}),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "6162"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 11, 26, 12, tzinfo=UTC),
            "2026-11-26T12:00:00+00:00",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("12.50"), 12.5),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 20},
            Decimal("1.00000000000000000001"),
            "1.00000000000000000001",
        ),
        (
            {"type": "string", "logicalType": "uuid"},
            "b2b0a3c2-37a8-4b0e-8d8b-6f0e9ac6b1d1",
            "b2b0a3c2-37a8-4b0e-8d8b-6f0e9ac6b1d1",
        ),
    ],
)
def test_what_is_shown(kind: Any, value: Any, seen: Any) -> None:
    schema = json.dumps(kind)
    assert shown(schema, encoded(schema, value)) == seen


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    assert shown({"type": "long", "logicalType": "timestamp-millis"}, zigzag(1 << 61)) == 1 << 61
    assert shown({"type": "string", "logicalType": "uuid"}, b"\x02x") == "x"


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        (ORDER, b"\x02", "it ends too soon"),
        (ORDER, b"\x02\x02a\x00\x00", "1 bytes are left over"),
        (ORDER, b"\x02\x02a\x08", "a branch that the schema has not"),
        (ORDER, b"\x02\x02\xff\x00", "utf-8"),
        ('"bytes"', zigzag(1 << 60), "it ends too soon"),
        ('"bytes"', b"\x05x", "it ends too soon"),
        (json.dumps({"type": "fixed", "name": "F", "size": 1 << 40}), b"x", "it ends too soon"),
    ],
)
def test_what_is_not_of_the_schema(schema: str, data: bytes, why: str) -> None:
    with pytest.raises(NotAvro, match=why):
        shown(schema, data)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["{"], "no JSON"),
        (['{"type": "enum", "name": "R"}'], "not Avro's"),
        (['{"type": "array", "items": "Nowhere"}'], "Nowhere"),
        (["[" * 100_000], "nested too deep|no JSON|not Avro's"),
        (["17"], "not Avro's"),
    ],
)
def test_what_is_no_schema(texts: list[str], why: str) -> None:
    with pytest.raises(NotAvro, match=why):
        compiled(texts)


def test_a_schema_that_names_another_ones_types() -> None:
    line = json.dumps({"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]})
    cart = json.dumps({"type": "array", "items": "Line"})
    attempt = Attempt(compiled([line, cart]), 0)
    assert decoded([attempt], b"\x02\x06\x00") == (0, '[{"n": 3}]')


async def test_the_first_schema_that_takes_all_bytes(decoder: ProcessDecoder) -> None:
    data = encoded(ORDER, {"id": 7, "customer": "Ada", "note": None}, 17)
    order, long = Texts((ORDER,)), Texts(('"long"',))
    one, none = await decoder.decode([Item(data, ((long, 5), (order, 5), (order, 0))), Item(data, ((long, 0),))], 1000)
    assert one == Decoded(1, '{"id": 7, "customer": "Ada", "note": null}', False)
    assert none == "it is not of this schema: 10 bytes are left over"
    (cut,) = await decoder.decode([Item(data, ((order, 5),))], 8)
    assert cut == Decoded(0, '{"id": 7', True)


async def test_many_at_a_time(decoder: ProcessDecoder) -> None:
    items = [item('"long"', zigzag(number)) for number in range(CHUNK_ITEMS * 3 + 1)]
    results = await decoder.decode(items, 100)
    assert results == [Decoded(0, str(number), False) for number in range(len(items))]
    long = await decoder.decode([item('"bytes"', b"\0" * (DATUM_BYTES_MAX + 1)), items[1]], 100)
    assert long == [TOO_LONG, results[1]]


async def test_many_schemas(decoder: ProcessDecoder) -> None:
    for number in range(SCHEMAS_MAX + 3):
        schema = json.dumps({"type": "record", "name": f"R{number}", "fields": [{"name": "n", "type": "long"}]})
        assert await decoder.decode([item(schema, b"\x02")], 100) == [Decoded(0, '{"n": 1}', False)]
    assert await decoder.check(Texts(("{",))) == "the schema is no JSON"
    assert await decoder.check(Texts((ORDER,))) is None


@pytest.mark.campaign
async def test_hostile_bytes_harm_nobody_else(decoder: ProcessDecoder) -> None:
    """An array of 2^60 nulls takes all memory it may have, a deep list crashes the process; neighbours are decoded."""
    good = item('"long"', b"\x02")
    empty = json.dumps({"type": "array", "items": {"type": "record", "name": "E", "fields": []}})
    hostile = [
        item(NULLS, zigzag(1 << 60) + b"\0"),
        item(empty, zigzag(1 << 60)),
        item(LIST, b"\x02" * 500_000 + b"\0"),
    ]
    patient = Patient()
    results = await patient.decode([good, *hostile, good], 100)
    await patient.aclose()
    assert results[0] == results[-1] == Decoded(0, "1", False)
    assert results[1:3] == [TOO_LARGE, TOO_LARGE]
    assert results[3] in (DIED, "it is nested too deep")
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]


@pytest.mark.campaign
async def test_what_takes_too_long_is_ended(decoder: ProcessDecoder) -> None:
    """A decimal of a megabyte would take minutes."""
    good = item('"long"', b"\x02")
    data = zigzag(1_000_000) + b"\x7f" * 1_000_000
    impatient = Patient()
    assert await impatient.decode([good], 100) == [Decoded(0, "1", False)]
    assert await impatient.check(Texts((MONEY,))) is None
    impatient._chunk_s = 1.5  # only now: the clock may be in a hurry with nothing else
    (result,) = await impatient.decode([item(MONEY, data)], 100)
    assert result == HUNG
    assert await impatient.decode([good, item(MONEY, data)], 100, total_s=-1) == [LEFT, LEFT]
    await impatient.aclose()
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]


@pytest.mark.campaign
async def test_what_takes_the_processor_for_too_long_ends_itself() -> None:
    """However little of a processor the machine has for it: a clock would be more patient."""
    data = zigzag(1_000_000) + b"\x7f" * 1_000_000
    patient = Patient()
    items = [item(MONEY, data), item('"long"', b"\x02")]
    assert await patient.decode(items, 100) == [HUNG, Decoded(0, "1", False)]
    await patient.aclose()


@pytest.mark.campaign
async def test_a_hostile_schema(decoder: ProcessDecoder) -> None:
    deep = '{"type": "array", "items": ' * 20_000 + '"null"' + "}" * 20_000
    assert await decoder.check(Texts((deep,))) is not None
    assert await decoder.decode([item(deep, b"\0"), item('"long"', b"\x02")], 9) != []
    assert await decoder.decode([item('"long"', b"\x02")], 100) == [Decoded(0, "1", False)]


def broad(number: int) -> str:
    """A schema that takes some megabytes."""
    fields = [{"name": f"f{each}", "type": {"type": "array", "items": ["null", "int"]}} for each in range(3700)]
    return json.dumps({"type": "record", "name": f"Broad{number}", "fields": fields})


@pytest.mark.campaign
async def test_a_schema_never_stands_for_another_one(decoder: ProcessDecoder) -> None:
    """One of them ends the process, which has known the first already."""
    two = json.dumps({"type": "fixed", "name": "Two", "size": 2})
    hostile = '"long"' + " " * 80_000_000
    items = [item(two, b"\x02x"), item(hostile, b"\x02"), item('"string"', b"\x02x")]
    first, second, third = await decoder.decode(items, 100)
    assert (first, third) == (Decoded(0, '"0278"', False), Decoded(0, '"x"', False))
    assert isinstance(second, str)


@pytest.mark.campaign
@pytest.mark.parametrize("remembered", [SCHEMA_CHARACTERS_MAX, 1 << 40])
async def test_others_schemas_take_nobodys_room(
    decoder: ProcessDecoder, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    monkeypatch.setattr(process_module, "SCHEMA_CHARACTERS_MAX", remembered)
    for number in range(40):
        assert await decoder.check(Texts((broad(number),))) is None
    assert await decoder.decode([item('"long"', b"\x02")], 100) == [Decoded(0, "1", False)]


FULL_WITH_TWO = """
import json, os, signal, sys
known = 0
for line in sys.stdin:
    job = json.loads(line)
    if "define" in job:
        known += 1
        if known > 1 or job["texts"] == ["too large"]:
            %s
    print(json.dumps({"why": None, "results": []}), flush=True)
"""


@pytest.mark.parametrize(
    ("ending", "why"), [("sys.exit()", DIED), ("os.kill(os.getpid(), signal.SIGPROF)", HUNG)], ids=["dies", "hangs"]
)
async def test_a_process_that_ends_for_others_schemas(
    decoder: ProcessDecoder, monkeypatch: pytest.MonkeyPatch, ending: str, why: str
) -> None:
    """Where memory ends is not always where it can be said."""
    monkeypatch.setattr(process_module, "_PROGRAM", FULL_WITH_TWO % ending)
    begun: list[Any] = []
    begin = trio.lowlevel.open_process

    async def counted(*args: Any, **options: Any) -> trio.Process:
        begun.append(args)
        return await begin(*args, **options)

    monkeypatch.setattr(trio.lowlevel, "open_process", counted)
    assert [await decoder.check(Texts((text,))) for text in ("one", "two")] == [None, None]
    assert await decoder.check(Texts(("too large",))) == f"the schema: {why}"
    assert len(begun) == 3
    assert await decoder.check(Texts(("one",))) is None
    assert await decoder.check(Texts(("too large",))) == f"the schema: {why}"
    assert await decoder.check(Texts(("one",))) is None
    assert len(begun) == 4, "it was alone, so it is remembered, and what others have defined stays"


@pytest.mark.campaign
async def test_waiting_for_hostile_records_of_another_one_takes_no_time_of_ones_own() -> None:
    data = zigzag(1_000_000) + b"\x7f" * 1_000_000
    patient = Patient()  # a hostile one ends the process by what it uses of a processor, which takes seconds
    good = item('"long"', b"\x02")
    with trio.fail_after(PATIENCE_S):
        await patient.decode([good], 100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient.decode, [item(MONEY, data)], 100)
            await wait_all_tasks_blocked()
            assert await patient.decode([good], 100, total_s=0.5) == [Decoded(0, "1", False)]
        await patient.aclose()


async def test_results_are_bounded(decoder: ProcessDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "CHARACTERS_MAX", 100)
    items = [item('"bytes"', zigzag(60) + b"x" * 60)] * (CHUNK_ITEMS + 2)
    results = await decoder.decode(items, 1000)
    assert results[-2:] == [TOO_MUCH] * 2
    assert set(map(type, results[:CHUNK_ITEMS])) == {Decoded}


async def test_a_process_that_cannot_be_begun(
    decoder: ProcessDecoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def none_left(*args: Any, **options: Any) -> trio.Process:
        await trio.lowlevel.checkpoint()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    good = item('"long"', b"\x02")
    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "open_process", none_left)
        assert await decoder.decode([good, good], 100) == [NOT_BEGUN, NOT_BEGUN]
        assert await decoder.check(Texts((ORDER,))) == NOT_BEGUN
    assert [each.getMessage() for each in caplog.records] == [f"{NOT_BEGUN}: resource temporarily unavailable"]
    assert await decoder.check(Texts((ORDER,))) is None
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]


async def test_who_leaves_in_the_middle_leaves_no_mess(decoder: ProcessDecoder) -> None:
    good = item('"long"', b"\x02")
    with trio.move_on_after(0):
        await decoder.decode([good], 100)
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decoder.decode, [item('"long"', zigzag(n)) for n in range(200)], 100)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]


async def test_a_process_that_was_ended_is_begun_again(decoder: ProcessDecoder) -> None:
    good = item('"long"', b"\x02")
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]
    process = decoder._process
    assert process is not None
    process.kill()
    await process.wait()
    assert await decoder.check(Texts((ORDER,))) is None
    assert await decoder.decode([good], 100) == [Decoded(0, "1", False)]

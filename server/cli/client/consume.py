"""`barnabas consume`: the newest records, or from a place on, or what comes.

Who follows waits for brokers that are away, as long as it takes, and goes on where it was; it ends when nobody reads
its output any more (`| head`).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import trio

from barnabas.server.cli.client.client_results import FAILED, OK, Unclear, complain, complain_of, note
from barnabas.server.cli.client.record_texts import Format, hex_format, text_format
from barnabas.server.cli.output_reader import while_read
from barnabas.server.client.client import Client, TopicPartition, raise_failed
from barnabas.server.client.failures import Failed, Rejected, Unreachable
from barnabas.server.client.offsets import Span, list_offsets, spans
from barnabas.server.client.reader import SEARCH_BYTES_MAX, Reader, newest
from barnabas.server.client.reading import Read, in_time
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.texts.record_json import json_format
from barnabas.server.client.texts.when import EARLIEST, LATEST, NAMED_MAX, Log, Place, outside, parse_place
from barnabas.server.client.topics import describe_topics

NEWEST: Final = 10


async def consume(chosen: argparse.Namespace, client: Client) -> int:
    """The command; ends by itself, or by Ctrl-C."""
    place = _place(chosen)
    view = raise_failed(f"topic {chosen.topic}", (await describe_topics(client, [chosen.topic]))[chosen.topic])
    for index in chosen.partition or ():
        if index not in view.partitions:
            raise Unclear(
                f"topic {chosen.topic} has no partition {index}; it has {counted(len(view.partitions), 'partition')}"
            )
    partitions = [(chosen.topic, index) for index in sorted(set(chosen.partition or view.partitions))]
    found = await spans(client, partitions, committed=chosen.committed)
    code = complain_of((_name(each), span) for each, span in found.items() if isinstance(span, Failed))
    there = {each: span for each, span in found.items() if isinstance(span, Span)}
    output = _Output(_format(chosen), _filter(chosen.filter))
    if place is None:
        if chosen.count is None or chosen.count:
            code = max(code, await _newest(chosen, client, there, output))
        start = {each: span.end for each, span in there.items()}
        left = None
    else:
        start = await _start(client, place, there, follow=chosen.follow)
        left = chosen.count
    if not chosen.follow:
        if place is not None:
            stop = {each: span.end for each, span in there.items()}
            code = max(code, await _read(chosen, client, start, stop, left, output))
        if not output.records and not code:
            which = "" if chosen.filter is None else f" with {chosen.filter!r}"
            note(f"topic {chosen.topic}: no record{which}{'' if place is None else ' from there on'}")
        return code
    return max(code, await while_read(lambda: _read(chosen, client, start, {}, left, output)))


class _Output:
    """Prints records, a round at a time. `records`: how many were printed."""

    def __init__(self, format_: Format, wanted: Callable[[Read], bool] | None) -> None:
        self._format = format_
        self.wanted = wanted
        self.records = 0

    def write(self, records: list[Read]) -> None:
        if records:
            data = b"".join(map(self._format, records))
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            self.records += len(records)


async def _newest(
    chosen: argparse.Namespace, client: Client, there: Mapping[TopicPartition, Span], output: _Output
) -> int:
    count = NEWEST if chosen.count is None else chosen.count
    search, failed = await newest(client, there, count, wanted=output.wanted, committed=chosen.committed)
    output.write(search.result())
    left = search.not_searched
    if left and len(search.result()) < count:
        places = ", ".join(f"{_name(each)} below {offset:,}" for each, offset in sorted(left.items()))
        note(f"not looked at after {SEARCH_BYTES_MAX // 1024 // 1024} MiB: {places}; go on with --from")
    return complain_of((_name(each), why) for each, why in failed.items())


async def _read(
    chosen: argparse.Namespace,
    client: Client,
    start: Mapping[TopicPartition, int],
    stop: Mapping[TopicPartition, int],
    left: int | None,
    output: _Output,
) -> int:
    """Print what comes until the stops, if there are any, and `left` records at most."""
    reader = Reader(client, start, stop, committed=chosen.committed, patient=chosen.follow)
    brokers = _Brokers(client)
    told: set[TopicPartition] = set()
    code = OK
    while not reader.is_done and left != 0:
        records = await (brokers.read(reader) if chosen.follow else reader.read())
        by_partition: dict[int, list[Read]] = {}
        for record in records:
            if output.wanted is None or output.wanted(record):
                by_partition.setdefault(record.partition, []).append(record)
        ordered = in_time(by_partition.values())[:left]
        output.write(ordered)
        if left is not None:
            left -= len(ordered)
        for each, span in reader.skipped.items():
            if each not in told:
                told.add(each)
                note(f"{_name(each)}: offsets {span.start:,} to {span.end - 1:,} are no longer in the log")
        for each, why in reader.failed.items():
            if each not in told:
                told.add(each)
                complain(f"{_name(each)}: {why}")
                code = FAILED
    return code


class _Brokers:
    """Waits for brokers that do not answer, and for partitions that cannot be read; says so once, and when that is
    over.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._are_away = False
        self._troubled: set[TopicPartition] = set()
        self._tries = 0

    async def read(self, reader: Reader) -> list[Read]:
        """The next records. Raises Rejected."""
        try:
            records = await reader.read()
        except Rejected:
            raise
        except Unreachable as error:
            if not self._are_away:
                note(f"{self._client.bootstrap} does not answer, waiting ({error})")
                self._are_away = True
            self._tries += 1
            await trio.sleep(self._client.pauses.after(self._tries))
            return []
        self._tries = 0
        if self._are_away:
            note(f"{self._client.bootstrap} answers again")
            self._are_away = False
        self._say_changes(reader)
        return records

    def _say_changes(self, reader: Reader) -> None:
        troubled = reader.troubled
        worse = sorted(troubled.keys() - self._troubled)
        if worse:
            note(f"{_some(map(_name, worse))} cannot be read now, waiting ({troubled[worse[0]]})")
        better = sorted(self._troubled - troubled.keys() - reader.failed.keys())
        if better:
            note(f"{_some(map(_name, better))} can be read again")
        self._troubled = set(troubled)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - NAMED_MAX} more" if len(every) > NAMED_MAX else ""
    return f"{', '.join(every[:NAMED_MAX])}{more}"


async def _start(
    client: Client, place: Place, there: Mapping[TopicPartition, Span], *, follow: bool
) -> dict[TopicPartition, int]:
    """The offset in each partition, moved into the log. Raises Unclear for one that no log has reached."""
    if place.end is not None:
        return {each: span.start if place.end == EARLIEST else span.end for each, span in there.items()}
    if place.offset is not None:
        return _from_offset(place.offset, there, follow=follow)
    assert place.time_ms is not None
    found = await list_offsets(client, dict.fromkeys(there, place.time_ms))
    start = {}
    for each, span in there.items():
        offset = raise_failed(_name(each), found[each]).offset
        start[each] = span.end if offset < 0 else max(offset, span.start)
    return start


def _from_offset(offset: int, there: Mapping[TopicPartition, Span], *, follow: bool) -> dict[TopicPartition, int]:
    """Raises Unclear. Partitions are of different length, so that some may end before it."""
    short = [Log(_name(each), *span) for each, span in there.items() if offset > span.end]
    if short and len(short) == len(there):
        raise Unclear(f"--from: {outside(offset, short)}")
    for each, span in there.items():
        if offset < span.start:
            note(f"{_name(each)}: offsets {offset:,} to {span.start - 1:,} are no longer in the log")
    if short and follow:
        ends = _some(f"{each.name} ends at {each.end:,}" for each in short)
        note(f"before offset {offset:,} {ends}: what comes there is printed from now on")
    return {each: min(max(offset, span.start), span.end) for each, span in there.items()}


def _place(chosen: argparse.Namespace) -> Place | None:
    """None: the newest."""
    if chosen.start is None:
        return None
    try:
        place = parse_place(chosen.start, int(time.time() * 1000))
    except ValueError as error:
        raise Unclear(f"--from: {error}") from None
    if place.end == LATEST and not chosen.follow:
        raise Unclear("--from latest is the end: with --follow it prints what comes")
    return place


def _format(chosen: argparse.Namespace) -> Format:
    if chosen.format == "json":
        return json_format
    if chosen.format == "hex":
        return hex_format
    try:
        to_terminal = os.isatty(sys.stdout.fileno())
    except (OSError, ValueError):
        to_terminal = False
    return text_format(key=chosen.key, meta=chosen.meta, to_terminal=to_terminal)


def _filter(text: str | None) -> Callable[[Read], bool] | None:
    if text is None:
        return None
    sought = os.fsencode(text)

    def wanted(record: Read) -> bool:
        if sought in (record.value or b"") or sought in (record.key or b""):
            return True
        return any(
            sought in name.encode("utf-8", "surrogateescape") or sought in (value or b"")
            for name, value in record.headers
        )

    return wanted


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"

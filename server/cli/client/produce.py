"""`barnabas produce`: records out of lines, files or JSON.

Lines go out as they come: what is typed at a terminal at once, what a pipe holds in portions. The first record that
fails ends it, as what follows it would be out of order; it is said how many went before, and how many of its portion
went after it, which are in other partitions.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.compression import CODEC_NAMES
from barnabas.server.cli.client.client_results import FAILED, OK, REFUSED, Unclear, complain, note
from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import Client
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.producer import AFTER, BESIDE, Producer
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.texts.record_json import from_json
from barnabas.server.client.topics import describe_topics
from barnabas.server.runtime.wording import in_words

_CHUNK: Final = 1024 * 1024
LINE_MAX: Final = 100 * 1024 * 1024
"""More than any broker takes as one record."""


async def produce(chosen: argparse.Namespace, client: Client) -> int:
    """The command."""
    make = _Maker(chosen)
    described = (await describe_topics(client, [chosen.topic]))[chosen.topic]
    if isinstance(described, Failed):
        is_missing = described.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        hint = f"; `barnabas topic create {chosen.topic}` makes it" if is_missing else ""
        complain(f"topic {chosen.topic}: {described}{hint}")
        return FAILED
    if chosen.partition is not None and chosen.partition not in described.partitions:
        many = counted(len(described.partitions), "partition")
        raise Unclear(f"topic {chosen.topic} has no partition {chosen.partition}; it has {many}")
    producer = Producer(client, lambda: int(time.time() * 1000), codec=CODEC_NAMES.index(chosen.compression))
    sent = 0
    try:
        if chosen.file:
            for name in chosen.file:
                sent += await _send(producer, [make.from_file(name)], sent, [name])
        else:
            async for lines in _lines():
                records, unclear = make.from_lines(lines)
                names = [f"line {number}" for number in range(sent + 1, sent + len(records) + 1)]
                sent += await _send(producer, records, sent, names)
                if unclear is not None:
                    raise unclear
    except _Stopped as stopped:
        complain(str(stopped))
        for text in stopped.beside:
            note(text)
        return FAILED
    except Unclear as error:
        complain(str(error))
        if sent:
            note(f"before it {counted(sent, 'record')} went to {chosen.topic}")
        return REFUSED
    note(f"{counted(sent, 'record')} sent to {chosen.topic}")
    return OK


class _Stopped(Exception):
    """A record was not sent. `beside`: what became of others, in sentences."""

    def __init__(self, text: str, beside: Iterable[str]) -> None:
        super().__init__(text)
        self.beside = beside


async def _send(producer: Producer, records: Sequence[ToSend], before: int, names: Sequence[str]) -> int:
    """How many there were. before: how many went earlier. Raises _Stopped."""
    if not records:
        return 0
    topic = records[0].topic
    try:
        results = await producer.send(records)
    except ClientError as error:
        unknown = f"whether {names[0]} {'and those after it ' if len(records) > 1 else ''}went is not known"
        raise _Stopped(str(error), [f"before that {counted(before, 'record')} went to {topic}; {unknown}"]) from None
    went = [not isinstance(each, Failed) for each in results]
    failed = [(number, each) for number, each in enumerate(results) if isinstance(each, Failed)]
    if not failed:
        return len(results)
    number, why = next((each for each in failed if each[1].message not in (BESIDE, AFTER)), failed[0])
    earlier, later = before + sum(went[:number]), sum(went[number:])
    beside = []
    if before + number:
        of_all = "" if earlier == before + number else f"{earlier:,} of "
        beside.append(f"before it {of_all}{counted(before + number, 'record')} went to {topic}")
    if later:
        beside.append(f"after it {counted(later, 'record')} went to other partitions")
    raise _Stopped(f"{names[number]} was not sent: {why}{_hint(records[number], why)}", beside)


def _hint(record: ToSend, why: Failed) -> str:
    if why.code != ErrorCode.MESSAGE_TOO_LARGE:
        return ""
    room = record.size + 100 + 10 * len(record.headers)  # a batch of its own, at most
    return f"; `barnabas topic alter {record.topic} --set max.message.bytes={room}` makes room for it"


class _Maker:
    """Records as the command line wants them."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        if chosen.json and (chosen.key_separator is not None or chosen.file):
            raise Unclear("--json goes with neither --key-separator nor --file: the lines say it all")
        if chosen.key is not None and chosen.key_separator is not None:
            raise Unclear("either --key, or --key-separator")
        if chosen.key_separator == "":
            raise Unclear("--key-separator must not be empty")
        self._topic = chosen.topic
        self._key = None if chosen.key is None else os.fsencode(chosen.key)
        self._separator = None if chosen.key_separator is None else os.fsencode(chosen.key_separator)
        self._partition = chosen.partition
        self._is_json = chosen.json
        self._tombstones = chosen.tombstones
        self._lines = 0
        self._headers = []
        for text in chosen.header:
            name, equals, value = text.partition("=")
            if not equals:
                raise Unclear(f"--header {text}: NAME=VALUE is expected")
            self._headers.append((name, os.fsencode(value)))

    def from_lines(self, lines: Iterable[bytes]) -> tuple[list[ToSend], Unclear | None]:
        """Records up to the first line that is none, and what is wrong with that, with its number."""
        records: list[ToSend] = []
        try:
            for line in lines:
                records.append(self._from_line(line))
        except Unclear as error:
            return records, error
        return records, None

    def _from_line(self, line: bytes) -> ToSend:
        self._lines += 1
        if self._is_json:
            try:
                record = from_json(line, self._topic)
            except ValueError as error:
                raise Unclear(f"line {self._lines}: {error}") from None
            headers = (*record.headers, *self._headers)
            key = self._key if record.key is None else record.key
            return record._replace(headers=headers, partition=self._partition, key=key)
        key, value = self._key, line
        if self._separator is not None:
            key, separator, value = line.partition(self._separator)
            if not separator:
                raise Unclear(f"line {self._lines} has no {self._separator.decode(errors='replace')!r} after a key")
        return self._record(key, value)

    def from_file(self, name: str) -> ToSend:
        try:
            with open(name, "rb") as file:
                return self._record(self._key, file.read())
        except OSError as error:
            raise Unclear(in_words(error)) from None

    def _record(self, key: bytes | None, value: bytes) -> ToSend:
        is_null = self._tombstones and not value
        return ToSend(self._topic, None if is_null else value, key, tuple(self._headers), self._partition)


def _read() -> bytes:
    """What there is on standard input; waits for something. Without Python's buffer: that would be locked when a thread
    is left waiting here, and the interpreter could not end.
    """
    try:
        return os.read(sys.stdin.fileno(), _CHUNK)
    except io.UnsupportedOperation:  # not a file
        return sys.stdin.buffer.read(_CHUNK)


async def _lines() -> AsyncIterator[list[bytes]]:
    """Lines of standard input without their ends, as many as there are. Raises Unclear for one without end."""
    begun: list[bytes] = []
    size = 0
    while data := await trio.to_thread.run_sync(_read, abandon_on_cancel=True):
        begun.append(data)
        size += len(data)
        if b"\n" in data:
            *lines, rest = b"".join(begun).split(b"\n")
            begun, size = [rest], len(rest)
            yield [line.removesuffix(b"\r") for line in lines]
        if size > LINE_MAX:
            raise Unclear(f"a line is longer than {LINE_MAX // 1024 // 1024} MiB")
    if size:
        yield [b"".join(begun)]

"""Avro for tests: data as a producer writes them, decoding in this process, a registry that is asked through pipes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import h11
import pytest
import trio
from trio.testing import memory_stream_pair

pytest.importorskip("fastavro")

import fastavro

from barnabas.server.console.avro.process import TOTAL_S, Decoded, Item, Texts
from barnabas.server.console.avro.worker import Jobs

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


def encoded(schema: str, value: Any, schema_id: int | None = None) -> bytes:
    """schema_id: with Confluent's framing."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), value)
    frame = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4)
    return frame + stream.getvalue()


class HereDecoder:
    """A `Decoder` without a process, for tests whose time is virtual."""

    def __init__(self) -> None:
        self._jobs = Jobs()
        self._known: dict[Texts, int] = {}

    async def check(self, texts: Texts) -> str | None:
        await trio.lowlevel.checkpoint()
        number = self._known.setdefault(texts, len(self._known))
        why: str | None = self._jobs.do({"define": number, "texts": list(texts.all)})["why"]
        return why

    async def decode(
        self, items: Sequence[Item], characters_max: int, *, is_pretty: bool = False, total_s: float = TOTAL_S
    ) -> list[Decoded | str]:
        found: list[Decoded | str] = []
        for item in items:
            whys = [await self.check(texts) for texts, _ in item.attempts]
            good = [
                [self._known[texts], skip]
                for (texts, skip), why in zip(item.attempts, whys, strict=True)
                if why is None
            ]
            if not good:
                found.append(str(whys[0]))
                continue
            job = {"items": [[b64encode(item.data).decode(), good]], "characters": characters_max, "pretty": is_pretty}
            (result,) = self._jobs.do(json.loads(json.dumps(job)))["results"]
            found.append(result if isinstance(result, str) else Decoded(*result))
        return found

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class FakeRegistry:
    """Answers by path: a document, or (status, bytes). `asked`: the paths. `seen`: the headers of the last request.
    open_stream: what a client connects with.
    """

    def __init__(self, nursery: trio.Nursery, answers: Mapping[str, Any]) -> None:
        self._nursery = nursery
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.seen: dict[str, str] = {}

    async def open_stream(self, host: str, port: int, tls: Any) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve, ours)
        return theirs

    async def _serve(self, stream: trio.abc.Stream) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Request):
                self.asked.append(event.target.decode())
                self.seen = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.EndOfMessage):
                break
        answer = self.answers.get(self.asked[-1], (404, b'{"error_code":40403}'))
        if answer == "silence":
            await trio.sleep_forever()
        if isinstance(answer, bytes):  # what is no HTTP
            await stream.send_all(answer)
            return
        status, body = answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())
        data = connection.send(h11.Response(status_code=status, headers=[("content-length", str(len(body)))]))
        data += connection.send(h11.Data(data=body)) + connection.send(h11.EndOfMessage())
        try:
            await stream.send_all(data)
        except trio.BrokenResourceError:
            pass

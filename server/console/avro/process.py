"""Decoding in another process (`worker.py`), which is begun when it is needed, and anew when it has died or hung.

Whoever waits gets `CHUNK_ITEMS` decoded at a time, so that nobody waits for another one's hundred thousand. A chunk on
which the process dies or is silent for `chunk_s` is tried item by item, and only the culprit stays undecoded; all of
that takes `total_s`, then the rest stays so too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import trio

CHUNK_ITEMS: Final = 64
CHUNK_BYTES: Final = 1024 * 1024
CHUNK_S: Final = 2.0
TOTAL_S: Final = 5.0
START_S: Final = 20.0
"""A busy machine may take long to begin a process."""
DATUM_BYTES_MAX: Final = 1024 * 1024
"""Longer ones are not decoded."""
SCHEMAS_MAX: Final = 64
"""Which the process remembers."""
RESULT_BYTES_MAX: Final = 64 * 1024 * 1024
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from barnabas.server.console.avro.worker import main; main()"
)
TOO_LONG: Final = f"it is longer than {DATUM_BYTES_MAX // 1024:,} KiB"
DIED: Final = "decoding it crashed"
HUNG: Final = "decoding it took too long"
NOT_BEGUN: Final = "the process that decodes Avro cannot be started"
LEFT: Final = "there was no time left to decode it"


class Texts(NamedTuple):
    """A schema as it was given: its text, before it those whose types it names."""

    all: tuple[str, ...]


class Item(NamedTuple):
    """A datum and what to try: schemas, and how many bytes stand before the datum."""

    data: bytes
    attempts: tuple[tuple[Texts, int], ...]


class Decoded(NamedTuple):
    """`which`: attempt it was. `text`: JSON, as far as characters were wanted."""

    which: int
    text: str
    is_cut: bool


class Decoder(Protocol):
    """What decodes: the process, or in tests the same without one."""

    async def check(self, texts: Texts) -> str | None:
        """Why this is no schema; None: it is one."""
        ...

    async def decode(
        self, items: Sequence[Item], characters_max: int, *, is_pretty: bool = False, total_s: float = TOTAL_S
    ) -> list[Decoded | str]:
        """Of each item what it is, or a sentence that says why it stays bytes."""
        ...

    async def aclose(self) -> None: ...


class _Gone(Exception):
    """The process has died, or was ended because it was silent; the text says which. began: what it was asked is not to
    blame, for it did not even begin.
    """

    def __init__(self, text: str, *, began: bool = True) -> None:
        super().__init__(text)
        self.began = began


class ProcessDecoder:
    """See the module. A `Decoder`."""

    def __init__(self, *, chunk_s: float = CHUNK_S) -> None:
        self._chunk_s = chunk_s
        self._lock = trio.Lock()
        self._process: trio.Process | None = None
        self._known: dict[Texts, int] = {}
        self._wrong: dict[Texts, str] = {}
        self._unread = bytearray()

    async def check(self, texts: Texts) -> str | None:
        async with self._lock:
            return await self._define(texts)

    async def decode(
        self, items: Sequence[Item], characters_max: int, *, is_pretty: bool = False, total_s: float = TOTAL_S
    ) -> list[Decoded | str]:
        results: list[Decoded | str] = []
        deadline = trio.current_time() + total_s
        for chunk in _chunks(items):
            async with self._lock:
                results += await self._chunk(chunk, characters_max, is_pretty, deadline)
        return results

    async def aclose(self) -> None:
        async with self._lock:
            await self._end()

    async def _chunk(
        self, items: Sequence[Item], characters_max: int, is_pretty: bool, deadline: float
    ) -> list[Decoded | str]:
        if trio.current_time() > deadline:
            return [LEFT] * len(items)
        if len(self._known) >= SCHEMAS_MAX or (self._process is not None and self._process.poll() is not None):
            await self._end()
        results: list[Decoded | str] = [TOO_LONG] * len(items)
        sent: list[int] = []
        packed: list[Any] = []
        for number, item in enumerate(items):
            attempts: list[tuple[int, int]] = []
            whys = []
            for texts, skip in item.attempts:
                why = await self._define(texts)
                if why is None:
                    attempts.append((self._known[texts], skip))
                else:
                    whys.append(why)
            if not attempts:
                results[number] = whys[0] if whys else "there is no schema"
            elif len(item.data) <= DATUM_BYTES_MAX:
                sent.append(number)
                packed.append([b64encode(item.data).decode(), attempts])
        if not sent:
            return results
        try:
            answer = await self._ask({"items": packed, "characters": characters_max, "pretty": is_pretty})
        except _Gone as gone:
            if len(items) == 1:
                return [str(gone)]
            return [each for item in items for each in await self._chunk([item], characters_max, is_pretty, deadline)]
        for number, result in zip(sent, answer["results"], strict=True):
            results[number] = result if isinstance(result, str) else Decoded(*result)
        return results

    async def _define(self, texts: Texts) -> str | None:
        if texts in self._wrong:
            return self._wrong[texts]
        if self._process is not None and texts in self._known:
            return None
        if len(self._wrong) >= SCHEMAS_MAX:
            self._wrong.clear()
        number = len(self._known)
        try:
            why: str | None = (await self._ask({"define": number, "texts": list(texts.all)}))["why"]
        except _Gone as gone:
            if not gone.began:
                return str(gone)
            why = f"the schema: {gone}"
        if why is None:
            self._known[texts] = number
        else:
            self._wrong[texts] = why
        return why

    async def _ask(self, job: dict[str, Any]) -> Any:
        """Raises _Gone; cut off, the process is ended too, for it is in the middle of something."""
        is_done = False
        process = self._process or await self._begin()
        try:
            with trio.fail_after(self._chunk_s):
                assert process.stdin is not None
                await process.stdin.send_all(json.dumps(job).encode() + b"\n")
                answer = json.loads(await self._line(process))
            is_done = True
            return answer
        except trio.TooSlowError:
            raise _Gone(HUNG) from None
        except (OSError, trio.BrokenResourceError, ValueError):
            raise _Gone(DIED) from None
        finally:
            if not is_done:
                await self._end()

    async def _begin(self) -> trio.Process:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._process = process
        assert process.stdin is not None
        is_done = False
        try:
            with trio.fail_after(START_S):
                await process.stdin.send_all(b'{"items": [], "characters": 0, "pretty": false}\n')
                await self._line(process)
            is_done = True
        except (OSError, ValueError, trio.BrokenResourceError, trio.TooSlowError):
            raise _Gone(NOT_BEGUN, began=False) from None
        finally:
            if not is_done:
                await self._end()
        return process

    async def _line(self, process: trio.Process) -> bytes:
        """Raises ValueError for what is no line."""
        assert process.stdout is not None
        while b"\n" not in self._unread[-65536:]:
            data = await process.stdout.receive_some(65536)
            if not data or len(self._unread) > RESULT_BYTES_MAX:
                raise ValueError("no line")
            self._unread += data
        line, self._unread = bytes(self._unread), bytearray()
        return line

    async def _end(self) -> None:
        process, self._process = self._process, None
        self._known.clear()
        self._unread.clear()
        if process is None:
            return
        with trio.CancelScope(shield=True):
            with suppress(OSError):
                process.kill()
            await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()


def _chunks(items: Sequence[Item]) -> list[list[Item]]:
    found: list[list[Item]] = []
    size = CHUNK_BYTES
    for item in items:
        if size + len(item.data) > CHUNK_BYTES or len(found[-1]) >= CHUNK_ITEMS:
            found.append([])
            size = 0
        found[-1].append(item)
        size += len(item.data)
    return found

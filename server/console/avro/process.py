"""Decoding in another process (`worker.py`), which is begun when it is needed, and anew when it has died or hung.

Whoever waits gets `CHUNK_ITEMS` decoded at a time, so that nobody waits for another one's hundred thousand. A chunk on
which the process dies or is silent for `chunk_s` is tried item by item, each when its turn comes, and only the culprit
stays undecoded. The process ends itself when it has used a processor for too long (`worker.CPU_S`): that says something
about what it was given, and the clock of a busy machine does not. One call has `total_s` of the process; what it waits
for others' turns is not counted in that.

The process knows schemas by numbers, of which none is given twice: what was begun with one process cannot meet another
one's schema in the next.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

import trio

from barnabas.server.console.avro.decoding import NO_ROOM
from barnabas.server.runtime.wording import system_says

log = logging.getLogger("barnabas.console")

CHUNK_ITEMS: Final = 64
CHUNK_BYTES: Final = 1024 * 1024
CHUNK_S: Final = 10.0
"""By the clock: a busy machine gives the process a fifth of a processor."""
TOTAL_S: Final = 5.0
WAIT_S: Final = 15.0
"""For others' turns, in one call."""
START_S: Final = 20.0
"""A busy machine may take long to begin a process."""
DATUM_BYTES_MAX: Final = 1024 * 1024
"""Longer ones are not decoded."""
SCHEMAS_MAX: Final = 64
"""Which the process remembers."""
SCHEMA_CHARACTERS_MAX: Final = 2 * 1024 * 1024
"""Of all that it remembers: in memory they are twenty times as long, and others' data need room beside them."""
WRONG_S: Final = 60.0
"""How long it is remembered that a schema is none: it may have met a busy machine."""
RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
CHARACTERS_MAX: Final = 64 * 1024 * 1024
"""Of all results of one call."""
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from barnabas.server.console.avro.worker import main; main()"
)
TOO_LONG: Final = f"it is longer than {DATUM_BYTES_MAX // 1024:,} KiB"
DIED: Final = "decoding it crashed"
HUNG: Final = "decoding it took too long"
NOT_BEGUN: Final = "the process that decodes Avro cannot be started"
LEFT: Final = "there was no time left to decode it"
TOO_MUCH: Final = "what stands before it is so long that it was not decoded"
_MAY_BE_OTHERS: Final = (NO_ROOM, f"the schema: {DIED}", f"the schema: {HUNG}")
"""What may happen to a schema only because others' have taken the room: memory may end anywhere in the process."""
NOT_TRIED: Final = (LEFT, TOO_MUCH)


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


@dataclass(slots=True)
class _Left:
    """What a call may yet use: of the process, of waiting, of results."""

    work_s: float
    wait_s: float
    characters: int

    def why_not(self) -> str | None:
        """Why there is no next turn."""
        if self.work_s <= 0 or self.wait_s <= 0:
            return LEFT
        return TOO_MUCH if self.characters <= 0 else None


class ProcessDecoder:
    """See the module. A `Decoder`."""

    def __init__(self, *, chunk_s: float = CHUNK_S) -> None:
        self._chunk_s = chunk_s
        self._lock = trio.Lock()
        self._process: trio.Process | None = None
        self._numbers = count()
        self._known: dict[Texts, int] = {}
        self._wrong: dict[Texts, tuple[float, str]] = {}
        self._unread = bytearray()
        self._was_told = False

    async def check(self, texts: Texts) -> str | None:
        async with self._lock:
            try:
                return (await self._define_all([texts])).get(texts)
            except _Gone as gone:
                return str(gone)

    async def decode(
        self, items: Sequence[Item], characters_max: int, *, is_pretty: bool = False, total_s: float = TOTAL_S
    ) -> list[Decoded | str]:
        results: list[Decoded | str] = []
        left = _Left(total_s, WAIT_S, CHARACTERS_MAX)
        for chunk in _chunks(items):
            try:
                results += await self._turn(chunk, characters_max, is_pretty, left)
            except _Gone as gone:
                if len(chunk) == 1 or not gone.began:
                    results += [str(gone)] * len(chunk)
                    continue
                for item in chunk:
                    try:
                        results += await self._turn([item], characters_max, is_pretty, left)
                    except _Gone as culprit:
                        results.append(str(culprit))
        return results

    async def aclose(self) -> None:
        async with self._lock:
            await self._end()

    async def _turn(
        self, items: Sequence[Item], characters_max: int, is_pretty: bool, left: _Left
    ) -> list[Decoded | str]:
        """When it is its turn, alone with the process. Raises _Gone."""
        if why := left.why_not():
            return [why] * len(items)
        began = trio.current_time()
        with trio.move_on_after(left.wait_s) as waiting:
            await self._lock.acquire()
        if waiting.cancelled_caught:
            left.wait_s = 0
            return [LEFT] * len(items)
        left.wait_s -= trio.current_time() - began
        began = trio.current_time()
        try:
            results = await self._together(items, characters_max, is_pretty, began + left.work_s)
        finally:
            self._lock.release()
            left.work_s -= trio.current_time() - began
        left.characters -= sum(len(each.text) for each in results if isinstance(each, Decoded))
        return results

    async def _together(
        self, items: Sequence[Item], characters_max: int, is_pretty: bool, until: float
    ) -> list[Decoded | str]:
        wrong = await self._define_all((texts for item in items for texts, _ in item.attempts), until)
        results: list[Decoded | str] = [TOO_LONG] * len(items)
        sent: list[int] = []
        packed: list[Any] = []
        for number, item in enumerate(items):
            attempts = [(self._known[texts], skip) for texts, skip in item.attempts if texts not in wrong]
            if not attempts:
                results[number] = wrong[item.attempts[0][0]] if item.attempts else "there is no schema"
            elif len(item.data) <= DATUM_BYTES_MAX:
                sent.append(number)
                packed.append([b64encode(item.data).decode(), attempts])
        if sent:
            answer = await self._ask({"items": packed, "characters": characters_max, "pretty": is_pretty})
            for number, result in zip(sent, answer["results"], strict=True):
                results[number] = result if isinstance(result, str) else Decoded(*result)
        return results

    async def _define_all(self, every: Iterable[Texts], until: float = float("inf")) -> dict[Texts, str]:
        """Afterwards the process knows them, but for those that are no schemas: why. Raises _Gone if there is no
        process.
        """
        is_dead = self._process is not None and self._process.poll() is not None
        length = sum(len(text) for texts in self._known for text in texts.all)
        if is_dead or len(self._known) >= SCHEMAS_MAX or length > SCHEMA_CHARACTERS_MAX:
            await self._end()
        wanted = dict.fromkeys(every)
        now = trio.current_time()
        wrong = {each: self._wrong[each][1] for each in wanted if each in self._wrong and now < self._wrong[each][0]}
        is_anew = False
        # One that ends the process takes the others with it, so they are looked through again.
        while missing := [each for each in wanted if each not in wrong and each not in self._known]:
            if trio.current_time() > until:
                return wrong | dict.fromkeys(missing, LEFT)
            is_alone = not self._known
            why = await self._define(missing[0])
            if why in _MAY_BE_OTHERS and not is_alone and not is_anew:
                is_anew = True
                wanted = dict.fromkeys((missing[0], *wanted))  # alone, so that it is known who is to blame
                await self._end()
            elif why is not None:
                wrong[missing[0]] = why
        return wrong

    async def _define(self, texts: Texts) -> str | None:
        """Raises _Gone if there is no process."""
        number, is_alone = next(self._numbers), not self._known
        try:
            why: str | None = (await self._ask({"define": number, "texts": list(texts.all)}))["why"]
        except _Gone as gone:
            if not gone.began:
                raise
            why = f"the schema: {gone}"
        if why is None:
            self._known[texts] = number
        elif why not in _MAY_BE_OTHERS or is_alone:
            if len(self._wrong) >= SCHEMAS_MAX:
                self._wrong.clear()
            self._wrong[texts] = (trio.current_time() + WRONG_S, why)
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
            await self._end()
            raise _Gone(HUNG if process.returncode == -signal.SIGPROF else DIED) from None
        finally:
            if not is_done:
                await self._end()

    async def _begin(self) -> trio.Process:
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise self._not_begun(system_says(error)) from None
        self._process = process
        assert process.stdin is not None
        is_done = False
        try:
            with trio.fail_after(START_S):
                await process.stdin.send_all(b'{"items": [], "characters": 0, "pretty": false}\n')
                await self._line(process)
            is_done = True
        except (OSError, ValueError, trio.BrokenResourceError):
            raise self._not_begun("it ended at once") from None
        except trio.TooSlowError:
            raise self._not_begun(f"it said nothing within {START_S:g} s") from None
        finally:
            if not is_done:
                await self._end()
        self._was_told = False
        return process

    def _not_begun(self, why: str) -> _Gone:
        """The log says it once, until one has begun."""
        if not self._was_told:
            log.error("%s: %s", NOT_BEGUN, why)
        self._was_told = True
        return _Gone(NOT_BEGUN, began=False)

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

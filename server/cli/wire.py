"""`barnabas wire tap` and `barnabas wire replay`: see `barnabas.server.wire`.

Events go to standard output, a line of JSON each; what concerns the program itself to standard error. The tap runs
until SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import trio

from barnabas.server.cli.common import FAILED, OK, REFUSED, complain
from barnabas.server.cli.output import OutputFailed
from barnabas.server.cli.output_reader import until_unread
from barnabas.server.client.approach import Approach
from barnabas.server.runtime.wording import causes, in_words, system_says
from barnabas.server.wire import tape
from barnabas.server.wire.addresses import Address
from barnabas.server.wire.conversation import Event
from barnabas.server.wire.replay import Replay, Result
from barnabas.server.wire.shown import EVERYTHING, Limits
from barnabas.server.wire.tap import CannotTap, Tap

_PRIVATE: Final = 0o600
"""A recording holds all that was sent."""


def run(chosen: argparse.Namespace) -> int:
    """Do what was chosen; returns the exit code. Raises BrokenPipeError, OutputFailed."""
    approach = Approach()
    if chosen.command_config is not None:
        from barnabas.server.client.command_config import Unusable, read_approach  # loads TLS

        try:
            approach = read_approach(chosen.command_config, lambda text: print(f"barnabas: {text}", file=sys.stderr))
        except Unusable as error:
            return complain([str(error)])
    if chosen.action == "replay":
        return _replay(chosen, approach)
    return _tap(chosen, approach)


def _tap(chosen: argparse.Namespace, approach: Approach) -> int:
    with ExitStack() as stack:
        recording = None
        if chosen.record is not None:
            try:
                recording = stack.enter_context(_private(chosen.record, overwrite=chosen.overwrite))
            except FileExistsError:
                return complain([f"{chosen.record} is there already; with --overwrite the new recording replaces it"])
            except OSError as error:
                return complain([f"{chosen.record} cannot be written: {system_says(error)}"])
        tell = _teller(partial(_is_wanted, chosen), with_body=not chosen.no_body)
        limits = EVERYTHING if chosen.full else Limits()
        try:
            trio.run(_tap_until_stopped, chosen, approach, tell, limits, recording)
        except BaseExceptionGroup as group:
            return _failed(group)
    return OK


async def _tap_until_stopped(
    chosen: argparse.Namespace,
    approach: Approach,
    tell: Callable[[Event], None],
    limits: Limits,
    recording: TextIO | None,
) -> None:
    tap = Tap(Address(*chosen.listen), Address(*chosen.to), tell, approach=approach, limits=limits, recording=recording)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def end_unread() -> None:
                await until_unread()
                nursery.cancel_scope.cancel()

            where = await nursery.start(tap.run)
            nursery.start_soon(end_unread)
            print(f"barnabas: clients of {Address(*chosen.to)} connect to {where}", file=sys.stderr, flush=True)
            async for _ in signals:
                nursery.cancel_scope.cancel()


def _replay(chosen: argparse.Namespace, approach: Approach) -> int:
    others = [Address(*now) for recorded, now in chosen.to if not recorded]
    if len(others) != 1:
        return complain(["one --to HOST:PORT is expected, for all brokers that no --to RECORDED=HOST:PORT names"])
    to = {recorded: Address(*now) for recorded, now in chosen.to if recorded}
    tell = _teller((lambda event: bool(event.keys() & _UNLIKE)) if chosen.odd else (lambda event: True))
    replay = Replay(others[0], tell, to=to, approach=approach, timing=chosen.timing)
    try:
        with open(chosen.file, encoding="utf-8", errors="replace") as file:
            result: Result = trio.run(replay.run, tape.read(file))
    except tape.BadTape as error:
        return complain([f"{chosen.file}: {error}"])
    except OSError as error:
        return complain([f"{chosen.file} cannot be read: {system_says(error)}"])
    same = result.sent - result.differ
    more = f", {result.left_out} could not be sent" if result.left_out else ""
    print(f"barnabas: {result.sent} requests sent, {same} answered as then, {result.differ} not{more}", file=sys.stderr)
    return FAILED if result.differ or result.left_out else OK


_UNLIKE: Final = frozenset({"differs", "odd", "left_out"})


def _private(path: str, *, overwrite: bool) -> TextIO:
    """A file that others cannot read, new, or empty before, or with `overwrite` any; what is no file (a
    pipe, /dev/null) is written to. Raises OSError, FileExistsError if it would be overwritten.
    """
    old = Path(path)
    if old.exists():
        if not old.is_file():
            return open(path, "w", encoding="utf-8")
        if old.stat().st_size and not overwrite:
            raise FileExistsError
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    os.fchmod(number, _PRIVATE)  # it may have been there, and others have read it
    return os.fdopen(number, "w", encoding="utf-8")


def _is_wanted(chosen: argparse.Namespace, event: Event) -> bool:
    name = event.get("request") or event.get("answer")
    if chosen.only and name is not None and name not in chosen.only:
        return False
    return not chosen.odd or "odd" in event or "errors" in event


def _teller(wanted: Callable[[Event], bool], *, with_body: bool = True) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        if not wanted(event):
            return
        if not with_body:
            event = {name: value for name, value in event.items() if name != "body"}
        print(json.dumps(event, default=_text), flush=True)

    return tell


def _text(value: Any) -> str:
    return str(value)


def _failed(group: BaseExceptionGroup[BaseException]) -> int:
    """What ended the tap. Raises BrokenPipeError, OutputFailed, and what nobody expects."""
    for each in causes(group):
        if isinstance(each, CannotTap):
            complain([str(each)])
            return REFUSED
        if isinstance(each, (BrokenPipeError, OutputFailed)):
            raise each
        if isinstance(each, OSError):
            complain([in_words(each)])
            return FAILED
    raise group

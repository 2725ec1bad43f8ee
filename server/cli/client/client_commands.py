"""`barnabas topic`, `group`, `consume` and `produce`: a client is opened, the command is done, failures are said.

Exit codes: 0 all of it was done · 1 something was not, and standard error says what · 2 the command line cannot be
used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from barnabas.server.cli.client.client_results import FAILED, REFUSED, Command, Unclear, complain
from barnabas.server.cli.output import OutputFailed
from barnabas.server.client.approach import Approach
from barnabas.server.client.client import open_client
from barnabas.server.client.failures import ClientError
from barnabas.server.network.blocking_client import NoAnswer, split_bootstrap
from barnabas.server.runtime.wording import causes

BOOTSTRAP: Final = "BARNABAS_BOOTSTRAP"
_DEFAULT: Final = "localhost:9092"


def run(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Do what was chosen; returns the exit code. Raises KeyboardInterrupt, BrokenPipeError, OutputFailed."""
    try:
        approach = approach_by(chosen.command_config)
        return trio.run(_with_client, chosen, bootstrap_of(chosen, environ), approach, _command(chosen))
    except Unclear as error:
        complain(str(error))
        return REFUSED
    except ClientError as error:
        complain(str(error))
        return FAILED
    except BaseExceptionGroup as group:
        # Of several tasks one was interrupted; the others were cancelled for it.
        leaves = causes(group)
        if any(isinstance(each, KeyboardInterrupt) for each in leaves):
            raise KeyboardInterrupt from None
        for each in leaves:
            if isinstance(each, (BrokenPipeError, OutputFailed)):
                raise each from None
        raise


def bootstrap_of(
    chosen: argparse.Namespace, environ: Mapping[str, str], otherwise: Callable[[], str] = lambda: _DEFAULT
) -> list[str]:
    """Where brokers are, by the command line, the environment, or custom. Raises Unclear."""
    if chosen.bootstrap is not None:
        said_by, text = "--bootstrap", chosen.bootstrap
    elif environ.get(BOOTSTRAP):
        said_by, text = BOOTSTRAP, environ[BOOTSTRAP]
    else:
        return [otherwise()]
    addresses = [each.strip() for each in text.split(",") if each.strip()]
    if not addresses:
        raise Unclear(f"{said_by}: {text!r} names no broker; HOST:PORT is expected")
    for each in addresses:
        try:
            split_bootstrap(each)
        except NoAnswer as error:
            raise Unclear(f"{said_by}: {error}") from None
    return addresses


async def _with_client(
    chosen: argparse.Namespace, bootstrap: Sequence[str], approach: Approach, command: Command
) -> int:
    async with open_client(bootstrap, approach=approach, client_id="barnabas-cli", timeout_s=chosen.timeout) as client:
        return await command(chosen, client)


def _command(chosen: argparse.Namespace) -> Command:
    if chosen.command == "topic":
        from barnabas.server.cli.client import topic_commands

        return topic_commands.ACTIONS[chosen.action]
    if chosen.command == "group":
        from barnabas.server.cli.client import group_commands

        return group_commands.ACTIONS[chosen.action]
    if chosen.command == "consume":
        from barnabas.server.cli.client import consume

        return consume.consume
    from barnabas.server.cli.client import produce

    return produce.produce


def approach_by(command_config: str | None) -> Approach:
    """How brokers are reached, by a file. Raises Unclear."""
    if command_config is None:
        return Approach()
    from barnabas.server.client.command_config import Unusable, read_approach  # loads TLS

    try:
        return read_approach(command_config, complain)
    except Unusable as error:
        raise Unclear(str(error)) from None

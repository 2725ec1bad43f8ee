"""The console beside the broker: a process that begins when the broker serves, and ends with it.

It is `barnabas console` with the broker's address, so a bug of it, or a slow page, is not the broker's. When it ends by
itself it is started again, after a pause that grows to `PAUSE_MAX_S`; when it says that it cannot be used (exit code
2), it is left. It holds the end of a pipe, so it ends with this process, however that ends.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from barnabas.replication import Endpoint
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime.logs import current_style
from barnabas.server.runtime.wording import in_words

log = logging.getLogger("barnabas.console")

PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
LASTED_S: Final = 60.0
"""Whoever ran so long begins with the short pause again."""
END_S: Final = 5.0
CANNOT_BE_USED: Final = 2
_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from barnabas.server.cli.main import run; run()"
)


def arguments(config: BrokerConfig, endpoints: Sequence[Endpoint], log_style: str = "text") -> list[str]:
    """Of `barnabas console`. endpoints: where the broker is, as it is advertised. log_style: of the broker's log, whose
    standard error is the console's; it says what is wrong there, and what was changed.
    """
    plain = [each for each in endpoints if each.security_protocol == "PLAINTEXT"]
    command_config = config.get_optional_str("console.command.config")
    chosen = endpoints[0] if command_config is not None or not plain else plain[0]
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    found = ["console", "--bootstrap", f"{host}:{chosen.port}", "--exit-with-parent"]
    found += ["--listen", config.get_str("console.listener").removeprefix("http://"), "--log-level", "warn"]
    found += ["--logger", "console.audit=info", "--log-format", log_style, "--log-name", "console"]
    if command_config is not None:
        found += ["--command-config", command_config]
    password_file = config.get_optional_str("console.password.file")
    if password_file is not None:
        found += ["--password-file", password_file]
    for option, key in (
        ("--avro-schemas", "console.avro.schemas"),
        ("--schema-registry", "console.schema.registry.url"),
    ):
        text = config.get_optional_str(key)
        if text is not None:
            found += [option, text]
    for option, key in (("--host", "console.host.names"), ("--proxy", "console.proxy.addresses")):
        for text in config.get_list(key):
            found += [option, text]
    return [*found, "--read-only"] if config.get_bool("console.read.only") else found


async def run_beside(
    config: BrokerConfig, endpoints: Sequence[Endpoint], ready: Callable[[str], None] = lambda url: None
) -> None:
    """Run a console until cancelled, or until it cannot be used. ready(url): called each time it serves."""
    pause_s = PAUSE_S
    while True:
        began = trio.current_time()
        try:
            status = await _life(arguments(config, endpoints, current_style()), ready)
        except OSError as error:
            log.error("the console cannot be started: %s", in_words(error))
            status = None
        if status == CANNOT_BE_USED:
            log.error("there is no console: it says above why")
            return
        if trio.current_time() - began > LASTED_S:
            pause_s = PAUSE_S
        if status is not None:
            log.error("the console ended with status %d; it is started again in %g s", status, pause_s)
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


async def _life(called: Sequence[str], ready: Callable[[str], None]) -> int:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path), *called],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,  # a terminal's Ctrl-C is for the broker
    )
    assert process.stdout is not None
    try:
        said = bytearray()
        while b"\n" not in said and (data := await process.stdout.receive_some(4096)):
            said += data
        if said.startswith(b"console="):
            url = said.split(b"\n")[0].decode().removeprefix("console=")
            log.info("a console is at %s", url)
            ready(url)
        return await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                with suppress(OSError):
                    process.terminate()
                with trio.move_on_after(END_S):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    await stream.aclose()

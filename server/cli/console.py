"""`barnabas console`: pages in a browser, for any Kafka. Its packages are an extra, and loaded here only.

Exit codes: 0 ended as asked · 1 it failed · 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import stat
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import trio

from barnabas.server.cli.client.client_commands import approach_by, bootstrap_of
from barnabas.server.cli.client.client_results import Unclear
from barnabas.server.cli.common import OK, Refused, complain, say, set_up_log

PACKAGES: Final = ("starlette", "hypercorn", "jinja2")
PASSWORD_MIN: Final = 8


def run(chosen: argparse.Namespace, environ: Mapping[str, str], version: str) -> int:
    """The command; returns the exit code."""
    try:
        set_up_log(chosen)
        missing = [name for name in PACKAGES if find_spec(name) is None]
        if missing:
            raise Refused(f"the console needs {', '.join(missing)}; install Barnabas with its extra [console]")
        return _serve(chosen, environ, version)
    except Refused as error:
        return complain(error.lines)
    except Unclear as error:
        return complain([str(error)])


def _serve(chosen: argparse.Namespace, environ: Mapping[str, str], version: str) -> int:
    from barnabas.server.console.app import Options
    from barnabas.server.console.avro.book import NO_PACKAGE, has_package
    from barnabas.server.console.avro.registry import Registry
    from barnabas.server.console.serving import Open, Setup, run
    from barnabas.server.console.web.proxies import Proxies
    from barnabas.server.network.listeners import CannotListen
    from barnabas.server.runtime.wording import causes
    from barnabas.server.settings.endpoints import parse_http

    try:
        listen = parse_http(f"http://{chosen.listen}")
    except ValueError:
        raise Refused(f"--listen {chosen.listen} must be written as HOST:PORT") from None
    try:
        proxies = Proxies(chosen.proxy)
    except ValueError as error:
        raise Refused(f"--proxy: {error}; an address is expected, or a network as 10.0.0.0/8") from None
    registry = None
    url, user = _registry(chosen)
    if url is not None:
        try:
            registry = Registry(url, user)
        except ValueError as error:
            raise Refused(f"--schema-registry cannot be used: {error}") from None
    schemas = None if chosen.avro_schemas is None else Path(chosen.avro_schemas)
    if schemas is not None and not schemas.is_dir():
        raise Refused(f"--avro-schemas {schemas} is no directory")
    if (registry is not None or schemas is not None) and not has_package():
        raise Refused(NO_PACKAGE)
    bootstrap = bootstrap_of(chosen, environ)
    setup = Setup(
        bootstrap,
        approach_by(chosen.command_config),
        listen,
        Options(
            ", ".join(bootstrap), version, chosen.read_only, proxies, frozenset(name.lower() for name in chosen.host)
        ),
        None if chosen.password_file is None else _password(chosen.password_file),
        chosen.login,
        chosen.timeout,
        schemas,
        registry,
    )
    watch = None
    if chosen.exit_with_parent:
        from barnabas.server.cli.parent_watch import ParentWatch

        watch = ParentWatch(None)
    try:
        trio.run(run, setup, lambda url: say(f"console={url}"))
    except (CannotListen, Open) as error:
        return complain([str(error)])
    except BaseExceptionGroup as group:
        if all(isinstance(each, BrokenPipeError) for each in causes(group)):
            raise BrokenPipeError from None
        raise
    finally:
        if watch is not None:
            watch.ended()
    return OK


def _registry(chosen: argparse.Namespace) -> tuple[str | None, str | None]:
    """Where the schema registry is, and who comes there, by the names that Confluent's clients have for it. Raises
    Unclear.
    """
    from barnabas.server.client.command_config import Unusable, read_values

    try:
        values = {} if chosen.command_config is None else read_values(chosen.command_config)
    except Unusable as error:
        raise Unclear(str(error)) from None
    return chosen.schema_registry or values.get("schema.registry.url"), values.get("basic.auth.user.info")


def _password(file: str) -> str:
    """Raises Refused."""
    path = Path(file)
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Refused(f"{file} can be read by others than its owner: chmod 600 {file}")
        password = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Refused(f"{file} cannot be read: it is not UTF-8") from None
    if len(password) < PASSWORD_MIN or "\n" in password:
        raise Refused(f"{file} must hold one line, the password, of {PASSWORD_MIN} characters or more")
    return password

"""The command line: `barnabas serve`, `dev`, `config`, `users`, `log` and `health`.

Exit codes: 0 ended as asked, a stop by SIGTERM or SIGINT included · 1 the broker failed · 2 the command line or the
settings cannot be used. Only what the chosen command needs is imported: a broker answers half a second after it was
called.

Not here: topics, groups and the other administration; any Kafka tool does that (`kafka-topics`, `kafka-python admin`).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from barnabas.server.cli import log_arguments as log_cli
from barnabas.server.cli import users_arguments

if TYPE_CHECKING:
    from barnabas.replication import TopicRequest
    from barnabas.server.cli.dev_security import DevSecurity
    from barnabas.server.cli.parent_watch import ParentWatch
    from barnabas.server.config.broker import BrokerConfig

OK, FAILED, REFUSED = 0, 1, 2
INTERRUPTED = 130
"""After Ctrl-C, as in shells; a broker that is stopped by it exits with 0."""

_DESCRIPTION = "A broker that speaks Apache Kafka's protocol: point any Kafka client at it."
_EPILOG = """\
examples:
  barnabas serve                                       a broker on port 9092
  barnabas serve server.properties --set num.partitions=3
  KAFKA_LOG_DIRS=/data barnabas serve --log-format json
  barnabas dev                                         a throw-away broker on a free port
  barnabas config --check server.properties            what would be said about this file
  barnabas users list server.properties                who can log in by SCRAM; `users add` makes the first one
  barnabas log verify /data                            check a log directory, without a broker
  barnabas health --bootstrap localhost:9092           does a broker answer?

settings: Apache Kafka's own, from --set over KAFKA_* variables over the file; listed by `barnabas config --all`
exit codes: 0 ended as asked, 1 the broker failed, 2 the command line or the settings cannot be used
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="barnabas",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and end")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    serve = commands.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker until SIGTERM or SIGINT (Ctrl-C), then stop cleanly.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_settings(serve)
    _add_logging(serve, default_level="info")

    dev = commands.add_parser(
        "dev",
        help="run a throw-away broker for development and tests",
        description=(
            "Run a broker on a free port of this machine, with its data in a temporary directory that is removed at\n"
            "the end. Prints one line to standard output when it is ready:\n\n    bootstrap=127.0.0.1:PORT\n\n"
            "The environment is not read, and groups do not wait for members before their first rebalance."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    dev.add_argument("--port", type=_port, default=0, metavar="PORT", help="port to listen on (default: any free one)")
    dev.add_argument("--data", metavar="DIR", help="keep the data in DIR instead of a temporary directory")
    dev.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="a topic that is there from the start; may be repeated",
    )
    dev.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    dev.add_argument(
        "--security",
        choices=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help="listen with TLS, with log-ins, or both; an authority, certificates and users are made for it",
    )
    dev.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help="a user of --security beside admin:admin-secret, the super user (default: alice:alice-secret)",
    )
    dev.add_argument(
        "--security-files",
        metavar="DIR",
        help="where certificates and settings for clients go (default: a temporary directory, announced by security=)",
    )
    dev.add_argument(
        "--exit-with-parent",
        nargs="?",
        const="",
        metavar="DIR",
        help=(
            "for programs that start a broker: stop when standard input ends, that is when they are gone, and then "
            "remove DIR"
        ),
    )
    dev.add_argument("--leash", dest="exit_with_parent", nargs="?", const="", help=argparse.SUPPRESS)  # its first name
    _add_logging(dev, default_level="warn")

    config = commands.add_parser(
        "config",
        help="show, explain or check settings",
        description=(
            "Show the settings that `serve` would use with the same arguments: those that are set, or the ones\n"
            "named, with where each value comes from. Secrets are never shown."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    config.add_argument("keys", nargs="*", metavar="KEY", help="settings to explain")
    config.add_argument("--file", metavar="FILE", help="a server.properties file")
    config.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated")
    config.add_argument("--no-env", action="store_true", help="leave the KAFKA_* variables out")
    config.add_argument("--all", action="store_true", help="every setting, not only those that are set")
    config.add_argument(
        "--check", metavar="FILE", help="only check this file: warnings and refusals; exit code 2 if it is refused"
    )
    config.add_argument("--markdown", action="store_true", help="print docs/settings.md")

    users_arguments.add_parser(commands, _add_settings)
    log_cli.add_parser(commands)
    health = commands.add_parser(
        "health",
        help="ask a broker whether it serves",
        description="Ask a broker for its versions and its cluster. Exit code 0: it answers; 1: it does not.",
    )
    health.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="the broker (default: where the KAFKA_* variables let one listen, else localhost:9092)",
    )
    health.add_argument(
        "--command-config", metavar="FILE", help="how to come to it, by Apache Kafka's names: TLS, who logs in"
    )
    health.add_argument("--timeout", type=_seconds, default=5.0, metavar="SECONDS", help="for each answer (default: 5)")
    return top


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", metavar="server.properties", help="settings in Java's properties format")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, over the file and the environment; may be repeated",
    )
    command.add_argument("--no-env", action="store_true", help="leave the KAFKA_* variables out")


def _add_logging(command: argparse.ArgumentParser, default_level: str) -> None:
    command.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines for people or for machines (default: text)",
    )
    command.add_argument(
        "--log-level",
        default=default_level,
        metavar="LEVEL",
        help=f"trace, debug, info, warn, error, fatal or off (default: {default_level})",
    )
    command.add_argument(
        "--logger",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="level of one part, for example network=debug; may be repeated",
    )


def _seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) is None or not float(text):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is expected, not {text[:40]!r}")
    return float(text)


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text) is None or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a number from 0 to 65535 is expected, not {text[:40]!r}")
    return int(text)


def main(
    arguments: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    signals: ModuleType | None = None,
) -> int:
    """Run one command; returns the exit code. `environ`: os.environ if None. `signals`:
    `barnabas.server.runtime.signals` where the process is ours, and with it what its signals do.
    """
    command_line = parser()
    chosen = command_line.parse_args(arguments)
    environment = os.environ if environ is None else environ
    if chosen.version:
        print(f"barnabas {version()}")
        return OK
    if chosen.command is None:
        command_line.print_help()
        return REFUSED
    try:
        if chosen.command == "serve":
            return _serve(chosen, environment)
        if chosen.command == "dev":
            return _dev(chosen, signals)
        if signals is not None:
            signals.as_python_does()
        if chosen.command == "log":
            from barnabas.server.cli import log as log_cli_run

            return log_cli_run.run(chosen)
        if chosen.command == "users":
            code = _users(chosen, environment)
        else:
            code = _health(chosen, environment) if chosen.command == "health" else _config(chosen, environment)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `barnabas config --all | head`
        _discard_output()
        return OK
    except OSError as error:  # `barnabas config --all > /dev/full`, no room for a temporary directory
        from barnabas.server.runtime.wording import in_words

        print(f"barnabas: {in_words(error)}", file=sys.stderr)
        _discard_output()
        return FAILED


def _discard_output() -> None:
    """Our output cannot be written: discard the rest, so that the interpreter does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def version() -> str:
    """The installed version; that of the source tree if it is not installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("barnabas")
    except PackageNotFoundError:
        return "(not installed)"


class _Refused(Exception):
    """The command line or the settings cannot be used; the lines say why."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines


def _load(file: str | None, environ: Mapping[str, str] | None, overrides: Sequence[str]) -> BrokerConfig:
    """Settings, or `_Refused`."""
    from barnabas.server.config.broker import load
    from barnabas.server.config.problems import SettingsRefused

    with _refused_files(file):
        try:
            config = load(file, environ=environ, overrides=overrides)
            if config.is_clustered:
                from barnabas.server.cluster.zookeeper import zookeeper_settings

                zookeeper_settings(config)  # its problems are reported before anything starts
            if any(listener.protocol.startswith("SASL_") for listener in config.listeners):
                from barnabas.server.config.sasl import sasl_settings

                sasl_settings(config)
            return config
        except SettingsRefused as error:
            raise _Refused(*error.problems) from None


@contextmanager
def _refused_files(file: str | None) -> Iterator[None]:
    """Raises `_Refused` for a settings file that cannot be read."""
    from barnabas.server.config.properties import PropertiesError

    try:
        yield
    except PropertiesError as error:
        raise _Refused(f"{file}, {error}") from None
    except OSError as error:
        raise _Refused(f"{file} cannot be read: {error.strerror or error}") from None


def _set_up_log(chosen: argparse.Namespace) -> None:
    from barnabas.server.runtime import logs

    levels = {}
    for text in chosen.logger:
        name, equals, level = text.partition("=")
        if not equals or not name:
            raise _Refused(f"--logger {text} must be written as NAME=LEVEL")
        levels[name] = level
    try:
        logs.set_up(chosen.log_level, chosen.log_format, levels)
    except ValueError as error:
        raise _Refused(f"--log-level or --logger: {error}") from None


def _complain(lines: Sequence[str]) -> int:
    for line in lines:
        print(f"barnabas: {line}", file=sys.stderr)
    return REFUSED


# -- serve and dev ---------------------------------------------------------------------------------


def _serve(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        config = _load(chosen.file, None if chosen.no_env else environ, chosen.set)
        topics = () if chosen.no_env else _first_topics(environ)
        _set_up_log(chosen)
    except _Refused as error:
        return _complain(error.lines)
    return _run(config, topics)


def _first_topics(environ: Mapping[str, str]) -> Sequence[TopicRequest]:
    """The topics in the environment; raises `_Refused`."""
    if "KAFKA_CREATE_TOPICS" not in environ:  # usually not, and then its module need not be loaded
        return ()
    from barnabas.server.broker.first_topics import topics_in

    try:
        return topics_in(environ)
    except ValueError as error:
        raise _Refused(str(error)) from None


def _dev_topics(texts: Sequence[str]) -> Sequence[TopicRequest]:
    if not texts:
        return ()
    from barnabas.server.broker.first_topics import parse_topic

    try:
        return [parse_topic(text) for text in texts]
    except ValueError as error:
        raise _Refused(f"--topic: {error}") from None


def _dev(chosen: argparse.Namespace, signals: ModuleType | None) -> int:
    import shutil
    import tempfile

    temporary: str | None = None
    files: str | None = None
    watch: ParentWatch | None = None

    def clean_up() -> None:
        for directory in (temporary, files):
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
        if watch is not None:
            watch.ended()

    with nullcontext() if signals is None else signals.held():
        if signals is not None:
            signals.leave_at_once(clean_up)
        if not chosen.data:
            temporary = tempfile.mkdtemp(prefix="barnabas-dev-")
        if chosen.security and not chosen.security_files:
            files = tempfile.mkdtemp(prefix="barnabas-security-")
        if chosen.exit_with_parent is not None:
            from barnabas.server.cli.parent_watch import ParentWatch

            watch = ParentWatch(chosen.exit_with_parent or None)
    try:
        settings = [
            f"listeners=PLAINTEXT://127.0.0.1:{chosen.port}",
            f"log.dirs={chosen.data or temporary}",
            "group.initial.rebalance.delay.ms=0",
        ]
        try:
            secured = _secured(chosen, files)
            config = _load(None, None, [*settings, *(secured.settings(chosen.port) if secured else ()), *chosen.set])
            topics = _dev_topics(chosen.topic)
            _set_up_log(chosen)
            if secured is not None:
                secured.add_users(config)
        except _Refused as error:
            return _complain(error.lines)

        def announce(bootstrap: str) -> None:
            if secured is not None:
                secured.write_properties(bootstrap)
            _say(f"bootstrap={bootstrap}", *([f"security={files}"] if files else []))

        return _run(config, topics, announce)
    finally:
        if signals is not None:
            signals.ignore()
        clean_up()


def _secured(chosen: argparse.Namespace, files: str | None) -> DevSecurity | None:
    """The value of `--security`; raises `_Refused`."""
    if not chosen.security:
        if chosen.user or chosen.security_files:
            raise _Refused("--user and --security-files have no effect without --security")
        return None
    from barnabas.server.cli.dev_security import CannotSecure, DevSecurity, parse_users

    try:
        return DevSecurity(chosen.security, files or chosen.security_files, parse_users(chosen.user))
    except CannotSecure as error:
        raise _Refused(str(error)) from None


def _say(*lines: str) -> None:
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        _discard_output()
        raise


def _run(
    config: BrokerConfig, topics: Sequence[TopicRequest], announce: Callable[[str], None] = lambda bootstrap: None
) -> int:
    """Run a broker, with these topics, to its end. announce: called with its address when it serves."""
    import gc
    import logging

    gc.disable()  # loading modules makes no garbage: collections would be a twentieth of the start
    from barnabas.server.broker import process
    from barnabas.server.config import default_file

    gc.freeze()
    gc.enable()

    log = logging.getLogger("barnabas.config")
    for line in default_file.explain(config):
        log.info("%s", line)
    for notice in config.notices:
        log.warning("%s", notice.text)

    return process.run(config, announce, topics)


# -- health ----------------------------------------------------------------------------------------


def _users(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        config = _load(chosen.file, None if chosen.no_env else environ, chosen.set)
    except _Refused as error:
        return _complain(error.lines)
    from barnabas.server.cli import users

    return users.run(chosen, config)


def _health(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from barnabas.server.cli import health

    try:
        print(health.check(chosen.bootstrap or health.bootstrap_of(environ), chosen.timeout, chosen.command_config))
    except health.Unhealthy as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return FAILED
    return OK


# -- config ----------------------------------------------------------------------------------------


def _config(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if chosen.markdown:
        from barnabas.server.settings.document import markdown

        sys.stdout.write(markdown())
        return OK
    try:
        if chosen.check is not None:
            return _check(chosen.check)
        config = _load(chosen.file, None if chosen.no_env else environ, chosen.set)
        for notice in config.notices:
            print(f"barnabas: {notice.text}", file=sys.stderr)
        return _show(config, chosen.keys, everything=chosen.all)
    except _Refused as error:
        return _complain(error.lines)


def _check(file: str) -> int:
    from barnabas.server.cli.check import check

    with _refused_files(file):
        found = check(file)
    refusals = (*found.refusals, *_unusable_stores(found.config))
    for text in found.warnings:
        print(f"warning: {text}")
    print(
        f"{file} {'cannot' if refusals else 'can'} be used ({_count(found.settings, 'setting')}, "
        f"{_count(len(refusals), 'refusal')}, {_count(len(found.warnings), 'warning')})",
        flush=True,
    )
    return _complain(refusals) if refusals else OK


def _unusable_stores(config: BrokerConfig) -> Sequence[str]:
    """Problems of the listeners' keys and certificates, as far as their files show."""
    if all(address.protocol in ("PLAINTEXT", "SASL_PLAINTEXT") for address in config.listeners):
        return ()
    from barnabas.server.config.problems import SettingsRefused
    from barnabas.server.network.tls_listener import tls_listeners

    try:
        tls_listeners(config)
    except SettingsRefused as refused:
        return refused.problems
    return ()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _show(config: BrokerConfig, keys: Sequence[str], *, everything: bool) -> int:
    from barnabas.server.config import default_file
    from barnabas.server.config.describe import Source, broker_entries
    from barnabas.server.settings import BROKER

    unknown = [key for key in keys if key not in BROKER and not config.is_set(key)]
    if unknown:
        return _complain([f"unknown setting: {key}" for key in unknown])
    names = list(keys) or (sorted(BROKER) if everything else [])
    for entry in broker_entries(config, names or [*config.static, ""]):
        value = "(hidden)" if entry.sensitive else "(not set)" if entry.value is None else entry.value
        stands_in = config.origin(entry.name) == default_file.ORIGIN and entry.source is Source.STATIC_BROKER
        source = default_file.ORIGIN if stands_in else entry.source.name.lower().replace("_", " ")
        print(f"{entry.name}={value}  # {source}")
        if keys and entry.doc:
            print(f"    {entry.doc}")
    return OK


def run() -> NoReturn:
    """The console script."""
    from barnabas.server.runtime import signals

    try:
        sys.exit(main(signals=signals))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)

"""The command line: `barnabas serve`, `dev`, `cluster`, `config`, `users`, `log`, `health`, `wire`, `topic` and others.

Exit codes: 0 ended as asked, a stop by SIGTERM or SIGINT included · 1 the broker failed · 2 the command line or the
settings cannot be used. Only what the chosen command needs is imported: a broker answers a quarter of a second after it
was called.

Not here: the rest of administration; any Kafka tool does that (`kafka-configs`, `kafka-acls`).
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from barnabas.server.cli.common import (
    FAILED,
    INTERRUPTED,
    OK,
    REFUSED,
    Refused,
    add_logging,
    add_settings,
    complain,
    load_settings,
    port,
    say,
    seconds,
    seconds_ahead,
    secured,
    set_up_log,
    topics_of,
)
from barnabas.server.cli.output import OutputFailed, discard_output, take_output

if TYPE_CHECKING:
    from barnabas.replication import TopicRequest
    from barnabas.server.broker.process import Addresses
    from barnabas.server.cli.client.client_arguments import Commands
    from barnabas.server.cli.parent_watch import ParentWatch
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.settings.endpoints import ListenAddress

_DESCRIPTION = "A broker that speaks Apache Kafka's protocol: point any Kafka client at it."
_EPILOG = """\
examples:
  barnabas serve                                       a broker on port 9092
  barnabas serve server.properties --set num.partitions=3
  KAFKA_LOG_DIRS=/data barnabas serve --log-format json
  barnabas dev                                         a throw-away broker on a free port
  barnabas cluster --brokers 3                         brokers of a cluster on this machine
  barnabas config --check server.properties            what would be said about this file
  barnabas users list server.properties                who can log in by SCRAM; `users add` makes the first one
  barnabas log verify /data                            check a log directory, without a broker
  barnabas health --bootstrap localhost:9092           does a broker answer?
  barnabas topic create orders --partitions 3          topics, records and groups, of any Kafka
  barnabas consume orders --follow
  barnabas group describe billing
  barnabas wire tap --listen 9093 --to localhost:9092  what a client and a broker say to each other
  barnabas console --bootstrap localhost:9092          the same in a browser

settings: Apache Kafka's own, from --set over KAFKA_* variables over the file; listed by `barnabas config --all`
exit codes: 0 ended as asked, 1 it failed, 2 the command line or the settings cannot be used
"""


def parser(called: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line. called: what was typed; None: everything, also what takes arguments of other commands."""
    top = argparse.ArgumentParser(
        prog="barnabas",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and end")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    if called and called[0] in _BROKERS:  # the others would be a fortieth of the time until it is ready
        _BROKERS[called[0]](commands)
        return top
    from barnabas.server.cli import log_arguments, machine_arguments, users_arguments, wire_arguments
    from barnabas.server.cli.client import client_arguments

    _add_serve(commands)
    machine_arguments.add_parsers(commands)
    _add_dev(commands)
    _add_config(commands)
    users_arguments.add_parser(commands, add_settings)
    log_arguments.add_parser(commands)
    client_arguments.add_parsers(commands, called)
    wire_arguments.add_parser(commands, called)
    client_arguments.add_console(commands, add_logging)
    _add_health(commands)
    return top


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker until SIGTERM or SIGINT (Ctrl-C), then stop cleanly.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(serve)
    serve.add_argument(
        "--announce",
        action="store_true",
        help="print bootstrap=HOST:PORT to standard output when the broker is ready",
    )
    serve.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="for programs that start a broker: stop when standard input ends, that is when they are gone",
    )
    add_logging(serve, default_level="info")


def _add_dev(commands: Commands) -> None:
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
    dev.add_argument("--port", type=port, default=0, metavar="PORT", help="port to listen on (default: any free one)")
    dev.add_argument("--data", metavar="DIR", help="keep the data in DIR instead of a temporary directory")
    dev.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="a topic that is there from the start; may be repeated",
    )
    dev.add_argument("--console", action="store_true", help="a console beside it; its address is announced as console=")
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
    dev.add_argument(
        "--control",
        nargs="?",
        const="127.0.0.1:0",
        metavar="HOST:PORT",
        help=(
            "for test suites: let programs of this machine control the broker by HTTP, for instance make it fail; "
            "announced by control=URL (default: any free port of 127.0.0.1)"
        ),
    )
    dev.add_argument(
        "--clock-ahead",
        type=seconds_ahead,
        default=0.0,
        metavar="SECONDS",
        help="how far the clock is ahead, for a broker among others whose clocks were advanced; with --control",
    )
    add_logging(dev, default_level="warn")


def _add_config(commands: Commands) -> None:
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


def _add_health(commands: Commands) -> None:
    health = commands.add_parser(
        "health",
        help="ask a broker whether it serves",
        description=(
            "Ask a broker for its versions and its cluster. Exit code 0: it answers; 1: it does not; 2: the command "
            "line cannot be used."
        ),
    )
    health.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        help=(
            "the broker (default: where $KAFKA_LISTENERS lets one listen, as in a container, else "
            "$BARNABAS_BOOTSTRAP, else localhost:9092)"
        ),
    )
    health.add_argument(
        "--command-config", metavar="FILE", help="how to come to it, by Apache Kafka's names: TLS, who logs in"
    )
    health.add_argument("--timeout", type=seconds, default=5.0, metavar="SECONDS", help="for all of it (default: 5)")


_BROKERS = {"serve": _add_serve, "dev": _add_dev}
"""Commands whose arguments are made alone."""


def _parsed(command_line: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Raises SystemExit, with the usage of the command that was called where the arguments cannot be used; OSError
    where help cannot be printed.
    """
    try:
        chosen, unknown = command_line.parse_known_args(arguments)
    except SystemExit:
        sys.stdout.flush()
        raise
    if unknown:
        _called(command_line, chosen).error(f"unrecognized arguments: {' '.join(unknown)}")
    return chosen


def _called(command_line: argparse.ArgumentParser, chosen: argparse.Namespace) -> argparse.ArgumentParser:
    """What has read the arguments of the command, or of its action."""
    for each in command_line._actions:
        if isinstance(each, argparse._SubParsersAction) and getattr(chosen, each.dest, None) is not None:
            return _called(each.choices[getattr(chosen, each.dest)], chosen)
    return command_line


def main(
    arguments: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    signals: ModuleType | None = None,
) -> int:
    """Run one command; returns the exit code. `environ`: os.environ if None. `signals`:
    `barnabas.server.runtime.signals` where the process is ours, and with it what its signals do.
    """
    environment = os.environ if environ is None else environ
    try:
        command_line = parser(sys.argv[1:] if arguments is None else arguments)
        chosen = _parsed(command_line, arguments)
        if chosen.command not in _BROKERS:
            gc.enable()
        if chosen.version:
            from barnabas.server.runtime.program import version

            print(f"barnabas {version()}", flush=True)
            return OK
        if chosen.command is None:
            print(command_line.format_help(), end="", flush=True)
            return REFUSED
        if chosen.command == "serve":
            return _serve(chosen, environment)
        if chosen.command == "dev":
            return _dev(chosen, signals)
        if chosen.command == "cluster":
            from barnabas.server.cli import cluster

            return cluster.run(chosen, environment, signals)
        if chosen.command == "store":
            from barnabas.server.cli import store

            return store.run(chosen)
        if signals is not None:
            signals.as_python_does()
        from barnabas.server.cli.client import client_arguments

        if chosen.command == "log":
            from barnabas.server.cli import log as log_cli_run

            code = log_cli_run.run(chosen)
        elif chosen.command == "wire":
            from barnabas.server.cli import wire

            code = wire.run(chosen)
        elif chosen.command in client_arguments.COMMANDS:
            from barnabas.server.cli.client import client_commands

            code = client_commands.run(chosen, environment)
        elif chosen.command == "console":
            from barnabas.server.cli import console
            from barnabas.server.runtime.program import version

            code = console.run(chosen, environment, version())
        elif chosen.command == "users":
            code = _users(chosen, environment)
        elif chosen.command == "health":
            from barnabas.server.cli import health

            code = health.run(chosen, environment)
        else:
            from barnabas.server.cli import config

            code = config.run(chosen, environment)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `barnabas config --all | head`
        discard_output()
        return OK
    except OSError as error:  # `barnabas config --all > /dev/full`, no room for a temporary directory
        from barnabas.server.runtime.wording import in_words

        about = "standard output cannot be written: " if isinstance(error, OutputFailed) else ""
        print(f"barnabas: {about}{in_words(error)}", file=sys.stderr)
        discard_output()
        return FAILED


# -- serve and dev ---------------------------------------------------------------------------------


def _serve(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        config = load_settings(chosen.file, None if chosen.no_env else environ, chosen.set)
        topics = () if chosen.no_env else _first_topics(environ)
        set_up_log(chosen)
    except Refused as error:
        return complain(error.lines)
    watch = None
    if chosen.exit_with_parent:
        from barnabas.server.cli.parent_watch import ParentWatch

        watch = ParentWatch(None)
    try:
        return _run(config, topics, _announce if chosen.announce else _say_nothing)
    finally:
        if watch is not None:
            watch.ended()


def _announce(addresses: Addresses) -> None:
    say(f"bootstrap={addresses.bootstrap}")


def _first_topics(environ: Mapping[str, str]) -> Sequence[TopicRequest]:
    """The topics in the environment; raises `Refused`."""
    if "KAFKA_CREATE_TOPICS" not in environ:  # usually not, and then its module need not be loaded
        return ()
    from barnabas.server.broker.first_topics import topics_in

    try:
        return topics_in(environ)
    except ValueError as error:
        raise Refused(str(error)) from None


def _dev(chosen: argparse.Namespace, signals: ModuleType | None) -> int:
    import shutil
    import tempfile

    temporary: str | None = None
    files: str | None = None
    snapshots: str | None = None
    watch: ParentWatch | None = None

    def clean_up() -> None:
        for directory in (temporary, files, snapshots):
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
            *(["console.listener=http://127.0.0.1:0"] if chosen.console else []),
        ]
        try:
            security = secured(chosen, files)
            among = any(text.startswith("metadata.store.socket=") for text in chosen.set)
            listener = [] if security is None else security.settings(chosen.port, between_brokers=among)
            if security is not None and chosen.console:
                listener.append(f"console.command.config={security.administrators_file}")
            config = load_settings(None, None, [*settings, *listener, *chosen.set])
            topics = topics_of(chosen.topic)
            control = _control(chosen)
            if control is not None and chosen.exit_with_parent is None:  # else the parent may start this again
                from barnabas.server.storage.snapshots import directory_of

                snapshots = directory_of(config.log_dir)
            set_up_log(chosen)
            if security is not None:
                security.add_users(config)
        except Refused as error:
            return complain(error.lines)

        def announce(addresses: Addresses) -> None:
            if security is not None:
                security.write_properties(addresses.bootstrap)
            more = {"security": files, "metrics": addresses.metrics, "control": addresses.control}
            say(f"bootstrap={addresses.bootstrap}", *(f"{key}={value}" for key, value in more.items() if value))

        return _run(
            config,
            topics,
            announce,
            control,
            lambda url: say(f"console={url}"),
            clock_ahead_s=chosen.clock_ahead,
        )
    finally:
        if signals is not None:
            signals.ignore()
        clean_up()


def _control(chosen: argparse.Namespace) -> ListenAddress | None:
    """The value of `--control`; raises `Refused`."""
    if chosen.control is None:
        if chosen.clock_ahead:
            raise Refused("--clock-ahead has no effect without --control")
        return None
    from barnabas.server.settings.endpoints import parse_control

    try:
        return parse_control(chosen.control)
    except ValueError as error:
        raise Refused(f"--control: {error}") from None


def _say_nothing(addresses: Addresses) -> None:
    """`serve` has its log for that."""


def _run(
    config: BrokerConfig,
    topics: Sequence[TopicRequest],
    announce: Callable[[Addresses], None] = _say_nothing,
    control: ListenAddress | None = None,
    announce_console: Callable[[str], None] = lambda url: None,
    *,
    clock_ahead_s: float = 0.0,
) -> int:
    """Run a broker, with these topics, to its end. announce: called with its addresses when it serves;
    announce_console: with that of its console.
    """
    import logging

    gc.disable()
    from barnabas.server.broker import process
    from barnabas.server.config import default_file

    gc.freeze()
    gc.enable()

    log = logging.getLogger("barnabas.config")
    for line in default_file.explain(config):
        log.info("%s", line)
    for notice in config.notices:
        log.warning("%s", notice.text)

    return process.run(
        config, announce, topics, control=control, clock_ahead_s=clock_ahead_s, console_ready=announce_console
    )


# -- users ----------------------------------------------------------------------------------------


def _users(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        config = load_settings(chosen.file, None if chosen.no_env else environ, chosen.set)
    except Refused as error:
        return complain(error.lines)
    from barnabas.server.cli import users

    return users.run(chosen, config)


def run() -> NoReturn:
    """The console script."""
    from barnabas.server.runtime import signals

    take_output()
    # Loading modules makes no garbage: collections would be a twentieth of a broker's start, whose `_run` enables them.
    gc.disable()
    try:
        sys.exit(main(signals=signals))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)

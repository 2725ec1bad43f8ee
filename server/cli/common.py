"""What commands share: exit codes, how a command line or settings are refused, settings, the log, arguments."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.server.cli.output import discard_output

if TYPE_CHECKING:
    from barnabas.replication import TopicRequest
    from barnabas.server.cli.dev_security import DevSecurity
    from barnabas.server.config.broker import BrokerConfig

OK, FAILED, REFUSED = 0, 1, 2
INTERRUPTED = 130
"""After Ctrl-C, as in shells; a broker that is stopped by it exits with 0."""


class Refused(Exception):
    """The command line or the settings cannot be used; the lines say why."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines


def load_settings(file: str | None, environ: Mapping[str, str] | None, overrides: Sequence[str]) -> BrokerConfig:
    """Settings, or `Refused`."""
    from barnabas.server.config.broker import load
    from barnabas.server.config.problems import SettingsRefused

    with refused_files(file):
        try:
            config = load(file, environ=environ, overrides=overrides)
            if config.uses_zookeeper:
                from barnabas.server.cluster.zookeeper import zookeeper_settings

                zookeeper_settings(config)  # its problems are reported before anything starts
            if any(listener.protocol.startswith("SASL_") for listener in config.listeners):
                from barnabas.server.config.sasl import sasl_settings

                sasl_settings(config)
            return config
        except SettingsRefused as error:
            raise Refused(*error.problems) from None


@contextmanager
def refused_files(file: str | None) -> Iterator[None]:
    """Raises `Refused` for a settings file that cannot be read."""
    from barnabas.server.config.properties import PropertiesError

    try:
        yield
    except PropertiesError as error:
        raise Refused(f"{file}, {error}") from None
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror or error}") from None


def set_up_log(chosen: argparse.Namespace) -> None:
    from barnabas.server.runtime import logs

    levels = {}
    for text in chosen.logger:
        name, equals, level = text.partition("=")
        if not equals or not name:
            raise Refused(f"--logger {text} must be written as NAME=LEVEL")
        levels[name] = level
    try:
        logs.set_up(chosen.log_level, chosen.log_format, levels, process=chosen.log_name)
    except ValueError as error:
        raise Refused(f"--log-level or --logger: {error}") from None


def complain(lines: Sequence[str]) -> int:
    for line in lines:
        print(f"barnabas: {line}", file=sys.stderr)
    return REFUSED


def say(*lines: str) -> None:
    try:
        print("\n".join(lines), flush=True)
    except OSError:
        discard_output()
        raise


def secured(chosen: argparse.Namespace, files: str | None) -> DevSecurity | None:
    """The value of `--security`; raises `Refused`."""
    if not chosen.security:
        if chosen.user or chosen.security_files:
            raise Refused("--user and --security-files have no effect without --security")
        return None
    from barnabas.server.cli.dev_security import CannotSecure, DevSecurity, parse_users

    try:
        return DevSecurity(chosen.security, files or chosen.security_files, parse_users(chosen.user))
    except CannotSecure as error:
        raise Refused(str(error)) from None


def topics_of(texts: Sequence[str]) -> Sequence[TopicRequest]:
    if not texts:
        return ()
    from barnabas.server.broker.first_topics import parse_topic

    try:
        return [parse_topic(text) for text in texts]
    except ValueError as error:
        raise Refused(f"--topic: {error}") from None


# -- arguments -----------------------------------------------------------------------------------


def add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", metavar="server.properties", help="settings in Java's properties format")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, over the file and the environment; may be repeated",
    )
    command.add_argument("--no-env", action="store_true", help="leave the KAFKA_* variables out")


def add_logging(command: argparse.ArgumentParser, default_level: str) -> None:
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
    command.add_argument(
        "--log-name", default="", metavar="NAME", help="a name in each line, where several processes share a log"
    )


def seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) is None or not float(text):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is expected, not {text[:40]!r}")
    return float(text)


def seconds_ahead(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,9})?", text) is None:
        raise argparse.ArgumentTypeError(f"a number of seconds is expected, not {text[:40]!r}")
    return float(text)


def port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text) is None or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a number from 0 to 65535 is expected, not {text[:40]!r}")
    return int(text)

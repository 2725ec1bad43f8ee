"""The arguments of `barnabas topic`, `group`, `consume` and `produce`; `client_commands.py` runs them. By itself, and
made only for the command that is called.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_TOPIC_EXAMPLES: Final = """\
examples:
  barnabas topic list                                  the topics, without Kafka's internal ones
  barnabas topic list -l 'order*'                      with records and bytes
  barnabas topic describe orders                       leaders, replicas, offsets, settings
  barnabas topic create orders --partitions 3 --set retention.ms=86400000
  barnabas topic alter orders --partitions 6 --set cleanup.policy=compact --unset retention.ms
  barnabas topic delete orders
"""
_GROUP_EXAMPLES: Final = """\
examples:
  barnabas group list -l                               all groups with their lag
  barnabas group describe billing                      offsets, lag, since when, whose
  barnabas group reset billing --to earliest           shows what would change; --yes does it
  barnabas group reset billing --topic orders:0 --to 2h --yes
  barnabas group delete billing
"""
_CONSUME_EXAMPLES: Final = """\
examples:
  barnabas consume orders                              the newest 10 records
  barnabas consume orders -f                           those, and what comes, until Ctrl-C
  barnabas consume orders --from earliest              all there are now
  barnabas consume orders --from 15m --filter eve      of the last 15 minutes, with this text
  barnabas consume orders --from 1200 -n 5 -p 0 --json five from an offset on, as JSON

Text is the value as it is, a record a line. Nothing is committed, and no group is joined.
"""
_PRODUCE_EXAMPLES: Final = """\
examples:
  echo hello | barnabas produce orders                 a record a line
  barnabas produce orders --key-separator : < pairs.txt lines of key:value
  barnabas produce orders -H source=shop --key 17 --file body.json
  barnabas consume a --from earliest --json | barnabas produce b --json

Keys choose partitions as Java's producer does. Records are acknowledged by all replicas in sync.
"""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def add_parsers(commands: Commands, called: Sequence[str] | None) -> None:
    """called: the command line. The arguments of a command are only made if its name stands there; None: of all."""

    def command(
        name: str, summary: str, text: str, examples: str, fill: Callable[[argparse.ArgumentParser], None]
    ) -> None:
        made = commands.add_parser(
            name,
            help=summary,
            description=text,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if called is None or name in called:
            fill(made)

    anywhere = "Works with any broker that speaks Kafka's protocol."
    command("topic", "list, describe, create, alter, delete topics", f"Topics. {anywhere}", _TOPIC_EXAMPLES, _topic)
    command("produce", "write records to a topic", f"Write records. {anywhere}", _PRODUCE_EXAMPLES, _produce)
    command("consume", "print records of a topic", f"Print records. {anywhere}", _CONSUME_EXAMPLES, _consume)
    command("group", "list, describe, reset, delete groups", f"Groups. {anywhere}", _GROUP_EXAMPLES, _group)


COMMANDS: Final = ("topic", "produce", "consume", "group")


def add_console(commands: Commands, add_logging: Callable[[argparse.ArgumentParser, str], None]) -> None:
    """`barnabas console`."""
    console = commands.add_parser(
        "console",
        help="look into a cluster with a browser",
        description=(
            "Serve pages about a cluster: topics, records, groups, settings. Works with any broker that speaks\n"
            "Kafka's protocol. Prints one line to standard output when it is ready:\n\n    console=http://HOST:PORT"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    console.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="where (default: 127.0.0.1:8080)"
    )
    doors = console.add_mutually_exclusive_group()
    doors.add_argument(
        "--password-file", metavar="FILE", help="visitors must know this; it or --login to listen on other addresses"
    )
    doors.add_argument(
        "--login",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        help="visitors log in as users of the cluster, and can do what these may do; by OAUTHBEARER with a token",
    )
    console.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers may call it, beside addresses and localhost; may be repeated",
    )
    console.add_argument(
        "--proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy before it, or a network of such: its X-Forwarded-For and -Proto count; may be repeated",
    )
    console.add_argument(
        "--avro-schemas",
        metavar="DIRECTORY",
        help="schemas by which records are shown, as TOPIC-value.avsc and TOPIC-key.avsc",
    )
    console.add_argument(
        "--schema-registry",
        metavar="URL",
        help="where the schemas are whose ids stand in records (Confluent's REST API)",
    )
    console.add_argument("--read-only", action="store_true", help="nothing can be changed")
    console.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="for programs that start a console: stop when standard input ends, that is when they are gone",
    )
    add_connection(console)
    add_logging(console, "info")


def add_connection(command: argparse.ArgumentParser, default: str = "$BARNABAS_BOOTSTRAP, else localhost:9092") -> None:
    """Where brokers are, and how they are reached."""
    command.add_argument(
        "-b", "--bootstrap", metavar="HOST:PORT", help=f"brokers, with commas between (default: {default})"
    )
    command.add_argument(
        "--command-config", metavar="FILE", help="how to come to them, by Apache Kafka's names: TLS, who logs in"
    )
    command.add_argument(
        "--timeout",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="for a request and its retries (default: 10)",
    )


def _topic(topic: argparse.ArgumentParser) -> None:
    actions = topic.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _action(actions, "list", "names, partitions, replicas")
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="only names like this, for example 'order*'")
    listing.add_argument("-l", "--long", action="store_true", help="records and bytes, too")
    listing.add_argument("--internal", action="store_true", help="Kafka's internal topics, too")
    _json(listing)
    describe = _action(actions, "describe", "leaders, replicas, offsets, sizes and settings")
    describe.add_argument("names", type=name, nargs="+", metavar="TOPIC")
    describe.add_argument("--all", action="store_true", help="every setting, not only those that are set")
    _json(describe)
    create = _action(actions, "create", "make topics")
    create.add_argument("names", type=name, nargs="+", metavar="TOPIC")
    create.add_argument(
        "--partitions", type=_positive, default=-1, metavar="N", help="(default: the broker's num.partitions)"
    )
    create.add_argument(
        "--replicas", type=_positive, default=-1, metavar="N", help="(default: the broker's default.replication.factor)"
    )
    _set(create)
    create.add_argument("--if-not-exists", action="store_true", help="a topic that exists is no error")
    alter = _action(actions, "alter", "change settings, add partitions")
    alter.add_argument("names", type=name, nargs="+", metavar="TOPIC")
    _set(alter)
    alter.add_argument(
        "--unset", type=name, action="append", default=[], metavar="KEY", help="back to the default; may be repeated"
    )
    alter.add_argument(
        "--partitions", type=_positive, metavar="N", help="have so many; there cannot be fewer than before"
    )
    delete = _action(actions, "delete", "delete topics with all their records")
    delete.add_argument("names", type=name, nargs="+", metavar="TOPIC")


def _group(group: argparse.ArgumentParser) -> None:
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _action(actions, "list", "groups and their state")
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help="only names like this, for example 'bill*'")
    listing.add_argument("-l", "--long", action="store_true", help="members, and how far they are behind, too")
    _json(listing)
    describe = _action(actions, "describe", "members, offsets, lag in records and in time")
    describe.add_argument("names", type=name, nargs="+", metavar="GROUP")
    _json(describe)
    reset = _action(
        actions,
        "reset",
        "set offsets",
        "Show where the group would go on reading, and with --yes have it so. The group must have no members.",
    )
    reset.add_argument("name", type=name, metavar="GROUP")
    reset.add_argument(
        "--topic",
        type=name,
        action="append",
        metavar="TOPIC[:N,…]",
        help="only these partitions; also of topics it has not read yet (default: all it has read)",
    )
    where = reset.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="WHERE", help="earliest, latest, an offset, a time, or how long ago (2h)")
    where.add_argument("--shift", type=_whole, metavar="N", help="so many records on; back with a negative number")
    reset.add_argument("--yes", action="store_true", help="do it")
    _json(reset)
    delete = _action(actions, "delete", "delete groups that have no members, with their offsets")
    delete.add_argument("names", type=name, nargs="+", metavar="GROUP")


def _consume(consume: argparse.ArgumentParser) -> None:
    consume.add_argument("topic", type=name, metavar="TOPIC")
    consume.add_argument(
        "--from", dest="start", metavar="WHERE", help="earliest, latest, an offset, a time, or how long ago (15m)"
    )
    consume.add_argument(
        "-n", "--count", type=_natural, metavar="N", help="so many records (default: the newest 10; with --from all)"
    )
    consume.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    consume.add_argument(
        "-p", "--partition", type=_natural, action="append", metavar="N", help="only this partition; may be repeated"
    )
    consume.add_argument("--filter", metavar="TEXT", help="only records with this in key, value or a header")
    consume.add_argument("--committed", action="store_true", help="without transactions that are open or aborted")
    consume.add_argument("--key", action="store_true", help="key and a tab before the value")
    consume.add_argument("--meta", action="store_true", help="topic-partition@offset and time before that")
    consume.add_argument("--format", choices=("text", "json", "hex"), default="text", help="(default: text)")
    consume.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    add_connection(consume)


def _produce(produce: argparse.ArgumentParser) -> None:
    produce.add_argument("topic", type=name, metavar="TOPIC")
    produce.add_argument("--key", metavar="TEXT", help="the key of all records")
    produce.add_argument("--key-separator", metavar="TEXT", help="lines are key, this, value; for example ':'")
    produce.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="of all records; may be repeated"
    )
    produce.add_argument("-p", "--partition", type=_natural, metavar="N", help="instead of what the key says")
    produce.add_argument(
        "--file",
        action="append",
        metavar="FILE",
        help="the whole file is one record, instead of lines; may be repeated",
    )
    produce.add_argument("--json", action="store_true", help="lines are JSON as `consume --json` prints it")
    produce.add_argument(
        "--tombstones", action="store_true", help="empty values are null: they delete in a compacted topic"
    )
    produce.add_argument("--compression", choices=CODECS, default="none", help="(default: none)")
    add_connection(produce)


def _action(actions: Commands, name: str, summary: str, description: str | None = None) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=description or f"{summary[0].upper()}{summary[1:]}."
    )
    add_connection(made)
    return made


def _json(action: argparse.ArgumentParser) -> None:
    action.add_argument("--json", action="store_true", help="JSON, for machines")


def _set(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated"
    )


def name(text: str) -> str:
    """What brokers are asked for: Kafka's texts are UTF-8. Bytes that are not arrive here as halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not UTF-8") from None
    return text


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = name(text).partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"KEY=VALUE is expected, not {text[:60]!r}")
    return key, value


def _whole(text: str) -> int:
    if re.fullmatch("[+-]?[0-9]{1,18}", text) is None:
        raise argparse.ArgumentTypeError(f"a number is expected, not {text[:40]!r}")
    return int(text)


def _natural(text: str) -> int:
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise argparse.ArgumentTypeError(f"a number from 0 on is expected, not {text[:40]!r}")
    return int(text)


def _positive(text: str) -> int:
    number = _natural(text)
    if not number:
        raise argparse.ArgumentTypeError("a number from 1 on is expected, not '0'")
    return number


def _seconds(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) is None or not float(text):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is expected, not {text[:40]!r}")
    return float(text)

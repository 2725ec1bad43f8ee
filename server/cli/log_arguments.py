"""The arguments of `barnabas log dump|verify|stats`; log.py runs them. By itself, as the arguments are made
for the help of all commands, too.
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime

_DESCRIPTION = """\
Look into log directories without a broker: ours and Apache Kafka's, in use or copied. Nothing is written.

A PATH is a log directory, a partition's directory, or one file of it."""

_EXAMPLES = """\
examples:
  barnabas log stats /data                              what is there, by partition
  barnabas log verify /data && echo good                read and check every byte
  barnabas log dump /data/orders-0 --offset 1000:1010 --values
"""

_DUMP_EXAMPLES = """\
examples:
  barnabas log dump /data/orders-0                      the batches of a partition
  barnabas log dump /data/orders-0 --records --keys --values --offset 1000:1010
  barnabas log dump /data/orders-0 --values --time 2026-01-31T08:00..2026-01-31T09:00 --committed
  barnabas log dump /data/__consumer_offsets-12 --records --json | jq .decoded
  barnabas log dump /data/orders-0/00000000000000000000.timeindex
  barnabas log dump /data/replication-offset-checkpoint

records of __consumer_offsets and __transaction_state are decoded; keys and values of others are shown with --keys and
--values, as text where they are UTF-8
"""

_VERIFY_EXAMPLES = """\
examples:
  barnabas log verify /data                             everything in it
  barnabas log verify /data/orders-0 --json             one JSON object a problem
  barnabas log verify --strict /backup/kafka            warnings count too
  barnabas log verify --list                            the kinds of problems

warnings are what a broker mends when it starts: the torn end of a log that was not stopped cleanly, or that is being
written to; with --strict, or if the broker was stopped cleanly, they are problems
exit codes: 0 nothing wrong, 1 problems found, 2 a path is no log
"""

_STATS_EXAMPLES = """\
examples:
  barnabas log stats /data                              a table of all partitions
  barnabas log stats /data/orders-* --json              one JSON object a partition
  barnabas log stats --quick /data                      batch headers only: no keys, no ratio
  barnabas log stats --wide /data                       all columns, not those only that a line has room for

columns: batch and record are average sizes, ratio is plain to stored bytes of records, keys and producers count
different ones (~ is an estimate), keyed, tombstones and txn are shares of the data records, control of all records
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Put `log` into the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    log = commands.add_parser(
        "log",
        help="dump, verify or measure log directories, without a broker",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=raw,
    )
    actions = log.add_subparsers(dest="action", metavar="ACTION", required=True)

    dump = actions.add_parser(
        "dump",
        help="show batches, records, indexes, snapshots and checkpoints",
        description="Show what stands in logs and in the files beside them.",
        epilog=_DUMP_EXAMPLES,
        formatter_class=raw,
    )
    _add_paths(dump)
    dump.add_argument("--records", action="store_true", help="the records too, not only the batches")
    dump.add_argument("--keys", action="store_true", help="the records with their keys")
    dump.add_argument("--values", action="store_true", help="the records with their values and header values")
    dump.add_argument(
        "--decode",
        choices=("auto", "offsets", "transactions", "none"),
        default="auto",
        help="what the records are, if the topic's name does not say (default: auto)",
    )
    dump.add_argument(
        "--offset",
        type=_offsets,
        metavar="FROM[:TO]",
        help="only these offsets, without TO; either may be missing",
    )
    dump.add_argument(
        "--time",
        type=_times,
        metavar="FROM[..TO]",
        help="only these timestamps, TO included: milliseconds, or ISO 8601 (UTC if it does not say)",
    )
    dump.add_argument("--committed", action="store_true", help="only what a consumer of committed records gets")
    dump.add_argument("--limit", type=_positive, metavar="N", help="end after N records, or batches without records")

    verify = actions.add_parser(
        "verify",
        help="check every byte, and name every problem",
        description="Check logs, their indexes, snapshots and checkpoints, and print a line for every problem.",
        epilog=_VERIFY_EXAMPLES,
        formatter_class=raw,
    )
    _add_paths(verify, "*")
    verify.add_argument("--strict", action="store_true", help="warnings make the exit code 1 too")
    verify.add_argument("--list", action="store_true", help="print the kinds of problems and end")

    stats = actions.add_parser(
        "stats",
        help="sizes, offsets, times, codecs, keys, producers",
        description="Measure logs, partition by partition.",
        epilog=_STATS_EXAMPLES,
        formatter_class=raw,
    )
    _add_paths(stats)
    stats.add_argument("--quick", action="store_true", help="read batch headers only")
    stats.add_argument("--wide", action="store_true", help="all columns, however wide that is")
    stats.add_argument(
        "--internal", action="store_true", help="show topics like __consumer_offsets by partition, not in a line each"
    )


def _add_paths(command: argparse.ArgumentParser, number: str = "+") -> None:
    command.add_argument("paths", nargs=number, metavar="PATH", help="a log directory, a partition's, or a file")
    command.add_argument("--json", action="store_true", help="one JSON object a line")


# ---- values of options


def _positive(text: str) -> int:
    if re.fullmatch("[0-9]{1,18}", text) is None or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on is expected, not {text[:40]!r}")
    return int(text)


def _offsets(text: str) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"([0-9]{0,19})(?:(:|\.\.)([0-9]{0,19}))?", text)
    if match is None or not (match[1] or match[3]):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not FROM, FROM:TO or :TO")
    return int(match[1]) if match[1] else None, int(match[3]) if match[3] else None


def _times(text: str) -> tuple[int | None, int | None]:
    first, _, last = text.partition("..")
    if not first and not last:
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM, FROM..TO or ..TO")
    return _time(first) if first else None, _time(last) if last else None


def _time(text: str) -> int:
    if re.fullmatch(r"-?[0-9]{6,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is neither milliseconds nor a time like 2026-01-31T08:00"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)

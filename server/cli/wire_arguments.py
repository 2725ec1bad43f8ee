"""The arguments of `barnabas wire tap|replay`; `wire.py` runs them. By itself, and made only for the command that is
called.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_EXAMPLES: Final = """\
examples:
  barnabas wire tap --listen 9093 --to localhost:9092  what clients of port 9093 say, as JSON, a line each
  barnabas wire tap --listen 9093 --to localhost:9092 --odd
  barnabas wire tap --listen 9093 --to b1:9092 --record orders.tape --no-body
  barnabas wire replay orders.tape --to localhost:9092 the recorded requests, to another broker
"""


def add_parser(commands: Commands, called: Sequence[str] | None) -> None:
    """called: the command line. The arguments are only made if `wire` stands there; None: in any case."""
    wire = commands.add_parser(
        "wire",
        help="see what clients and brokers say, record it, say it again",
        description=(
            "Kafka's protocol between any client and any broker: explained, recorded, and said again to another broker."
        ),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if called is not None and "wire" not in called:
        return
    actions = wire.add_subparsers(dest="action", metavar="ACTION", required=True)
    tap = actions.add_parser(
        "tap",
        help="print what passes between clients and a broker",
        description=(
            "Clients connect to the tap in place of the broker. Each request and each answer is printed as a line of\n"
            "JSON. Further brokers of the cluster get the next free ports, and clients are sent there."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tap.add_argument(
        "--listen",
        type=listen,
        required=True,
        metavar="[HOST:]PORT",
        help="where clients connect (without HOST: 127.0.0.1)",
    )
    tap.add_argument("--to", type=address, required=True, metavar="HOST:PORT", help="the broker")
    tap.add_argument("--record", metavar="FILE", help="record what passes, to be replayed; not log-ins")
    tap.add_argument("--overwrite", action="store_true", help="also into a file that holds something, which is lost")
    tap.add_argument(
        "--only",
        type=api,
        action="append",
        default=[],
        metavar="API",
        help="print this API, `Produce`; may be repeated",
    )
    tap.add_argument("--odd", action="store_true", help="print only what is odd or has an error")
    tap.add_argument("--no-body", action="store_true", help="leave the messages out")
    tap.add_argument("--full", action="store_true", help="cut nothing short")
    _connection(tap)
    replay = actions.add_parser(
        "replay",
        help="send recorded requests to a broker",
        description=(
            "Requests go in their recorded order. Ids and epochs that this broker gives out take the place of the\n"
            "recorded ones; what stays as it was is said. Exit code 1 if an answer differs in errors or records."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay.add_argument("file", metavar="FILE", help="a recording of `tap --record`")
    replay.add_argument(
        "--to",
        type=target,
        action="append",
        required=True,
        metavar="[RECORDED=]HOST:PORT",
        help="the broker; or the one in the place of a recorded one: b1:9092=localhost:9092, may be repeated",
    )
    replay.add_argument("--timing", action="store_true", help="leave the recorded times between requests")
    replay.add_argument("--odd", action="store_true", help="print only what differs, or was left out")
    _connection(replay)


def _connection(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--command-config", metavar="FILE", help="how to come to brokers, by Apache Kafka's names: TLS, who logs in"
    )


def api(text: str) -> str:
    """An API's name as it is printed; the text may have it in any case, as METADATA or list-offsets too."""
    from barnabas.server.wire.conversation import NAMES

    if re.fullmatch("API [0-9]{1,5}", text):  # one that this program does not know
        return text
    names = {name.replace(" ", "").lower(): name for name in NAMES}
    sought = re.sub("[-_ ]", "", text[:60]).lower()
    if sought in names:
        return names[sought]
    from difflib import get_close_matches

    close = get_close_matches(sought, names, n=1)
    hint = f" (is {names[close[0]]} meant?)" if close else ""
    raise argparse.ArgumentTypeError(f"{text[:60]!r} is no API that is known{hint}")


def address(text: str) -> tuple[str, int]:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or re.fullmatch("[0-9]{1,5}", port) is None or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"HOST:PORT is expected, not {text[:60]!r}")
    return host, int(port)


def listen(text: str) -> tuple[str, int]:
    """PORT or HOST:PORT; port 0: any free one."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if re.fullmatch("[0-9]{1,5}", port) is None or int(port) > 65535 or (colon and not host):
        raise argparse.ArgumentTypeError(f"PORT or HOST:PORT is expected, not {text[:60]!r}")
    return host or "127.0.0.1", int(port)


def target(text: str) -> tuple[str, tuple[str, int]]:
    """The recorded address, "" for any, and the present one."""
    recorded, equals, now = text.rpartition("=")
    if equals and not recorded:
        raise argparse.ArgumentTypeError(f"RECORDED=HOST:PORT is expected, not {text[:60]!r}")
    return recorded, address(now)

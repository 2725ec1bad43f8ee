"""The arguments of `barnabas users add|list|remove`; users.py runs them. By itself, as the arguments are made for the
help of all commands, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

_DESCRIPTION = """\
Users that log in by SCRAM, before there is a broker that could be asked: the store is opened with the settings that
`serve` would use with the same arguments. That is a directory of log.dirs, while no broker runs on it, or ZooKeeper.
While a broker serves, kafka-configs and any admin client do the same.
"""

_EXAMPLES = """\
examples:
  barnabas users add --scram 'SCRAM-SHA-256=[name=admin,password=admin-secret]' server.properties
  echo 'SCRAM-SHA-512=[name=alice,password=…,iterations=8192]' | barnabas users add --scram - server.properties
  barnabas users list server.properties
  barnabas users remove alice server.properties

What is added stands beside what the user has, a credential of the same mechanism is replaced. Other users see an
argument while the command runs; --scram - reads users from standard input, one a line.
"""


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    add_settings: Callable[[argparse.ArgumentParser], None],
) -> None:
    """add_settings: gives a command the arguments that name the settings."""
    users = commands.add_parser(
        "users",
        help="add, list or remove users that log in by SCRAM",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = users.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="give users credentials")
    add.add_argument(
        "--scram",
        action="append",
        required=True,
        metavar="USER",
        help="SCRAM-SHA-256=[name=…,password=…] or SCRAM-SHA-512=[…], or - for standard input; may be repeated",
    )
    add_settings(add)
    add_settings(actions.add_parser("list", help="show who has credentials"))
    remove = actions.add_parser("remove", help="take a user's credentials away")
    remove.add_argument("name", help="the user")
    remove.add_argument(
        "--mechanism",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512"),
        help="only that of this mechanism (default: all)",
    )
    add_settings(remove)

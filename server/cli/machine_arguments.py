"""The arguments of `barnabas cluster` and `barnabas store`; cluster.py and store.py run them."""

from __future__ import annotations

import argparse
import re

from barnabas.server.cli.common import add_logging, add_settings, port

BROKERS_MOST = 64

_CLUSTER = """\
Run several brokers as processes of this machine, and the store of metadata that they share; no ZooKeeper. What ends by
itself is started again. On SIGTERM or SIGINT (Ctrl-C) the brokers stop one after another, each handing over what it
leads; a second signal stops them at once. Prints one line to standard output when all brokers are ready:

    bootstrap=127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094

Topics get three replicas and need two of them for acks=all, where there are three brokers and the settings do not say
otherwise.
"""

_CLUSTER_EXAMPLES = """\
examples:
  barnabas cluster                                     three brokers on ports 9092 to 9094, gone when they end
  barnabas cluster --brokers 4 --data /data server.properties
  barnabas cluster --port 0 --topic events:6           on free ports, with a topic
  barnabas cluster --set default.replication.factor=1  for more cores, not for more copies

Broker N has id N, port PORT + N - 1 (so have listeners and advertised.listeners of the settings) and the directory
broker-N of DIR, or of each directory of log.dirs.
"""

_STORE = """\
Run the store of metadata that the brokers of a cluster on this machine share through a Unix socket: what `barnabas
cluster` does, for brokers that something else starts. They need --set metadata.store.socket=DIR/socket and ids, ports
and directories of their own.
"""


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Both commands."""
    cluster = commands.add_parser(
        "cluster",
        help="run a cluster on this machine, without ZooKeeper",
        description=_CLUSTER,
        epilog=_CLUSTER_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cluster.add_argument("--brokers", type=_brokers, default=3, metavar="N", help="how many (default: 3)")
    add_settings(cluster)
    cluster.add_argument(
        "--port",
        type=port,
        metavar="PORT",
        help="of the first broker, the others' follow; 0: free ones (default: 9092)",
    )
    cluster.add_argument(
        "--data", metavar="DIR", help="keep everything in DIR (default: log.dirs, else a temporary directory)"
    )
    cluster.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS[:REPLICAS]]",
        help="a topic that is there from the start; may be repeated",
    )
    cluster.add_argument(
        "--security",
        choices=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help="listen with TLS, with log-ins, or both; an authority, certificates and users are made for it",
    )
    cluster.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help="a user of --security beside admin:admin-secret, the super user (default: alice:alice-secret)",
    )
    cluster.add_argument(
        "--security-files",
        metavar="DIR",
        help="where certificates and settings for clients go (default: a temporary directory, announced by security=)",
    )
    add_logging(cluster, default_level="info")

    store = commands.add_parser(
        "store",
        help="run the metadata store of brokers on this machine",
        description=_STORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    store.add_argument("directory", metavar="DIR", help="where it is kept")
    store.add_argument("--socket", metavar="PATH", help="where it listens (default: DIR/socket)")
    store.add_argument(
        "--end-sessions",
        action="store_true",
        help="no broker of the last run is alive: do not wait for their sessions to expire",
    )
    store.add_argument(
        "--announce", action="store_true", help="print `ready` to standard output when brokers may connect"
    )
    store.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="for programs that start it: stop when standard input ends, that is when they are gone",
    )
    add_logging(store, default_level="info")


def _brokers(text: str) -> int:
    if re.fullmatch("[0-9]{1,3}", text) is None or not 0 < int(text) <= BROKERS_MOST:
        raise argparse.ArgumentTypeError(f"a number from 1 to {BROKERS_MOST} is expected, not {text[:40]!r}")
    return int(text)

"""`barnabas health`: does a broker answer? For a container's health check, and for scripts that wait for a broker.

Healthy means that it says which versions it speaks, and that its image of the cluster has brokers and a controller.
Partitions without a leader do not count: restarting this broker would not help them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from barnabas.server.cli.client import client_commands
from barnabas.server.cli.client.client_results import FAILED, OK, REFUSED, Unclear, complain
from barnabas.server.client.approach import Approach
from barnabas.server.client.client import open_client
from barnabas.server.client.failures import ClientError, Unreachable
from barnabas.server.client.view import ClusterView

_LOCALHOST: Final = "localhost"
_OWN_LISTENERS: Final = "KAFKA_LISTENERS"


class Unhealthy(Exception):
    """The broker is unreachable or unhealthy; the message says why."""


def run(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Do what was chosen; returns the exit code."""
    try:
        if chosen.bootstrap is None and _OWN_LISTENERS in environ:
            bootstrap = [bootstrap_of(environ)]  # a container's check is about its own broker, whatever it asks else
        else:
            bootstrap = client_commands.bootstrap_of(chosen, environ, lambda: bootstrap_of(environ))
        print(check(bootstrap, chosen.timeout, client_commands.approach_by(chosen.command_config)))
    except Unclear as error:
        complain(str(error))
        return REFUSED
    except Unhealthy as error:
        complain(str(error))
        return FAILED
    return OK


def check(addresses: Sequence[str], timeout_s: float, approach: Approach) -> str:
    """A summary of a healthy broker's cluster. timeout_s: for all of it. approach: TLS and log-in. Raises Unhealthy."""
    bootstrap = ", ".join(addresses)
    try:
        cluster = trio.run(_cluster, addresses, timeout_s, approach)
    except ClientError as error:
        raise Unhealthy(str(error)) from None
    if not cluster.brokers:
        raise Unhealthy(f"{bootstrap} answers, but knows no brokers yet")
    if cluster.controller_id < 0:
        raise Unhealthy(f"{bootstrap} answers, but knows no controller")
    count = len(cluster.brokers)
    return f"{bootstrap} answers: {count} broker{'' if count == 1 else 's'}, controller {cluster.controller_id}"


async def _cluster(addresses: Sequence[str], timeout_s: float, approach: Approach) -> ClusterView:
    """Raises ClientError."""
    # An exchange may take half of a client's time; there are two here, the versions and the cluster.
    with trio.move_on_after(timeout_s):
        async with open_client(
            addresses, approach=approach, client_id="barnabas-health", timeout_s=2 * timeout_s
        ) as client:
            return await client.refresh([])
    raise Unreachable(f"{', '.join(addresses)} did not answer within {timeout_s:g} s")


def bootstrap_of(environ: Mapping[str, str]) -> str:
    """The first listener of the broker that this environment configures, as a container's does."""
    from barnabas.server.config.broker import BrokerConfig, load
    from barnabas.server.config.problems import SettingsRefused
    from barnabas.server.settings.endpoints import ANY_ADDRESS

    try:
        config = load(environ=environ)
    except SettingsRefused:
        config = BrokerConfig.from_values({"listeners": f"PLAINTEXT://{_LOCALHOST}:9092"})
    first = config.listeners[0]
    host = _LOCALHOST if first.host in ANY_ADDRESS else first.host
    return f"[{host}]:{first.port}" if ":" in host else f"{host}:{first.port}"

"""`barnabas health`: does a broker answer? For a container's health check, and for scripts that wait for a broker.

Healthy means that it says which versions it speaks, and that its image of the cluster has brokers and a controller.
Partitions without a leader do not count: restarting this broker would not help them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.kproto.messages import ApiVersionsRequest, MetadataRequest
from barnabas.server.config.broker import BrokerConfig, load
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.network.blocking_client import BlockingClient, NoAnswer
from barnabas.server.settings.endpoints import ANY_ADDRESS

if TYPE_CHECKING:
    from barnabas.server.cli.command_config import Approach

_METADATA: Final = 3
_NEWEST_METADATA: Final = 12
_LOCALHOST: Final = "localhost"


class Unhealthy(Exception):
    """The broker is unreachable or unhealthy; the message says why."""


def check(bootstrap: str, timeout_s: float, command_config: str | None = None) -> str:
    """A summary of a healthy broker's cluster. command_config: a file that says how to connect to it. Raises
    Unhealthy.
    """
    approach = _approach(command_config)
    try:
        with BlockingClient(
            bootstrap,
            timeout_s=timeout_s,
            client_id="barnabas-health",
            tls=None if approach is None else approach.tls,
            credentials=None if approach is None else approach.credentials,
        ) as client:
            spoken = client.ask(ApiVersionsRequest(), 0)
            newest = next((api.max_version for api in spoken.api_keys if api.api_key == _METADATA), None)
            if newest is None:
                raise Unhealthy(f"{bootstrap} does not offer Metadata")
            # No topics: an empty list from version 1 on.
            cluster = client.ask(MetadataRequest(topics=[]), min(newest, _NEWEST_METADATA))
    except NoAnswer as error:
        raise Unhealthy(str(error)) from None
    if not cluster.brokers:
        raise Unhealthy(f"{bootstrap} answers, but knows no brokers yet")
    if cluster.controller_id < 0:
        raise Unhealthy(f"{bootstrap} answers, but knows no controller")
    count = len(cluster.brokers)
    return f"{bootstrap} answers: {count} broker{'' if count == 1 else 's'}, controller {cluster.controller_id}"


def _approach(command_config: str | None) -> Approach | None:
    if command_config is None:
        return None
    from barnabas.server.cli.command_config import Unusable, read_approach  # loads TLS

    try:
        return read_approach(command_config)
    except Unusable as error:
        raise Unhealthy(str(error)) from None


def bootstrap_of(environ: Mapping[str, str]) -> str:
    """The first listener of the broker that this environment configures, as a container's does."""
    try:
        config = load(environ=environ)
    except SettingsRefused:
        config = BrokerConfig.from_values({"listeners": f"PLAINTEXT://{_LOCALHOST}:9092"})
    first = config.listeners[0]
    host = _LOCALHOST if first.host in ANY_ADDRESS else first.host
    return f"[{host}]:{first.port}" if ":" in host else f"{host}:{first.port}"

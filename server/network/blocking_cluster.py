"""Topics and groups of a cluster over blocking clients: topics are the controller's to make and delete, and then every
broker has to hear of it; groups are looked for on each broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import MetadataRequest
from barnabas.server.network import blocking_admin as admin
from barnabas.server.network.blocking_admin import Refused
from barnabas.server.network.blocking_client import BlockingClient, NoAnswer

if TYPE_CHECKING:
    from ssl import SSLContext

    from barnabas.server.security.sasl.client import ClientCredentials

T = TypeVar("T")
_PASSES: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
"""While a controller is elected."""
_PAUSE_S: Final = 0.02


class BlockingCluster:
    """addresses: `host:port` of the brokers that run. timeout_s: for all that one call has to wait for."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        timeout_s: float = 30.0,
        client_id: str = "barnabas",
        tls: SSLContext | None = None,
        credentials: ClientCredentials | None = None,
    ) -> None:
        self._addresses = list(addresses)
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._tls = tls
        self._credentials = credentials

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        settings: Mapping[str, str] | None = None,
        replicas: int = -1,
        *,
        may_exist: bool = False,
    ) -> None:
        """Create a topic; every broker knows its leaders on return. Raises Refused, NoAnswer."""

        def create(client: BlockingClient) -> None:
            try:
                admin.create_topic(client, name, partitions, settings, replicas)
            except Refused as refused:
                if not (may_exist and refused.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise

        self._at_controller(create)
        self._until_all_agree([name], is_there=True)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics, unless they are gone already; no broker knows them on return. Raises Refused, NoAnswer."""
        self._at_controller(lambda client: admin.delete_topics(client, names))
        self._until_all_agree(names, is_there=False)

    def reset(self) -> None:
        """Delete all groups and all topics but Kafka's internal ones. Raises Refused, NoAnswer."""
        for address in self._addresses:
            with self._client(address) as client:
                admin.delete_groups(client)
        names = self._at_controller(admin.topic_names)
        if names:
            self.delete_topics(names)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _client(self, address: str) -> BlockingClient:
        return BlockingClient(
            address,
            timeout_s=self._timeout_s,
            client_id=self._client_id,
            tls=self._tls,
            credentials=self._credentials,
        )

    def _at_controller(self, act: Callable[[BlockingClient], T]) -> T:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                with self._client(self._controller()) as client:
                    return act(client)
            except (Refused, NoAnswer) as error:
                passes = isinstance(error, NoAnswer) or error.code in _PASSES
                if not passes or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _controller(self) -> str:
        """Its address. Raises NoAnswer."""
        for address in self._addresses:
            with suppress(NoAnswer), self._client(address) as client:
                answer = client.ask(MetadataRequest(topics=[]), 12)
                for broker in answer.brokers:
                    if broker.node_id == answer.controller_id:
                        return f"{broker.host}:{broker.port}"
        raise NoAnswer(f"none of {', '.join(self._addresses) or 'no brokers'} knows a controller")

    def _until_all_agree(self, names: Sequence[str], *, is_there: bool) -> None:
        deadline = time.monotonic() + self._timeout_s
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        for address in self._addresses:
            with self._client(address) as client:
                while not all(_is(each, is_there=is_there) for each in client.ask(request, 9).topics):
                    if time.monotonic() > deadline:
                        wanted = "knows the leaders of" if is_there else "has forgotten"
                        shown = ", ".join(list(names)[:5])
                        raise NoAnswer(f"not every broker {wanted} {shown} within {self._timeout_s:g} s")
                    time.sleep(_PAUSE_S)


def _is(topic: Any, *, is_there: bool) -> bool:
    """Of a topic in an answer to Metadata."""
    if not is_there:
        return bool(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions)

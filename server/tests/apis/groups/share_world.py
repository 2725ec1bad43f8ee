"""Handlers of share groups over real logs and stores, under a virtual clock; each client is a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import Any

import trio

from barnabas.kproto import KafkaError, decode, encode, encoder, request_class, response_class
from barnabas.kproto.messages import ShareAcknowledgeRequest, ShareFetchRequest
from barnabas.logdir import FileSlice
from barnabas.server.apis.groups import share_acknowledge, share_fetch
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.tests.apis.fakes import at_once
from barnabas.server.tests.coordinators.share.persister_kit import settle
from barnabas.server.tests.coordinators.share.test_share_groups import GroupsRig, groups_rig
from barnabas.server.tests.coordinators.share.test_share_partitions import PartitionsRig

Said = tuple[int, int, int]
"""First and last offset, and what is said."""


class Context:
    """Of a request on a connection."""

    listener = "PLAINTEXT"
    client_id = "client"
    client_host = "127.0.0.1"
    fetch_bytes_max = None
    route = SimpleNamespace(name="test", is_large=lambda response: False)

    def __init__(self, version: int, connection: object) -> None:
        self.api_version = version
        self.connection = connection
        self.closed = False
        self.answers: list[Any] = []
        self.close: Callable[[], None] | None = None
        self.fetched_bytes = 0

    def reply(self, response: Any) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(response)

    def on_close(self, callback: Callable[[], None]) -> None:
        self.close = callback

    def count_fetched(self, size: int) -> None:
        self.fetched_bytes += size

    def release_waiters(self) -> str:
        return "test"


class Asked:
    """A request whose answer may come later."""

    def __init__(self, api: Api, context: Context) -> None:
        self._api = api
        self.context = context

    @property
    def waits(self) -> bool:
        return not self.context.answers

    @property
    def answer(self) -> Any:
        (response,) = self.context.answers
        version = self.context.api_version
        parts = encoder(type(response), version)(response)
        encoded = b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in parts)
        return decode(response_class(self._api.key), version, encoded)


class ShareWorld:
    """`svc` is what handlers get. level: of `share.version`."""

    def __init__(self, groups: GroupsRig) -> None:
        self.groups = groups
        self.parts = PartitionsRig(groups.at)
        self.level = 1
        self._is_writing = True
        at = groups.at
        self.svc: Any = at.world.svc
        self.svc.groups = groups.groups
        self.svc.share_partitions = self.parts.shares
        self.svc.share_states = at.states
        self.svc.features = SimpleNamespace(level=lambda name: self.level if name == "share.version" else 0)
        self.svc.timers = at.timers
        self.svc.now = trio.current_time
        self.svc.authorizer = None

    @contextmanager
    def unwritten(self) -> Iterator[None]:
        """What is stored in here is written at the end."""
        self._is_writing = False
        try:
            yield
        finally:
            self._is_writing = True
            self.groups.round()

    def ask(self, api: Api, request: Any, version: int | None = None, connection: object = "one") -> Asked:
        """Request and response go through the codec."""
        version = api.versions[1] if version is None else version
        asked = decode(request_class(api.key), version, encode(request, version))
        self.svc.image, self.svc.config = self.groups.at.world.image, self.groups.at.config
        context: Any = Context(version, connection)
        try:
            response = api.handle(self.svc, context, asked)
            if isinstance(response, GeneratorType):
                response = at_once(response)
        except KafkaError as error:
            if api.on_error is None:
                response = response_class(api.key)()
                response.error_code = error.code
            else:
                response = api.on_error(asked, error.code, version)
        if response is not PENDING:
            context.reply(response)
        if self._is_writing:
            self.groups.round()
        return Asked(api, context)

    async def told(self, api: Api, request: Any, version: int | None = None) -> Any:
        """The answer of a handler that is a task."""
        version = api.versions[1] if version is None else version
        self.svc.image, self.svc.config = self.groups.at.world.image, self.groups.at.config
        context: Any = Context(version, "one")
        try:
            response = await api.handle(self.svc, context, request)
        except KafkaError as error:
            assert api.on_error is not None
            response = api.on_error(request, error.code, version)
        return decode(response_class(api.key), version, encode(response, version))

    async def answer(self, api: Api, request: Any, version: int | None = None, connection: object = "one") -> Any:
        asked = self.ask(api, request, version, connection)
        await settle()
        return asked.answer

    def fetch(
        self,
        epoch: int,
        *said: Said,
        member: str = "a",
        partitions: Sequence[int] = (0,),
        forgotten: Sequence[int] = (),
        version: int = 2,
        connection: object = "one",
        **fields: Any,
    ) -> Asked:
        """A ShareFetch of topic t. said: about its first partition."""
        batches = [
            ShareFetchRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[what])
            for first, last, what in said
        ]
        topic_id = self.groups.at.topic_id
        request = ShareFetchRequest(
            **{
                "group_id": "g",
                "member_id": member,
                "share_session_epoch": epoch,
                "max_wait_ms": 0 if epoch else 100,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                "topics": [
                    ShareFetchRequest.FetchTopic(
                        topic_id=topic_id,
                        partitions=[
                            ShareFetchRequest.FetchPartition(
                                partition_index=index, acknowledgement_batches=batches if index == 0 else []
                            )
                            for index in partitions
                        ],
                    )
                ],
                "forgotten_topics_data": [
                    ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=list(forgotten))
                ],
                **fields,
            }
        )
        return self.ask(share_fetch.API, request, version, connection)

    def acknowledge(self, epoch: int, *said: Said, member: str = "a", version: int = 2, **fields: Any) -> Asked:
        batches = [
            ShareAcknowledgeRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[what])
            for first, last, what in said
        ]
        partition = ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=self.groups.at.topic_id, partitions=[partition])
        request = ShareAcknowledgeRequest(
            **{"group_id": "g", "member_id": member, "share_session_epoch": epoch, "topics": [topic], **fields}
        )
        return self.ask(share_acknowledge.API, request, version)


@asynccontextmanager
async def share_world(directory: Path, **settings: str) -> AsyncIterator[ShareWorld]:
    async with groups_rig(directory, **settings) as groups:
        groups.at.topic(0)
        world = ShareWorld(groups)
        world.parts.configure(auto_offset_reset="earliest")
        await groups.heartbeat(0, "t")
        yield world


def found(answer: Any) -> dict[int, tuple[int, int, list[tuple[int, int, int]]]]:
    """By partition: the error, that of the acknowledgements, and what was acquired."""
    return {
        each.partition_index: (
            each.error_code,
            each.acknowledge_error_code,
            [(got.first_offset, got.last_offset, got.delivery_count) for got in each.acquired_records],
        )
        for topic in answer.responses
        for each in topic.partitions
    }

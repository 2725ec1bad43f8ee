"""A controller on an embedded store behind the topic APIs, asked through the codec at a version of one's choice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio

from barnabas.kproto import KafkaError, decode, encode, response_class
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.image_cache import ImageCache
from barnabas.server.runtime.offload import inline
from barnabas.server.runtime.turns import Turns
from barnabas.server.tests.apis.fakes import at_once
from barnabas.server.tests.cluster.controller_driver_rig import Rig, running


class Context:
    """Stands for a RequestContext."""

    def charge(self, count: int, *, strict: bool) -> None:
        """No client is limited."""

    def __init__(self, version: int, listener: str) -> None:
        self.api_version = version
        self.listener = listener
        self.client_id = "test"
        self.client_host = "127.0.0.1"
        self.answers: list[Any] = []
        self.answered = trio.Event()

    def reply(self, response: Any) -> None:
        self.answers.append(response)
        self.answered.set()


class TopicRig:
    """`ask` sends a request through encoder, decoder, handler, encoder, decoder: what a client of that version sees."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.services: Any = SimpleNamespace(
            cluster=rig.member,
            topics=rig.topics,
            controller=rig.partitions,
            config=rig.config,
            image_cache=ImageCache(),
            turns=Turns(inline),
        )

    async def ask(self, api: Api, request: Any, version: int | None = None, listener: str = "PLAINTEXT") -> Any:
        version = api.versions[1] if version is None else version
        assert api.versions[0] <= version <= api.versions[1]
        self.services.image = self.rig.member.image
        received = decode(type(request), version, encode(request, version))
        context: Any = Context(version, listener)
        try:
            response = at_once(api.handle(self.services, context, received))
            if response is PENDING:
                with trio.fail_after(60):
                    while not context.answers:
                        self.services.image = self.rig.member.image
                        await trio.lowlevel.checkpoint()
                [response] = context.answers
            elif hasattr(response, "__await__"):
                response = at_once(await response)
        except Exception as error:
            if not isinstance(error, KafkaError):
                raise
            if api.on_error is not None:
                response = api.on_error(received, error.code, version)
            else:
                response = response_class(api.key)(error_code=error.code)
        return decode(response_class(api.key), version, encode(response, version))


@asynccontextmanager
async def topic_rig(**options: Any) -> AsyncIterator[TopicRig]:
    async with running(**options) as rig:
        yield TopicRig(rig)

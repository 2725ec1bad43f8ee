"""The internal topic of a coordinator: which of its partitions a key lives in, and its creation when it is missing."""

from __future__ import annotations

import logging

import trio

from barnabas.coordinator import partition_for
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import PartitionImage
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.runtime.containment import serve

CREATE_RETRY_S = 1.0


class InternalTopic:
    """See the module. `run` must be running for the topic to be created."""

    def __init__(self, name: str, log: logging.Logger, ground: CoordinatorGround) -> None:
        self.name = name
        self._log = log
        self._image = ground.current_image
        self._create = ground.create_topic
        self._wanted = trio.Event()  # taken down when that is done, so that what fails is tried again

    def place(self, key: str) -> PartitionImage | None:
        """The partition of a group or transactional id; None while the topic does not exist."""
        topic = self._image().topics.get(self.name)
        if topic is None or not topic.partitions:
            return None
        return topic.partitions[partition_for(key, len(topic.partitions))]

    def want(self) -> None:
        """Have the topic created: a client needs a coordinator, and there is no topic yet."""
        self._wanted.set()

    async def run(self) -> None:
        """Create the topic when it is wanted, until cancelled."""
        await serve(self._log, f"having {self.name} created", self._run)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            if self.name not in self._image().topics:
                try:
                    await self._create(self.name)
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        self._log.warning("%s cannot be created: %s", self.name, error)
                        await trio.sleep(CREATE_RETRY_S)
            self._wanted = trio.Event()

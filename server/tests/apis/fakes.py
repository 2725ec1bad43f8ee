"""A small world for handlers of the config APIs: real settings and a real image, a controller that keeps them in
dictionaries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import GeneratorType, MappingProxyType, SimpleNamespace
from typing import Any

from barnabas.kproto import decode, encode
from barnabas.replication import BrokerImage, Image, PartitionImage, TopicImage
from barnabas.server.config.broker import BrokerConfig

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]


def topic_image(name: str, config: Mapping[str, str] | None = None) -> TopicImage:
    partition = PartitionImage(0, 1, 0, 0, (1,), (1,))
    return TopicImage(name, name.encode().ljust(16, b"\0"), (partition,), MappingProxyType(dict(config or {})))


async def _nothing(*_: Any) -> None:
    """There is nothing to be done."""


@dataclass
class World:
    """Stands for `Services`, as far as the config APIs look at them."""

    config: BrokerConfig = field(default_factory=lambda: BrokerConfig.from_values({}))
    image: Image = field(
        default_factory=lambda: Image(brokers={1: BrokerImage(1, ())}).with_topics([topic_image("orders")])
    )
    writes: int = 0
    listeners: Any = field(default_factory=lambda: SimpleNamespace(validate=_nothing, applied=_nothing))

    @property
    def topics(self) -> Any:
        return SimpleNamespace(
            alter_topic_config=self._alter_topic,
            alter_broker_config=self._alter_broker,
            alter_group_config=self._alter_group,
            alter_client_metrics=self._alter_client_metrics,
        )

    async def _alter_topic(self, topic: str, edit: Edit) -> None:
        after = edit(self.image.topics[topic].config)
        self.image = self.image.with_topics([topic_image(topic, after)])
        self.writes += 1

    async def _alter_broker(self, broker_id: int | None, edit: Edit) -> None:
        name = "<default>" if broker_id is None else str(broker_id)
        self.image = self.image.with_broker_config(name, edit(self.image.broker_configs.get(name, {})))
        self.config = self.config.with_dynamic(
            cluster=self.image.broker_configs.get("<default>", {}), broker=self.image.broker_configs.get("1", {})
        )
        self.writes += 1

    async def _alter_group(self, group_id: str, edit: Edit) -> None:
        after = edit(self.image.group_configs.get(group_id, {}))
        self.image = self.image.with_group_config(group_id, after)
        self.writes += 1

    async def _alter_client_metrics(self, name: str, edit: Edit) -> None:
        after = edit(self.image.client_metrics.get(name, {}))
        self.image = self.image.with_client_metrics(name, after)
        self.writes += 1


def context(version: int) -> Any:
    return SimpleNamespace(api_version=version, client_id="test", charge=lambda count, *, strict: None)


def at_once(response: Any) -> Any:
    """What a handler that works in steps comes to, without turns; any other response as it is."""
    if not isinstance(response, GeneratorType):
        return response
    while True:
        try:
            next(response)
        except StopIteration as done:
            return done.value


def over_the_wire(message: Any, version: int) -> Any:
    """The message as the other side sees it; fails if it cannot be encoded in this version."""
    return decode(type(message), version, encode(message, version))

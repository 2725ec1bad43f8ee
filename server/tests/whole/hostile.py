"""The fuzzer's requests (`compat_tests.fuzz`) for brokers in the same process: what a client could know of a broker,
and frames made of it, from a seed.
"""

from __future__ import annotations

import random
from typing import Any

from barnabas.kproto import ApiKey
from barnabas.server.apis import APIS
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.api import Api
from compat_tests.fuzz.damage import damaged_frame
from compat_tests.fuzz.grammar import Grammar, Limits, Request
from compat_tests.fuzz.pools import FIXED_TOPICS, Pools, Sent

WELL_FORMED = Limits(odd_texts=False, huge_bytes=0, lies=False, damage=0.0, unserved=0.0)
"""Every request is one that must be answered."""
ANYTHING = Limits(huge_bytes=20_000, damage=0.0)
"""Also such as close the connection. Damage is done by who sends."""


class World:
    """`see` learns from answers, `look` from the broker itself."""

    def __init__(self, rng: random.Random, secret_topics: tuple[str, ...]) -> None:
        self.rng = rng
        self._secret = secret_topics
        self._pools = Pools(secret_topics)
        self._grammar = Grammar(rng, self._pools, {int(api.key): api.versions for api in APIS}, WELL_FORMED)

    def allow(self, limits: Limits) -> None:
        """How far the next requests go."""
        self._grammar.limits = limits

    def look(self, broker: Broker) -> None:
        for name, topic in broker.services.image.topics.items():
            if name not in self._secret:
                self._pools.topic_ids.learn(topic.topic_id)

    def see(self, key: ApiKey, sent: Sent, answer: Any) -> None:
        self._pools.see(key, sent, answer)

    def request(self, api: Api, version: int, correlation_id: int) -> Request:
        return self._grammar.request_of(api.key, version, correlation_id)


__all__ = ["ANYTHING", "FIXED_TOPICS", "WELL_FORMED", "World", "damaged_frame"]

"""What the members of a `consumer` group subscribe to, read from the metadata that they join with.

Only the prefix that all versions share (version 0 of `ConsumerProtocolSubscription`: topics, user data) is read, so
the coordinator does not depend on what clients add. Metadata of another protocol type is never looked into.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kproto import DecodeError, decode
from kproto.stored import ConsumerProtocolSubscription

CONSUMER: Final = "consumer"
"""The protocol type of consumer groups; Kafka Connect's and others differ."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that one of the members subscribes to; None when a subscription cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        if len(subscription) < 2:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, 0, subscription, 2).topics)
        except DecodeError:
            return None
    return frozenset(topics)

"""What the config APIs share: resource types, and which of them can be described or changed here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.requests.services import Services

ALL_BROKERS = "<default>"
"""The name under which settings of all brokers are stored."""


class ResourceType(IntEnum):
    """ConfigResource.Type of Kafka's admin protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def stored_topic(svc: Services, name: str) -> Mapping[str, str]:
    """The settings stored for the topic. Raises KafkaError."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic must be named: there are no settings for all topics")
    topic = svc.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic.config


def stored_broker(svc: Services, name: str) -> Mapping[str, str]:
    """The dynamic settings of this broker, or of all brokers for an empty name. Raises KafkaError."""
    check_broker_id(name, svc.config.broker_id, or_empty=True)
    return svc.image.broker_configs.get(name or ALL_BROKERS, {})


def stored_group(svc: Services, name: str) -> Mapping[str, str]:
    """The settings stored for the group, which need not exist. Raises KafkaError."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group must be named: there are no settings for all groups")
    return svc.image.group_configs.get(name, {})


def stored_client_metrics(svc: Services, name: str) -> Mapping[str, str]:
    """The settings stored for the client-metrics subscription, which need not exist. Raises KafkaError."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a client-metrics subscription must be named: there is no default")
    return svc.image.client_metrics.get(name, {})


def check_broker_id(name: str, broker_id: int, *, or_empty: bool) -> None:
    """A broker answers for itself: `name` must be its id (or nothing, for all brokers). Raises INVALID_REQUEST."""
    if name == "" and or_empty:
        return
    try:
        requested = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the broker id must be a whole number, not {name!r}") from None
    if requested != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {broker_id}: send the request to broker {name}")


def unsupported(resource_type: int) -> KafkaError:
    """The error for a resource type that has no settings here."""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"there are no settings of resource type {resource_type} here")

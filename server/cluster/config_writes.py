"""Settings of one entity, written into the metadata store and applied here: topics, brokers, groups, users."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import CommitRefused, CommitTooLarge, NoSuchNode, PathTooLong, StoreFailed, write_config
from barnabas.server.cluster.member import ClusterMember

EditConfig = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Old settings to new ones; raises KafkaError for invalid ones."""


async def write_entity(member: ClusterMember, kind: str, name: str, edit: EditConfig) -> None:
    """Replace the settings of an entity by `edit(settings)`, which is called again if they changed meanwhile. On
    return they are in force here. Raises KafkaError INVALID_CONFIG for what the store rejects, NOT_CONTROLLER when it
    has failed, which stops the broker; NoSuchNode for a topic that does not exist.
    """
    try:
        await write_config(member.store, kind, name, edit)
    except NoSuchNode:
        raise
    except StoreFailed:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The metadata store has failed.") from None
    except PathTooLong:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "The name is too long for settings to be stored.") from None
    except CommitTooLarge:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "The settings are too large to be stored.") from None
    except CommitRefused as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The settings cannot be stored: {error}") from None
    await member.reload_config(kind, name)

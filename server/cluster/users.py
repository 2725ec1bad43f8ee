"""Users of the cluster: the SCRAM credentials in force on this broker, and their changes.

A user's node may also have quotas, which belong to `barnabas.server.cluster.client_quotas`. Each keeps the other's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.replication import DEFAULT_ENTITY, USER_CONFIG
from barnabas.server.cluster.config_writes import EditConfig, write_entity
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.security.sasl.users import ScramUsers

log = logging.getLogger("barnabas.security")


class Users:
    """`scram`: the credentials, kept up to date from before the broker serves. secret: see `ScramUsers`."""

    def __init__(self, member: ClusterMember, secret: bytes) -> None:
        self.scram = ScramUsers(secret)
        self._member = member
        member.watch_clients(self._changed)

    async def alter(self, name: str, edit: EditConfig) -> None:
        """Replace what is stored of a user by `edit(stored)`: credentials and quotas alike. On return it is in force
        here. Raises KafkaError: what `edit` raises, and as `write_entity`.
        """
        await write_entity(self._member, USER_CONFIG, name, edit)

    def _changed(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        if kind != USER_CONFIG or name == DEFAULT_ENTITY:
            return
        for problem in self.scram.put(name, config):
            log.error("%s", problem)

"""Members of the groups of one partition that speak the next generation's protocol: ConsumerGroupHeartbeat, and the
topics that match their patterns.

What a request does in its group is `group`'s; here is which group it means, and that the first such member makes a
group, or makes one out of a classic group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.consumer.group import ConsumerGroup, check_heartbeat, heartbeat_refusal
from barnabas.coordinator.group.consumer.member_step import InvalidPattern, ResolvePatterns
from barnabas.coordinator.group.consumer.upgrade import gone_over, upgrade
from barnabas.coordinator.group.store import GroupStore
from barnabas.coordinator.machine import NOTHING, Decision, Now, Result, answer
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ConsumerGroupHeartbeatRequest


class ConsumerMembership:
    """See the module."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str | None,
        client_host: str,
        unique: str,
        invalid_pattern: InvalidPattern,
        token: Any,
        now: Now,
    ) -> Result:
        """ConsumerGroupHeartbeat. `client_host`: as stored and shown (`/127.0.0.1`). `unique`: random text, the id of a
        new member that brings none (version 0). `invalid_pattern`: why a regular expression cannot be used, or None.

        Answers `ConsumerGroupHeartbeatResponse`. May have the effect `ResolvePatterns`.
        """
        out = Decision()
        try:
            check_heartbeat(request, version, self._store.context.config)
            if request.member_epoch < 0:
                self._consumer_group(request.group_id, "Group").leave(request, token, now, out)
                return out.result()
            before = self._store.groups.get(request.group_id)
            group = self._joined_group(request, out)
            member_id = request.member_id or unique
            group.heartbeat(request, member_id, client_id or "", client_host, invalid_pattern, token, now, out)
            if isinstance(before, ClassicGroup):
                gone_over(before, group, now, out)
        except KafkaError as error:
            return answer(token, heartbeat_refusal(error.code, error.message))
        return out.result()

    def _joined_group(self, request: ConsumerGroupHeartbeatRequest, out: Decision) -> ConsumerGroup:
        """The group of a heartbeat; a member that joins may make one, or out of a classic one. Nothing has changed yet
        but a list of records.
        """
        group = self._store.groups.get(request.group_id)
        if request.member_epoch != 0 or isinstance(group, ConsumerGroup) or request.group_id in self._store.foreign:
            return self._consumer_group(request.group_id, "Consumer group")
        if group is None:
            return ConsumerGroup(request.group_id, self._store.context)
        if not isinstance(group, ClassicGroup):
            return self._consumer_group(request.group_id, "Consumer group")
        return upgrade(group, self._store.context, out)

    def _consumer_group(self, group_id: str, what: str) -> ConsumerGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._store.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group_id not in self._store.foreign:
            return group
        why = f"{what} {group_id} not found."
        if group is not None or group_id in self._store.foreign:
            why = f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)

    def patterns_resolved(
        self, effect: ResolvePatterns, resolved: Mapping[str, Collection[str]] | None, started_ms: int, now: Now
    ) -> Result:
        """What an effect came to: for each pattern the names of topics that match it, as of `started_ms`. None: it
        failed, and is tried again with a later heartbeat.
        """
        self._store.context.resolving.discard(effect.group_id)
        group = self._store.groups.get(effect.group_id)
        if resolved is None or not isinstance(group, ConsumerGroup):
            return NOTHING
        out = Decision()
        group.patterns_resolved(effect, resolved, started_ms, out)
        return out.result()

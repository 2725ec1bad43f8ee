"""Share groups in the broker: a part of `barnabas.server.coordinators.groups`, whose shards have them.

What groups want of share coordinators (`InitializeState`, `DeleteState`) is asked, and the groups are told. Operations
raise KafkaError as those of other groups: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from barnabas.coordinator import GroupShard
from barnabas.coordinator.group.share import (
    Codes,
    DeleteState,
    InitializeState,
    Place,
    ShareGroupConfig,
    ShareGroups,
    check_share_heartbeat,
)
from barnabas.coordinator.share import ShareKey
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ShareGroupDescribeResponse, ShareGroupHeartbeatRequest
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.results import Results
from barnabas.server.coordinators.share.persister import SharePersister
from barnabas.server.coordinators.share.state_wire import Asked, Delete, Initialize

Led = CoordinatedShard[GroupShard]


def share_config(config: BrokerConfig) -> ShareGroupConfig:
    """The machine's settings out of the broker's."""
    return ShareGroupConfig(
        session_timeout_ms=config.get_int("group.share.session.timeout.ms"),
        heartbeat_interval_ms=config.get_int("group.share.heartbeat.interval.ms"),
        assignment_interval_ms=config.get_int("group.share.assignment.interval.ms"),
        max_size=config.get_int("group.share.max.size"),
        initialize_retry_interval_ms=config.get_int("group.share.initialize.retry.interval.ms"),
    )


class ShareGroupOperations:
    """See the module. results: of the coordinator of groups. group: a group's partition, with the latest topics."""

    def __init__(
        self,
        ground: CoordinatorGround,
        persister: SharePersister,
        results: Results[GroupShard],
        group: Callable[[str], Led],
    ) -> None:
        self._ground = ground
        self._persister = persister
        self._results = results
        self._group = group

    # -- effects ----------------------------------------------------------------------------------

    def carry_out(self, led: Led, effect: InitializeState | DeleteState) -> None:
        """Ask for all of it, and tell the group what came of it."""
        asked: Mapping[ShareKey, Asked]
        if isinstance(effect, InitializeState):
            asked = {
                ShareKey(effect.group_id, *place): Initialize(effect.state_epoch, start)
                for place, start in effect.starts.items()
            }
        else:
            asked = {ShareKey(effect.group_id, *place): Delete() for place in effect.places}
        self._persister.ask_all(asked, _Told(self, led, effect).told, lambda: not led.is_closed)

    def told(self, led: Led, effect: InitializeState | DeleteState, codes: Codes) -> None:
        """The answers are there."""
        if led.is_closed:
            _refuse(effect)
            return
        shares, now = _shares(led), self._ground.time()
        if isinstance(effect, InitializeState):
            self._results.apply(led, shares.initialized(effect, codes, now))
        else:
            self._results.apply(led, shares.deleted(effect, codes, now))

    # -- operations -------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str | None, client_host: str, token: Any
    ) -> None:
        """Answers ShareGroupHeartbeatResponse. `client_host`: the bare address. What is wrong with the request
        (KafkaError INVALID_REQUEST) every broker says, as in Apache Kafka.
        """
        check_share_heartbeat(request)
        led = self._group(request.group_id)
        now = self._ground.time()
        self._results.apply(led, _shares(led).heartbeat(request, client_id, f"/{client_host}", token, now))

    def describe(self, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
        """GROUP_ID_NOT_FOUND inside for another or unknown one."""
        return _shares(self._group(group_id)).describe(group_id)

    def initialized_partitions(self, group_id: str) -> Mapping[bytes, Collection[int]] | None:
        """By topic id, what the group may read; None if there is no such group."""
        return _shares(self._group(group_id)).initialized_partitions(group_id)

    def alter_offsets(self, group_id: str, starts: Mapping[Place, int], token: Any) -> None:
        """Answers `Codes`, or an ErrorCode about all; see `ShareGroups.alter_offsets`."""
        led = self._group(group_id)
        self._results.apply(led, _shares(led).alter_offsets(group_id, starts, token, self._ground.time()))

    def delete_offsets(self, group_id: str, topic_ids: Collection[bytes], token: Any) -> None:
        """Answers `Codes`, or an ErrorCode about all; see `ShareGroups.delete_offsets`."""
        led = self._group(group_id)
        self._results.apply(led, _shares(led).delete_offsets(group_id, topic_ids, token))


def _shares(led: Led) -> ShareGroups:
    shares = led.shard.wanted_shares()
    if shares is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return shares


def _refuse(effect: InitializeState | DeleteState) -> None:
    """Another broker coordinates the group now, and knows nothing of who waits here."""
    if effect.token is None:
        return
    code = ErrorCode.NOT_COORDINATOR
    if isinstance(effect, DeleteState):
        effect.token.reply(code if effect.is_whole else dict.fromkeys(effect.places, code))
    else:
        effect.token.reply(dict.fromkeys(effect.starts, code))


class _Told:
    """Who is told the answers to an effect."""

    __slots__ = ("_effect", "_led", "_operations")

    def __init__(self, operations: ShareGroupOperations, led: Led, effect: InitializeState | DeleteState) -> None:
        self._operations = operations
        self._led = led
        self._effect = effect

    def told(self, answers: Mapping[ShareKey, Any]) -> None:
        codes = {(key.topic_id, key.partition): told.code for key, told in answers.items()}
        self._operations.told(self._led, self._effect, codes)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        token = self._effect.token
        return f"share group {self._effect.group_id!r}" if token is None else str(token.release_waiters())

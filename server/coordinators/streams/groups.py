"""Streams groups in the broker: a part of `barnabas.server.coordinators.groups`, whose shards have them.

Operations raise KafkaError as those of other groups: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.coordinator import GroupShard
from barnabas.coordinator.group.streams import (
    StreamsGroupConfig,
    StreamsGroups,
    StreamsSettings,
    check_streams_heartbeat,
)
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.results import Results
from barnabas.server.coordinators.streams.internal_topics import InternalTopics, TopicMaker

Led = CoordinatedShard[GroupShard]


def streams_config(config: BrokerConfig) -> StreamsGroupConfig:
    """The machine's settings out of the broker's."""
    return StreamsGroupConfig(
        session_timeout_ms=config.get_int("group.streams.session.timeout.ms"),
        heartbeat_interval_ms=config.get_int("group.streams.heartbeat.interval.ms"),
        assignment_interval_ms=config.get_int("group.streams.assignment.interval.ms"),
        initial_rebalance_delay_ms=config.get_int("group.streams.initial.rebalance.delay.ms"),
        num_standby_replicas=config.get_int("group.streams.num.standby.replicas"),
        max_size=config.get_int("group.streams.max.size"),
    )


class StreamsGroupOperations:
    """See the module. results: of the coordinator of groups. group: a group's partition, with the latest topics.
    settings: in force for a group. topics: what is made of the internal topics that they want.
    """

    def __init__(
        self,
        ground: CoordinatorGround,
        topic_maker: TopicMaker,
        results: Results[GroupShard],
        group: Callable[[str], Led],
        settings: Callable[[str], StreamsSettings],
    ) -> None:
        self.topics = InternalTopics(topic_maker, ground.now)
        self._ground = ground
        self._results = results
        self._group = group
        self._settings = settings

    def heartbeat_interval_s(self, group_id: str) -> float:
        """How often members of the group should send a heartbeat, as far as settings say."""
        return self._settings(group_id).usual.heartbeat_interval_ms / 1000

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client_id: str | None, client_host: str, token: Any
    ) -> None:
        """Answers `HeartbeatAnswer`. `client_host`: the bare address. What is wrong with the request (KafkaError
        INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY) every broker says, as in Apache Kafka.
        """
        try:
            led = self._group(request.group_id)
        except KafkaError:
            check_streams_heartbeat(request)
            raise
        now = self._ground.time()
        self._results.apply(led, _streams(led).heartbeat(request, client_id, f"/{client_host}", token, now))

    def describe(self, group_id: str) -> StreamsGroupDescribeResponse.DescribedGroup:
        """GROUP_ID_NOT_FOUND inside for another or unknown one."""
        return _streams(self._group(group_id)).describe(group_id)


def _streams(led: Led) -> StreamsGroups:
    streams = led.shard.wanted_streams()
    if streams is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return streams

"""The internal topics that applications of streams groups want are made: repartition topics and changelogs.

Whether a client may have them made is the caller's to ask. Each is asked for once at a time; what went wrong is kept
for some time, so that it can be told with the next heartbeats, and until then it is not asked for again. As in Apache
Kafka 4.3 (`AutoTopicCreationManager`), with its limit for all topics of a request together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest
from typing import Final, Protocol

from barnabas.coordinator.group.streams import InternalTopic
from barnabas.kproto import ErrorCode
from barnabas.replication import MAX_NEW_PARTITIONS, TopicRequest

_ERRORS_MAX: Final = 1_000
"""More are not kept, as applications may have many topics, and any names: those go that would go first."""

Codes = Mapping[str, ErrorCode]
Charge = Callable[[int], None]
"""Counts the partitions of a topic before it is made. Raises KafkaError to have it not made."""


class TopicMaker(Protocol):
    """A part of `barnabas.server.cluster.topic_requests.TopicRequests`."""

    def ensure_topics_soon(
        self, requests: Collection[TopicRequest], told: Callable[[Codes], None], charge: Charge
    ) -> bool: ...


class InternalTopics:
    """See the module. now: of the monotonic clock, in seconds."""

    def __init__(self, maker: TopicMaker, now: Callable[[], float]) -> None:
        self._maker = maker
        self._now = now
        self._under_way: set[str] = set()
        self._errors: dict[str, tuple[float, ErrorCode]] = {}

    def want(self, topics: Iterable[InternalTopic], keep_s: float, charge: Charge) -> None:
        """Have these made, but for those that are being made, or could not be lately. keep_s: how long what went wrong
        is told, and no more asked for.
        """
        now = self._now()
        wanted: dict[str, TopicRequest] = {}
        beyond: dict[str, ErrorCode] = {}
        room = MAX_NEW_PARTITIONS
        for topic in topics:
            if topic.name in self._under_way or self._error(topic.name, now):
                continue
            room -= max(topic.partitions, 0)
            if room < 0:
                if len(beyond) < _ERRORS_MAX:
                    beyond[topic.name] = ErrorCode.POLICY_VIOLATION
                continue
            factor = topic.replication_factor or -1
            wanted[topic.name] = TopicRequest(topic.name, topic.partitions, factor, (), topic.configs, automatic=True)
        if beyond:
            self._keep(beyond, now + keep_s, now)
        if not wanted:
            return

        def told(codes: Codes) -> None:
            self._under_way.difference_update(wanted)
            at = self._now()
            self._keep(codes, at + keep_s, at)

        if self._maker.ensure_topics_soon(list(wanted.values()), told, charge):
            self._under_way.update(wanted)

    def _keep(self, codes: Codes, until: float, now: float) -> None:
        self._errors = {name: error for name, error in self._errors.items() if error[0] > now}
        for name, code in codes.items():
            if code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._errors.pop(name, None)
            else:
                self._errors[name] = (until, code)
        if len(self._errors) > _ERRORS_MAX:
            last = nlargest(_ERRORS_MAX, self._errors.items(), key=lambda entry: entry[1][0])
            self._errors = dict(last)

    def errors(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """What went wrong lately with these."""
        now = self._now()
        found = {name: self._error(name, now) for name in names}
        return {name: code for name, code in found.items() if code}

    def _error(self, name: str, now: float) -> ErrorCode:
        until, code = self._errors.get(name, (now, ErrorCode.NONE))
        return code if until > now else ErrorCode.NONE

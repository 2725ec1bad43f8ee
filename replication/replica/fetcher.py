"""One conversation of a follower with one leader broker, about many partitions: what to ask next, what answers mean.

The machine decides and remembers; it reads logs through `ReplicaLog`, and the driver changes them:

    step = fetcher.next(now, broker_epoch)
    Ask      send the request, then `answered(ask, response, now)` → actions, or `unanswered(ask, now)`
    Do       actions: carry each out in turn, then `done(action, now)` or `not_done(action, code, now)`
    Wait     until that time, or until `add` or `remove` is called

Any error lets a partition rest for `backoff_s`; meanwhile the leader's session forgets it, so that it does not answer
the same error at once, again and again. After an election the leader may only not have heard of it yet
(NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID):
then the rests begin at `FIRST_REST_S` and double, so that a fail-over is not held up by a second for nothing (Apache
Kafka rests in full). What concerns the whole conversation (lost connection, refused request) lets all rest.

While nothing happens a round costs the same for one partition as for thousands: only changes are processed.

`add` with a new leader epoch makes a new `Followed`; answers and actions for an old one are dropped. Nothing waits for
a request in flight. Times are seconds of the monotonic clock. Source: `AbstractFetcherThread.scala`,
`RemoteLeaderEndPoint.scala`, and `fetch_session` for sessions.

Not done: tiered storage (109 is an error like others), moves between log directories, IBP below 0.11.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.replication.replica.fetch_session import FetcherSession, Key, Wanted, has_id
from barnabas.replication.replica.follower import (
    UNDEFINED,
    Append,
    Ask,
    Do,
    FetcherSettings,
    Followed,
    FollowerAction,
    ReplicaLog,
    Restart,
    State,
    Truncate,
    Wait,
    truncation,
)

log = logging.getLogger("barnabas.followers")

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
FIRST_VERSION_WITH_IDS = 13
EMPTY_ANSWERS_AT_ONCE = 10
FIRST_REST_S = 0.02

_NONE = int(ErrorCode.NONE)
_FENCED = int(ErrorCode.FENCED_LEADER_EPOCH)
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_NOT_YET = frozenset(
    (
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        int(ErrorCode.UNKNOWN_LEADER_EPOCH),
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.UNKNOWN_TOPIC_ID),
        int(ErrorCode.INCONSISTENT_TOPIC_ID),
    )
)
_BAD_RECORDS = frozenset((int(ErrorCode.CORRUPT_MESSAGE), int(ErrorCode.INVALID_RECORD)))
_OTHER_SESSION = frozenset((int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)))


class Fetcher:
    """See the module. `partitions`: what is fetched; `failed`: what waits for the controller; `without_id`: how many
    are of topics that have no id yet, which makes all be fetched by name.
    """

    def __init__(self, settings: FetcherSettings) -> None:
        self.settings = settings
        self.partitions: dict[Key, Followed] = {}
        self.failed: dict[Key, Followed] = {}
        self.session = FetcherSession()
        self._truncating: dict[Key, Followed] = {}
        self._out_of_range: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}
        self._unconfirmed: dict[Key, Followed] = {}
        self._held_back: set[Key] = set()
        self._resting: list[tuple[float, int, Followed]] = []
        self._serial = count()
        self.without_id = 0
        self._not_before = 0.0
        self._troubles = 0
        self._empty_at_once = 0
        self._asked_at = 0.0

    # -- which partitions --------------------------------------------------------------------------------------------

    def add(self, key: Key, topic_id: bytes, leader_epoch: int, log: ReplicaLog) -> Followed:
        """Fetch a partition, or continue with it: the same epoch changes nothing but the topic id."""
        known = self.partitions.get(key)
        if known is not None and known.leader_epoch == leader_epoch and known.log is log:
            if known.topic_id != topic_id:
                self.without_id += has_id(known.topic_id) - has_id(topic_id)
                known.topic_id = topic_id
                self._changed[key] = None
            return known
        self.remove(key)
        followed = self.partitions[key] = Followed(key, topic_id, leader_epoch, log)
        self._unconfirmed[key] = followed
        self.without_id += not has_id(topic_id)
        if not self.settings.truncates_on_fetch or followed.last_fetched_epoch == UNDEFINED:
            self._set(followed, State.TRUNCATING)
        self._changed[key] = None
        self._not_before = 0.0
        return followed

    def remove(self, key: Key) -> None:
        """Do not fetch it any more; what is in flight for it is dropped."""
        self.failed.pop(key, None)
        known = self.partitions.pop(key, None)
        if known is not None:
            self._set(known, State.FAILED)
            self.without_id -= not has_id(known.topic_id)
            self._held_back.discard(key)
            self._unconfirmed.pop(key, None)
            self._changed[key] = None

    def is_current(self, partition: Followed) -> bool:
        """It was not removed, or replaced by one of another epoch, meanwhile."""
        return self.partitions.get(partition.key) is partition

    def _set(self, followed: Followed, state: State) -> None:
        key = followed.key
        self._truncating.pop(key, None)
        self._out_of_range.pop(key, None)
        followed.state = state
        followed.leader_end_offset = None
        if state is State.TRUNCATING:
            self._truncating[key] = followed
        elif state is State.OUT_OF_RANGE:
            self._out_of_range[key] = followed
        self._changed[key] = None

    def _rest(self, followed: Followed, now: float, *, code: int = _NONE) -> None:
        if followed.due <= now:
            rest_s = self.settings.backoff_s
            if code in _NOT_YET:
                rest_s = min(rest_s, FIRST_REST_S * (1 << min(followed.refusals, 20)))
                followed.refusals += 1
            followed.due = now + rest_s
            heappush(self._resting, (followed.due, next(self._serial), followed))
            self._changed[followed.key] = None

    def _fail(self, followed: Followed) -> None:
        self.remove(followed.key)
        self.failed[followed.key] = followed

    # -- what next ---------------------------------------------------------------------------------------------------

    def next(self, now: float, broker_epoch: int, held_back: Callable[[Key], bool] | None = None) -> Ask | Do | Wait:
        """What to do now. broker_epoch: ours. held_back: says which partitions the throttle holds back if they are
        not in sync; None while it holds back none.
        """
        resting = self._resting
        while resting and resting[0][0] <= now:
            followed = heappop(resting)[2]
            if followed.due <= now:
                self._changed[followed.key] = None
        if self._not_before > now:
            return Wait(self._not_before)
        if self._truncating:
            step = self._truncate(now)
            if step is not None:
                return step
        if self._out_of_range:
            asked = self._ask_offsets(now)
            if asked is not None:
                return asked
        self._hold_back(held_back)
        fetch = self._ask_records(now, broker_epoch)
        if fetch is not None:
            return fetch
        until = resting[0][0] if resting else None
        if self._held_back:
            until = min(until or now + self.settings.backoff_s, now + self.settings.backoff_s)
        return Wait(until)

    def _truncate(self, now: float) -> Ask | Do | None:
        ready = [followed for followed in self._truncating.values() if followed.due <= now]
        truncations: list[FollowerAction] = []
        asked: list[Followed] = []
        for followed in ready:
            if followed.last_fetched_epoch == UNDEFINED:
                truncations.append(Truncate(followed, followed.log.high_watermark, True))
            else:
                asked.append(followed)
        if truncations:
            return Do(truncations)
        if not asked:
            return None
        partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
        topics = [
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    partition(
                        partition=each.index,
                        current_leader_epoch=each.leader_epoch,
                        leader_epoch=each.last_fetched_epoch,
                    )
                    for each in group
                ],
            )
            for topic, group in _by_topic(asked)
        ]
        request = OffsetForLeaderEpochRequest(replica_id=self.settings.broker_id, topics=topics)
        return Ask(request, self.settings.epoch_version, {each.key: each for each in asked})

    def _ask_offsets(self, now: float) -> Ask | None:
        asked = [followed for followed in self._out_of_range.values() if followed.due <= now]
        if not asked:
            return None
        partition = ListOffsetsRequest.ListOffsetsPartition
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    partition(
                        partition_index=each.index,
                        current_leader_epoch=each.leader_epoch,
                        timestamp=LATEST_TIMESTAMP if each.leader_end_offset is None else EARLIEST_TIMESTAMP,
                    )
                    for each in group
                ],
            )
            for topic, group in _by_topic(asked)
        ]
        request = ListOffsetsRequest(replica_id=self.settings.broker_id, topics=topics)
        return Ask(request, self.settings.list_offsets_version, {each.key: each for each in asked})

    def _hold_back(self, held_back: Callable[[Key], bool] | None) -> None:
        held = set()
        if held_back is not None:
            held = {key for key, each in self.partitions.items() if not each.in_sync and held_back(key)}
        if held or self._held_back:
            for key in held ^ self._held_back:
                self._changed[key] = None
            self._held_back = held

    def _wanted(self, followed: Followed, now: float) -> Wanted | None:
        if followed.state is not State.FETCHING or followed.due > now or followed.key in self._held_back:
            return None
        return Wanted(
            followed.key[0],
            followed.topic_id,
            followed.index,
            followed.leader_epoch,
            followed.fetch_offset,
            followed.last_fetched_epoch if self.settings.truncates_on_fetch else UNDEFINED,
            followed.log_start_offset,
        )

    def _everything(self, now: float) -> Iterator[Wanted]:
        for followed in self.partitions.values():
            wanted = self._wanted(followed, now)
            if wanted is not None:
                yield wanted

    def _changes(self, changed: Iterable[Key], now: float) -> Iterator[tuple[Key, Wanted | None]]:
        for key in changed:
            followed = self.partitions.get(key)
            yield key, None if followed is None else self._wanted(followed, now)

    def _ask_records(self, now: float, broker_epoch: int) -> Ask | None:
        settings = self.settings
        version = settings.fetch_version
        if self.without_id and version >= FIRST_VERSION_WITH_IDS:
            version = FIRST_VERSION_WITH_IDS - 1
        changed, self._changed = self._changed, {}
        by_id = version >= FIRST_VERSION_WITH_IDS
        session = self.session
        built = session.build(by_id, lambda: self._everything(now), self._changes(changed, now))
        if not session.held and not built.forget:
            if session.is_full:
                return None
            session.lost()
            return None
        who: dict[str, Any] = {"replica_id": settings.broker_id}
        if version >= 15:
            state = FetchRequest.ReplicaState(replica_id=settings.broker_id, replica_epoch=broker_epoch)
            who = {"replica_state": state}
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=built.session_id,
            session_epoch=built.session_epoch,
            topics=self._fetch_topics(built.send),
            forgotten_topics_data=_forgotten(built.forget),
            **who,
        )
        self._asked_at = now
        return Ask(request, version, {})

    def _fetch_topics(self, send: list[Wanted]) -> list[FetchRequest.FetchTopic]:
        topics: dict[tuple[str, bytes], FetchRequest.FetchTopic] = {}
        partition = FetchRequest.FetchPartition
        max_bytes = self.settings.partition_max_bytes
        for each in send:
            topic = topics.get((each.topic, each.topic_id))
            if topic is None:
                topic = FetchRequest.FetchTopic(topic=each.topic, topic_id=each.topic_id, partitions=[])
                topics[each.topic, each.topic_id] = topic
            topic.partitions.append(
                partition(
                    partition=each.index,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=each.fetch_offset,
                    last_fetched_epoch=each.last_fetched_epoch,
                    log_start_offset=each.log_start_offset,
                    partition_max_bytes=max_bytes,
                )
            )
        return list(topics.values())

    # -- what came of it ---------------------------------------------------------------------------------------------

    def unanswered(self, ask: Ask, now: float, *, rest: bool = True) -> None:
        """The request got no answer that can be read. Not `rest`: we ended it ourselves, there is nothing to wait
        for.
        """
        if isinstance(ask.request, FetchRequest):
            self.session.lost()
        if rest:
            self._trouble(now)

    def answered(self, ask: Ask, response: Any, now: float) -> list[FollowerAction]:
        """The actions that an answer makes necessary."""
        if isinstance(ask.request, FetchRequest):
            return self._fetched(response, now)
        self._troubles = 0
        if response.throttle_time_ms > 0:
            self._not_before = now + response.throttle_time_ms / 1000
        errors: dict[int, list[Key]] = {}
        if isinstance(ask.request, OffsetForLeaderEpochRequest):
            actions = self._epochs_answered(ask, response, now, errors)
        else:
            actions = self._offsets_answered(ask, response, now, errors)
        self._log(type(ask.request).__name__.removesuffix("Request"), errors)
        return actions

    def _fetched(self, response: FetchResponse, now: float) -> list[FollowerAction]:
        session = self.session
        if response.throttle_time_ms > 0:
            self._not_before = now + response.throttle_time_ms / 1000
        if response.error_code:
            log.info("the leader refuses a Fetch: %s", ErrorCode.of(response.error_code).name)
            session.refused(response.error_code)
            self._trouble(now, at_once=response.error_code in _OTHER_SESSION)
            return []
        found: dict[Key, FetchResponse.PartitionData] = {}
        known = True
        for topic in response.responses:
            name = session.topic_of(topic.topic, topic.topic_id)
            for data in topic.partitions:
                key = session.key_of(name, topic.topic_id, data.partition_index)
                if key is None or key in found:
                    known = False
                else:
                    found[key] = data
        if not session.answered(response.session_id, len(found), known):
            if found or response.throttle_time_ms <= 0:
                log.warning("the leader's answer does not match its fetch session: starting a new session")
            self._trouble(now)
            return []
        self._troubles = 0
        self._count_empty(bool(found), now)
        actions: list[FollowerAction] = []
        errors: dict[int, list[Key]] = {}
        leader_offsets = session.leader_offsets
        for key, data in found.items():
            code = data.error_code
            if code == _NONE:
                leader_offsets[key] = (data.high_watermark, data.log_start_offset)
            followed = self._asked_for(key)
            if followed is None:
                continue
            if code == _NONE:
                actions.append(self._taken(followed, data))
            else:
                self._partition_error(followed, code, now, errors)
        if self._unconfirmed:
            actions += self._unmentioned_offsets(found)
        if errors:
            self._log("Fetch", errors)
        return actions

    def _asked_for(self, key: Key) -> Followed | None:
        """The partition if it is as it was when the request was made."""
        followed = self.partitions.get(key)
        if followed is None or followed.state is not State.FETCHING:
            return None
        wanted = self.session.held.get(key)
        if (
            wanted is None
            or followed.fetch_offset != wanted.fetch_offset
            or followed.leader_epoch != wanted.leader_epoch
            or followed.topic_id != wanted.topic_id
        ):
            return None
        return followed

    def _unmentioned_offsets(self, found: Container[Key]) -> Iterator[FollowerAction]:
        """For partitions without news since they were added or truncated: what the leader said before holds."""
        leader_offsets = self.session.leader_offsets
        for key in list(self._unconfirmed):
            if key not in found and key in leader_offsets:
                followed = self._asked_for(key)
                if followed is not None:
                    yield Append(followed, None, *leader_offsets[key])

    def _count_empty(self, found: bool, now: float) -> None:
        """An answer without content is due when the leader has waited; should it ever come at once, we wait."""
        if found or (now - self._asked_at) * 2000 >= self.settings.max_wait_ms:
            self._empty_at_once = 0
            return
        self._empty_at_once += 1
        if self._empty_at_once > EMPTY_ANSWERS_AT_ONCE:
            self._not_before = max(self._not_before, now + self.settings.max_wait_ms / 1000)

    def _taken(self, followed: Followed, data: FetchResponse.PartitionData) -> FollowerAction:
        diverging = data.diverging_epoch
        if diverging.epoch >= 0 and self.settings.truncates_on_fetch:
            truncated = truncation(followed.log, diverging.epoch, diverging.end_offset)
            log.info(
                "%s-%d: the leader's epoch %d ends at %d: truncating to %d",
                *followed.key,
                diverging.epoch,
                diverging.end_offset,
                truncated.offset,
            )
            return Truncate(followed, truncated.offset, True)
        return Append(followed, data.records, data.high_watermark, data.log_start_offset)

    def _partition_error(self, followed: Followed, code: int, now: float, errors: dict[int, list[Key]]) -> None:
        errors.setdefault(code, []).append(followed.key)
        if code == _FENCED:
            self._fail(followed)
        elif code == _OUT_OF_RANGE and followed.state is State.FETCHING:
            self._set(followed, State.OUT_OF_RANGE)
        else:
            self._rest(followed, now, code=code)

    def _epochs_answered(
        self, ask: Ask, response: OffsetForLeaderEpochResponse, now: float, errors: dict[int, list[Key]]
    ) -> list[FollowerAction]:
        actions: list[FollowerAction] = []
        left = dict(ask.about)
        for topic in response.topics:
            for data in topic.partitions:
                followed = left.pop((topic.topic, data.partition), None)
                if followed is None or not self.is_current(followed) or followed.state is not State.TRUNCATING:
                    continue
                if data.error_code:
                    self._partition_error(followed, data.error_code, now, errors)
                    continue
                truncated = truncation(followed.log, data.leader_epoch, data.end_offset)
                log.info(
                    "%s-%d: the leader's epoch %d ends at %d: truncating to %d",
                    *followed.key,
                    data.leader_epoch,
                    data.end_offset,
                    truncated.offset,
                )
                actions.append(Truncate(followed, truncated.offset, truncated.complete))
        self._unmentioned(left.values(), now)
        return actions

    def _offsets_answered(
        self, ask: Ask, response: ListOffsetsResponse, now: float, errors: dict[int, list[Key]]
    ) -> list[FollowerAction]:
        actions: list[FollowerAction] = []
        left = dict(ask.about)
        for topic in response.topics:
            for data in topic.partitions:
                followed = left.pop((topic.name, data.partition_index), None)
                if followed is None or not self.is_current(followed) or followed.state is not State.OUT_OF_RANGE:
                    continue
                if data.error_code:
                    self._partition_error(followed, data.error_code, now, errors)
                elif data.offset < 0:
                    self._rest(followed, now)
                else:
                    actions += self._offset_known(followed, data.offset, now)
        self._unmentioned(left.values(), now)
        return actions

    def _offset_known(self, followed: Followed, offset: int, now: float) -> list[FollowerAction]:
        own_end = followed.log.log_end_offset
        if followed.leader_end_offset is None:
            if offset < own_end:
                # An unclean election: the leader never had, or truncated, what we have more.
                log.warning("%s-%d: the leader's log ends at %d: truncating from %d", *followed.key, offset, own_end)
                return [Truncate(followed, offset, True)]
            followed.leader_end_offset = offset
            return []
        followed.lag = max(0, followed.leader_end_offset - max(offset, own_end))
        if offset > own_end:
            log.warning("%s-%d: the leader's log starts at %d: dropping ours to %d", *followed.key, offset, own_end)
            return [Restart(followed, offset)]
        # Its log moved meanwhile, and has our end: continue there. Not at once, lest we go round in circles.
        self._set(followed, State.FETCHING)
        self._rest(followed, now)
        return []

    def _unmentioned(self, partitions: Iterable[Followed], now: float) -> None:
        for followed in partitions:
            if self.is_current(followed):
                self._rest(followed, now)

    def done(self, action: FollowerAction, now: float) -> None:
        """The action was carried out, and the log is as it asks."""
        followed = action.partition
        if not self.is_current(followed):
            return
        moved = followed.look()
        key = followed.key
        self._changed[key] = None
        if isinstance(action, Append):
            followed.lag = max(0, action.high_watermark - followed.fetch_offset)
            followed.refusals = 0
            self._unconfirmed.pop(key, None)
            if moved:
                # A partition that got something is asked for last, should the session begin again.
                self.partitions[key] = self.partitions.pop(key)
        elif isinstance(action, Restart):
            self._set(followed, State.FETCHING)
        elif followed.state is State.FETCHING:
            self._unconfirmed[key] = followed
            if not moved:  # the leader will say the same again
                self._rest(followed, now)
        elif action.complete or self.settings.truncates_on_fetch:
            self._set(followed, State.FETCHING)

    def not_done(self, action: FollowerAction, code: int, now: float, *, rest: bool = False) -> None:
        """The action could not be carried out. Records that are not right are fetched again after a rest (so with
        `rest`); after anything else the partition is not touched again until the controller says so.
        """
        followed = action.partition
        if not self.is_current(followed):
            return
        if rest or code in _BAD_RECORDS:
            followed.look()
            self._rest(followed, now)
        else:
            self._fail(followed)

    def _trouble(self, now: float, *, at_once: bool = False) -> None:
        """The whole conversation rests; the first time in a row it need not if a new session may help."""
        self._troubles += 1
        if not at_once or self._troubles > 1:
            self._not_before = max(self._not_before, now + self.settings.backoff_s)

    @staticmethod
    def _log(api: str, errors: dict[int, list[Key]]) -> None:
        for code, keys in errors.items():
            topic, index = keys[0]
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            log.info("the leader answers %s of %s-%d%s with %s", api, topic, index, more, ErrorCode.of(code).name)


def _by_topic(partitions: Iterable[Followed]) -> Iterable[tuple[str, list[Followed]]]:
    topics: dict[str, list[Followed]] = {}
    for followed in partitions:
        topics.setdefault(followed.key[0], []).append(followed)
    return topics.items()


def _forgotten(forget: Iterable[Wanted]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[tuple[str, bytes], list[int]] = {}
    for each in forget:
        topics.setdefault((each.topic, each.topic_id), []).append(each.index)
    return [
        FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=indexes)
        for (topic, topic_id), indexes in topics.items()
    ]

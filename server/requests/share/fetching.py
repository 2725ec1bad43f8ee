"""Share fetches: acknowledgements first, then records for the member out of its session's partitions, or waiting for
them.

A fetch that finds too little waits with the share partitions (`LedShare.waiting`) plus a timer, and looks again into
those that wake it. Nothing is acquired for an answer that is not sent: whoever waits gives up as soon as the connection
is closed, and with the connection the session gives back what the member has. A session may also end while one of its
requests waits: that acquires nothing any more, and makes no share partition.

A session may have very many partitions: they are looked into in turns with all other work, in an order that begins
elsewhere with each request, and until there are as many records as the member wants. What the first of them have got is
the member's from then on, whatever the session has forgotten meanwhile.

Not as in Apache Kafka: there an error while a share partition is loaded is answered at once, and clients ask again at
once; here COORDINATOR_NOT_AVAILABLE waits for what else there is, until the time is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.coordinator.share import Acquired, AcquireMode, ShareKey, ShareSession, Wanted
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ShareFetchRequest, ShareFetchResponse
from barnabas.server.coordinators.share.partitions import Got, LedShare
from barnabas.server.requests.api import PENDING
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.leader_hints import HINTED_IN_FETCH, LeaderHints
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.access import TopicRights
from barnabas.server.requests.share.acknowledging import Place
from barnabas.server.requests.share.late_steps import run_late
from barnabas.server.runtime.timers import Timer
from barnabas.server.runtime.turns import Steps

PartitionData = ShareFetchResponse.PartitionData
_NO_HURRY: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE})
_LOOK_UNITS: Final = 3
_GOT_UNITS: Final = 30
_MADE_UNITS: Final = 10
"""The cost of a partition that has nothing for the member, of one that has, and of a share partition that is made and
asks for what is stored of it (`barnabas.server.runtime.turns`).
"""


class ShareFetch:
    """One request, after its acknowledgements. asked: the codes of those. deadline: until when it may wait (trio's
    clock). is_fetching: whether it wants records at all.
    """

    __slots__ = (
        "_asked",
        "_ctx",
        "_deadline",
        "_failed",
        "_got",
        "_is_fetching",
        "_is_last",
        "_is_trying",
        "_is_urgent",
        "_led",
        "_max_bytes",
        "_min_bytes",
        "_req",
        "_rights",
        "_session",
        "_svc",
        "_timer",
        "_woken",
    )

    def __init__(
        self,
        svc: Services,
        ctx: RequestContext,
        req: ShareFetchRequest,
        session: ShareSession,
        asked: Mapping[Place, ErrorCode],
        rights: TopicRights,
        deadline: float,
        *,
        is_fetching: bool,
    ) -> None:
        self._svc = svc
        self._ctx = ctx
        self._req = req
        self._session = session
        self._asked = asked
        self._rights = rights
        self._deadline = deadline
        self._is_fetching = is_fetching
        limit = ctx.fetch_bytes_max
        self._max_bytes = min(req.max_bytes, svc.config.get_int("fetch.max.bytes"))
        if limit is not None:
            self._max_bytes = min(self._max_bytes, int(limit))
        self._min_bytes = min(req.min_bytes, self._max_bytes)
        self._led: dict[Place, LedShare] = {}
        self._failed: dict[Place, ErrorCode] = {}
        self._got: dict[Place, Got] = {}
        self._timer: Timer | None = None
        self._is_trying = True
        self._is_urgent = False
        self._is_last = False
        self._woken: dict[Place, None] = {}

    def start(self) -> None:
        run_late(self._svc, self._ctx, self._begin())

    def _begin(self) -> Steps[Any]:
        if not self._is_fetching:
            for topic in self._req.topics:
                yield 1 + len(topic.partitions)
                refusal = self._rights.refusal(topic.topic_id)
                if refusal:
                    self._failed.update(((topic.topic_id, each.partition_index), refusal) for each in topic.partitions)
            return (yield from self._answer())
        self._ctx.on_close(self._unlink)
        shares = self._svc.share_partitions
        for place in self._session.in_turn():
            yield 1
            if self._session.is_over:
                break
            refusal = self._rights.refusal(place[0])
            if refusal:
                self._fail(place, refusal)
                continue
            known = len(shares)
            try:
                led = self._led[place] = shares.of(ShareKey(self._session.group_id, *place))
            except KafkaError as error:
                self._fail(place, error.code)
            else:
                led.waiting[self] = None  # what comes while others are looked into is not missed
                if len(shares) > known:
                    yield _MADE_UNITS
        return (yield from self._go_on(list(self._led)))

    # -- waiting ----------------------------------------------------------------------------------

    def _go_on(self, places: Collection[Place]) -> Steps[Any]:
        """Look into these partitions, and those that have something new meanwhile. The answer, if there is something to
        be told or the time is over.
        """
        while True:
            is_last = self._is_last or self._svc.now() >= self._deadline
            if is_last or self._min_bytes > 1:
                places = list(self._led)
            if is_last:
                self._min_bytes = 0
            self._woken.clear()
            if (yield from self._try(places)) or is_last or not self._session:
                self._unlink()
                return (yield from self._answer())
            if not self._woken and not self._is_last:
                break
            places = list(self._woken)
        self._is_trying = False
        if self._timer is None:
            self._timer = self._svc.timers.at(self._deadline, self.answer_now)
        return PENDING

    def wake(self, led: LedShare) -> None:
        """Part of `Waiting`."""
        self._woken[led.key.topic_id, led.key.partition] = None
        if not self._is_trying:
            self._is_trying = True
            run_late(self._svc, self._ctx, self._go_on(list(self._woken)))

    def answer_now(self) -> None:
        """Part of `Waiting`: the time is over, or the broker stops."""
        self._is_last = True
        if not self._is_trying:
            self._is_trying = True
            run_late(self._svc, self._ctx, self._go_on(()))
            self._svc.partitions.write_staged()

    def _unlink(self) -> None:
        for led in self._led.values():
            led.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        self._unlink()
        return self._ctx.release_waiters()

    # -- acquiring --------------------------------------------------------------------------------

    def _try(self, places: Iterable[Place]) -> Steps[bool]:
        """Acquire what these have, if it is enough. Returns whether there is something to be told now."""
        acquirable: dict[Place, LedShare] = {}
        for place in places:
            yield 1
            led = self._led.get(place)
            if led is None:
                continue
            if led.error:
                self._fail(place, led.error)
            elif led.machine.can_acquire:
                acquirable[place] = led
        if acquirable and (self._min_bytes <= 1 or (yield from self._has_enough(acquirable))):
            yield from self._acquire(acquirable)
        return self._session.is_over or bool(self._got) or self._is_urgent

    def _fail(self, place: Place, code: ErrorCode) -> None:
        led = self._led.pop(place, None)
        if led is not None:
            led.waiting.pop(self, None)
        self._failed[place] = code
        self._is_urgent |= code not in _NO_HURRY

    def _has_enough(self, acquirable: Mapping[Place, LedShare]) -> Steps[bool]:
        size = 0
        for place, led in acquirable.items():
            yield _LOOK_UNITS
            try:
                size += led.readable_bytes(self._max_bytes)
            except KafkaError as error:
                self._fail(place, error.code)
            if size >= self._min_bytes:
                return True
        return False

    def _acquire(self, acquirable: Mapping[Place, LedShare]) -> Steps[None]:
        """Bytes are shared out evenly; what one does not need is the next one's. A session that ends meanwhile gets no
        more.
        """
        req = self._req
        mode = AcquireMode(req.share_acquire_mode)
        left_bytes, left_records, left_count = self._max_bytes, req.max_records, len(acquirable)
        for place, led in acquirable.items():
            part = left_bytes // left_count
            left_count -= 1
            if left_records <= 0 or (self._got and part <= 0) or self._session.is_over:
                break
            if place not in self._led:
                continue
            wanted = Wanted(self._session.member_id, mode, max(req.batch_size, 1), left_records)
            try:
                got = led.acquire(wanted, part)
            except KafkaError as error:
                self._fail(place, error.code)
                continue
            if got is not None:
                self._got[place] = got
                left_bytes -= got.records.length
                left_records -= sum(last - first + 1 for first, last, _ in got.acquired)
                led.partition.traffic.bytes_out += got.records.length
            yield _LOOK_UNITS if got is None else _GOT_UNITS

    # -- the answer -------------------------------------------------------------------------------

    def _answer(self) -> Steps[ShareFetchResponse]:
        session, hints = self._session, LeaderHints(self._svc, self._ctx.listener)
        topics: dict[bytes, list[Any]] = {}
        is_open = self._is_fetching and not session.is_over
        got = self._got if is_open or session.is_replaced else {}  # else it is given back
        places = (*session.places, *got) if is_open else (*self._failed, *got)
        for place in dict.fromkeys((*places, *self._asked)):
            code, records = self._failed.get(place, ErrorCode.NONE), got.get(place)
            told = session.must_tell(
                place, has_records=records is not None, has_error=bool(code), is_asked=place in self._asked
            )
            if told:
                topics.setdefault(place[0], []).append(self._data(place, code, records, hints))
            yield 1
        self._ctx.count_fetched(sum(each.records.length for each in got.values()))
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._svc.share_partitions.settings(session.group_id).record_lock_duration_ms,
            responses=[
                ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=hints.endpoints(ShareFetchResponse.NodeEndpoint),
        )

    def _data(self, place: Place, code: ErrorCode, got: Got | None, hints: LeaderHints) -> Any:
        asked = self._asked.get(place, ErrorCode.NONE)
        data = PartitionData(
            partition_index=place[1],
            error_code=code,
            acknowledge_error_code=asked,
            records=b"" if got is None else got.records,
            acquired_records=_acquired(() if got is None else got.acquired),
        )
        if code in HINTED_IN_FETCH or asked in HINTED_IN_FETCH:
            data.current_leader = ShareFetchResponse.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
            hints.fill(data.current_leader, None, *place)
        return data


def _acquired(ranges: Sequence[Acquired]) -> list[Any]:
    return [
        ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in ranges
    ]

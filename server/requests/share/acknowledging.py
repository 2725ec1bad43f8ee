"""What a request says about records that its member has, partition by partition: asked of the share partitions, and
told when all of it is stored or refused.

Errors of a partition, beside those of `barnabas.coordinator.share.acknowledging`: UNKNOWN_TOPIC_ID,
TOPIC_AUTHORIZATION_FAILED;
UNKNOWN_TOPIC_OR_PARTITION, also where nobody of the group fetches here; NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.coordinator.share import Acknowledgement, ShareKey
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.access import TopicRights
from barnabas.server.runtime.turns import Steps

TYPES_A_UNIT: Final = 4
"""Offsets that are named singly, of the cost of one item (`barnabas.server.runtime.turns`)."""

Place = tuple[bytes, int]
Said = Sequence[tuple[Place, Sequence[Acknowledgement]]]
"""What a request says, in its order."""


def acknowledgements(partition: Any) -> list[Acknowledgement]:
    """The batches of a partition in a request."""
    return [
        Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for batch in partition.acknowledgement_batches
    ]


class Acknowledging:
    """The acknowledgements of one request. `done(codes)` is called once, perhaps at once, with an ErrorCode for each
    entry of `said`.
    """

    __slots__ = ("_codes", "_ctx", "_done", "_pending")

    def __init__(self, ctx: RequestContext, count: int, done: Callable[[list[ErrorCode]], None]) -> None:
        self._ctx = ctx
        self._done = done
        self._codes: list[ErrorCode] = [ErrorCode.NONE] * count
        self._pending = count + 1

    def start(
        self, svc: Services, group_id: str, member_id: str, said: Said, rights: TopicRights, *, is_renew: bool
    ) -> Steps[None]:
        """Ask for all of it."""
        for number, (place, batches) in enumerate(said):
            yield 1 + sum(1 + len(each.types) // TYPES_A_UNIT for each in batches)
            refusal = rights.refusal(place[0])
            if refusal:
                self.answered(number, refusal)
                continue
            if not batches:
                self.answered(number, _existence(svc, place))
                continue
            led = svc.share_partitions.find(ShareKey(group_id, *place))
            if led is None:
                self.answered(number, _existence(svc, place) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                led.acknowledge(member_id, batches, is_renew, _Entry(self, number))
        self._one_less()

    def answered(self, number: int, code: ErrorCode) -> None:
        self._codes[number] = code
        self._one_less()

    def _one_less(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._done(self._codes)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


class _Entry:
    """The token of one partition."""

    __slots__ = ("_all", "_number")

    def __init__(self, all_of: Acknowledging, number: int) -> None:
        self._all = all_of
        self._number = number

    def reply(self, code: ErrorCode) -> None:
        self._all.answered(self._number, code)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._all.release_waiters()


def _existence(svc: Services, place: Place) -> ErrorCode:
    """Why there can be no share partition of it here; NONE if there can."""
    try:
        partition = svc.partitions.get_by_id(*place)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def by_place(said: Said, codes: Sequence[ErrorCode]) -> Mapping[Place, ErrorCode]:
    """The code of each partition; of one that is named twice the first error."""
    found: dict[Place, ErrorCode] = {}
    for (place, _), code in zip(said, codes, strict=True):
        found[place] = found.get(place) or code
    return found

"""The leader's side of one replicated partition: the followers' progress, the ISR, the high watermark.

A pure machine. It is notified of fetches (`fetched`), of the controller's decisions (`lead`, `accepted`, `refused`) and
of the time; it answers with the high watermark and with proposals for the ISR, which its caller sends to the
controller. Offsets are log offsets, times are seconds of a monotonic clock.

The high watermark is the smallest log end offset of

    the maximal ISR: the committed one, and a replica that was proposed to join and is not yet known to have,
    and of every live replica that is caught up, for it is about to join and must find nothing committed without it;

it never moves back, and not at all while the committed ISR is smaller than `min.insync.replicas` (KIP-966). A proposal
to *shrink* counts only when it is accepted, one to *grow* at once: whichever of the two the controller decides, no
record is committed that a member of the ISR lacks (KIP-497).

    states of the ISR:   committed ──expand, shrink──► proposed ──accepted──► committed
                             ▲                            │ refused: INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED
                             └────────────────────────────┘ refused otherwise: stays, until the next leader epoch

A replica is caught up when it has everything, or had everything at some moment within `replica.lag.time.max.ms`; that
moment is the time of its last fetch which reached the log end of that time (or of the fetch before, see `fetched`).

Not done: fencing by broker epochs, which Apache Kafka has in KRaft mode alone (KIP-903); they are kept for inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from barnabas.kproto import ErrorCode
from barnabas.replication.values.image import PartitionImage

UNKNOWN_OFFSET = -1
NEVER = float("-inf")
JOIN_S = 1.0
"""How long the high watermark waits for a follower that is not in sync but had everything, so that it can join: twice
the longest time between two of its fetches. A replica that fetches no more is stopping, and must not be waited for
until others have noticed. Apache Kafka waits for `replica.lag.time.max.ms`.
"""


class Refusal(Enum):
    """What becomes of a refused proposal. RETRY: send the same again. AWAIT: stay as it is; the controller knows more
    than we do and will notify us (a new leader epoch, or the end of the topic). REVERTED: it was certainly not applied,
    the committed ISR counts again. STALE: it was not pending any more.
    """

    RETRY = 1
    AWAIT = 2
    REVERTED = 3
    STALE = 4


_NOT_APPLIED = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
_CONTROLLER_KNOWS_MORE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A request for another ISR, good for these epochs only. Two proposals are never equal, so that an answer cannot be
    taken for that of another one. added: joining replicas; removed: lagging ones.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()


class Follower:
    """What the leader knows of a follower, all of it from its fetches (before the first: UNKNOWN_OFFSET, NEVER)."""

    broker_id: int
    """Never the leader's own."""
    broker_epoch: int
    """As its last fetch said it; −1: it did not."""
    log_end_offset: int
    """It has all records before this one. Falls when it had to truncate."""
    log_start_offset: int
    """It has no records before this one."""
    leader_end_offset: int
    """The leader's log end at the last fetch, or when the leader epoch began. Never falls."""
    fetched_at: float
    """When it last fetched in this leader epoch. Never later than now. In another epoch of the same leader it
    begins with that moment for members of the ISR.
    """
    caught_up_at: float
    """The latest time at which it is known to have had everything. Never later than now; for members of the ISR at the
    latest the beginning of this leader epoch.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_at",
        "fetched_at",
        "leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_at: float = NEVER) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.leader_end_offset = UNKNOWN_OFFSET
        self.fetched_at = NEVER
        self.caught_up_at = caught_up_at

    def __repr__(self) -> str:
        return (
            f"Follower({self.broker_id}, end {self.log_end_offset}, start {self.log_start_offset},"
            f" caught up at {self.caught_up_at})"
        )

    def is_caught_up(self, leader_end_offset: int, now: float, lag_s: float) -> bool:
        """It has everything, or had within `lag_s`."""
        return self.log_end_offset == leader_end_offset or now - self.caught_up_at <= lag_s


class LeaderState:
    """See the module. Made when this broker becomes leader of a partition, gone when it no longer is."""

    broker_id: int
    """Ours."""
    leader_epoch: int
    """In which this broker leads. Only rises."""
    partition_epoch: int
    """Version of the state node as last heard of. Only rises."""
    epoch_start_offset: int
    """Our log end when `leader_epoch` began: a member of the ISR has everything before it."""
    isr: tuple[int, ...]
    """The committed ISR: as the controller last said it."""
    pending: Proposal | None
    """The one proposal without an answer. It has the two epochs above: another leader or partition epoch ends it."""
    maximal_isr: frozenset[int]
    """`isr` and, while it is pending, the replicas `added` by the proposal. Those it removes are still members."""
    followers: dict[int, Follower]
    """All replicas but us; they stay the same objects as long as they are replicas."""

    __slots__ = (
        "broker_id",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "maximal_isr",
        "partition_epoch",
        "pending",
    )

    def __init__(self, broker_id: int, image: PartitionImage, log_end_offset: int, now: float) -> None:
        self.broker_id = broker_id
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.epoch_start_offset = log_end_offset
        self.isr = image.isr
        self.maximal_isr = frozenset(image.isr)
        self.pending = None
        self.followers = {
            replica: Follower(replica, now if replica in image.isr else NEVER)
            for replica in image.replicas
            if replica != broker_id
        }

    def lead(self, image: PartitionImage, log_end_offset: int, now: float) -> None:
        """Stay leader, with a newer leader epoch or a newer assignment. What is pending is void."""
        followers = self.followers
        self.followers = {
            replica: followers.get(replica) or Follower(replica)
            for replica in image.replicas
            if replica != self.broker_id
        }
        if image.leader_epoch > self.leader_epoch:
            self.leader_epoch = image.leader_epoch
            self.epoch_start_offset = log_end_offset
            for follower in self.followers.values():
                # Out of the ISR it holds up nothing before it fetched again, nor joins for what it did before.
                time = now if follower.broker_id in image.isr else NEVER
                follower.leader_end_offset = log_end_offset
                follower.fetched_at = follower.caught_up_at = time
        self.partition_epoch = image.partition_epoch
        self._commit(image.isr)

    def _commit(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.maximal_isr = frozenset(isr)
        self.pending = None

    # -- progress ----------------------------------------------------------------------------------------------------

    def fetched(
        self,
        follower: Follower,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now: float,
    ) -> bool:
        """A follower asked for records from `fetch_offset` on, so it has everything before. True if that is news.

        Under a steady stream of small appends no fetch ever reaches the log end of its own time; one that reaches the
        log end of the *previous* fetch shows that the follower was caught up then.
        """
        if fetch_offset >= leader_end_offset:
            if now > follower.caught_up_at:
                follower.caught_up_at = now
        elif fetch_offset >= follower.leader_end_offset and follower.fetched_at > follower.caught_up_at:
            follower.caught_up_at = follower.fetched_at
        if leader_end_offset > follower.leader_end_offset:
            follower.leader_end_offset = leader_end_offset
        follower.fetched_at = now
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        if fetch_offset == follower.log_end_offset:
            return False
        follower.log_end_offset = fetch_offset
        return True

    def high_watermark(
        self,
        current: int,
        log_end_offset: int,
        *,
        min_insync_replicas: int,
        lag_s: float,
        is_alive: Callable[[int], bool],
        now: float,
    ) -> int:
        """The high watermark after whatever happened; `current` if it does not move."""
        if len(self.isr) < min_insync_replicas and len(self.isr) <= len(self.followers):
            return current
        reached = log_end_offset
        maximal_isr = self.maximal_isr
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < reached and (
                broker_id in maximal_isr
                or (follower.is_caught_up(log_end_offset, now, min(lag_s, JOIN_S)) and is_alive(broker_id))
            ):
                reached = follower.log_end_offset
        return reached if reached > current else current

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Whether the ISR, with joining replicas, has enough members for acks=all; all replicas are always enough."""
        return len(self.maximal_isr) >= min(min_insync_replicas, len(self.followers) + 1)

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start offset of the live replicas: below it, records are gone everywhere."""
        lowest = log_start_offset
        for broker_id, follower in self.followers.items():
            if follower.log_start_offset < lowest and is_alive(broker_id):
                lowest = follower.log_start_offset
        return lowest

    # -- the in-sync set ---------------------------------------------------------------------------------------------

    def expand(self, follower: Follower, high_watermark: int, is_alive: Callable[[int], bool]) -> Proposal | None:
        """Propose that a follower join, if it may: it is alive, has everything that is committed, and everything that
        was there when this leader began (of which it may not know yet that it was committed).
        """
        broker_id = follower.broker_id
        if (
            self.pending is not None
            or broker_id in self.isr
            or follower.log_end_offset < high_watermark
            or follower.log_end_offset < self.epoch_start_offset
            or not is_alive(broker_id)
        ):
            return None
        self.maximal_isr = frozenset((*self.isr, broker_id))
        return self._propose((*self.isr, broker_id), added=(broker_id,))

    def shrink(self, log_end_offset: int, lag_s: float, now: float) -> Proposal | None:
        """Propose that those leave who lag for too long, if there are any."""
        if self.pending is not None:
            return None
        lagging = []
        for broker_id in self.isr:
            if broker_id != self.broker_id:
                follower = self.followers.get(broker_id)
                if follower is None or not follower.is_caught_up(log_end_offset, now, lag_s):
                    lagging.append(broker_id)
        if not lagging:
            return None
        return self._propose(tuple(each for each in self.isr if each not in lagging), removed=tuple(lagging))

    def _propose(self, isr: tuple[int, ...], added: tuple[int, ...] = (), removed: tuple[int, ...] = ()) -> Proposal:
        self.pending = Proposal(isr, self.leader_epoch, self.partition_epoch, added, removed)
        return self.pending

    def accepted(self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> bool:
        """The controller's answer: the state as it is now. False if it is out of date, and then ignored."""
        if self.pending is not proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._commit(isr)
        return True

    def refused(self, proposal: Proposal, code: ErrorCode) -> Refusal:
        """The controller's answer for this partition was an error."""
        if self.pending is not proposal:
            return Refusal.STALE
        if code in _NOT_APPLIED:
            self._commit(self.isr)
            return Refusal.REVERTED
        return Refusal.AWAIT if code in _CONTROLLER_KNOWS_MORE else Refusal.RETRY

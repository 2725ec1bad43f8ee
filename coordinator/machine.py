"""The shape of every coordinator machine: decide, return the records and answers, change hard state only in
`replay`.

An operation never blocks, reads no clock, opens nothing. It returns a `Result`; the runtime then

1. gives each of `replies` to its token: they do not depend on what is written;
2. appends `records` as one batch. If the log refuses (not leader, too few replicas, too large), nothing was written: it
   calls `failed(code, False, now)` and carries on with the `Result` that this returns;
3. replays each record at once, with its offset: the only way hard state changes, live and on load alike;
4. gives each of `held` to its token when everything appended so far is committed (the high watermark passed it), these
   records or, if there are none, earlier ones. If that does not happen in time, or leadership is lost first, it calls
   `failed(code, True, now)` and carries on with that instead: the records may still become committed, so no hard state
   is taken back, but the clients must not believe it;
5. calls `committed(now)` when the records are committed (or, if there are none, earlier ones), after `held` and also
   when `failed(code, True, now)` was called before, and carries on with what it returns. When leadership is lost first
   it is never called;
6. carries out each of `effects`, at once: requests to the world outside, each of a type that says what comes back.

*Hard* state is what the log must bring back. *Soft* state (waiting requests, due heartbeats, a rebalance that is
under way) may change inside an operation; after a fail-over clients ask again. Prior art: Apache Kafka's
coordinator-common (CoordinatorShard, CoordinatorResult). Unlike there, timers are not values in the result: the
runtime asks `deadline()` and calls `expire(now)`, which raises `StepFailed` when one of many groups or ids is in
trouble that the others must not share.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.kproto import ErrorCode


class Now(NamedTuple):
    """The time, as an argument. `seconds`: of a monotonic clock, for timers. `wall_ms`: since the epoch, for what is
    stored.
    """

    seconds: float
    wall_ms: int


class Record(NamedTuple):
    """One record to append. `value` None is a tombstone. `meaning`: what `replay` would decode from key and value, if
    the writer provides it; None: it must be decoded.
    """

    key: bytes
    value: bytes | None
    meaning: Any = None


class Reply(NamedTuple):
    """An answer for the client behind `token`, which is opaque here. Each token gets exactly one."""

    token: Any
    response: Any


class Callback:
    """A token that is a function: the response goes to `done`, once.

    lost: what happens when the response will not come. A function releases the client behind the token, and returns
    its name, for the log. A text is the name of a request without a client but `done`, which then gets None.
    """

    __slots__ = ("_done", "_lost")

    def __init__(self, done: Callable[[Any], None], lost: Callable[[], str] | str) -> None:
        self._done: Callable[[Any], None] | None = done
        self._lost = lost

    def reply(self, response: Any) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(response)

    def release_waiters(self) -> str:
        """The response will not come. Returns who waited for it."""
        if not isinstance(self._lost, str):
            return self._lost()
        self.reply(None)
        return self._lost


class Result(NamedTuple):
    """What an operation decided; see the module. `failed(code, appended, now)` takes the log's error and returns what
    to do instead of `held`; it is there whenever that matters. `committed` and `effects` are used by transactions.
    """

    records: Sequence[Record] = ()
    replies: Sequence[Reply] = ()
    held: Sequence[Reply] = ()
    failed: Callable[[ErrorCode, bool, Now], Result] | None = None
    committed: Callable[[Now], Result] | None = None
    effects: Sequence[Any] = ()


NOTHING = Result()


def answer(token: Any, response: Any) -> Result:
    """One reply, nothing to write."""
    return Result(replies=(Reply(token, response),))


FAILED_AGAIN_S = 60.0
"""When a step that failed is tried again."""


class StepFailed(Exception):
    """A step that was due raised (`__cause__`), and is armed again for later. `key`: of its deadline. `instead`: the
    replies that are due nevertheless, those to clients that waited for the step included.
    """

    def __init__(self, key: Hashable, instead: Result) -> None:
        super().__init__(key)
        self.key = key
        self.instead = instead


class Decision:
    """Collects what one operation decides, from however deep in the machine, and becomes its `Result`."""

    __slots__ = ("_held", "_if_failed", "_refusals", "_when_committed", "effects", "records", "replies")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.effects: list[Any] = []
        self._held: list[Reply] = []
        self._refusals: list[Callable[[ErrorCode], Any]] = []
        self._if_failed: list[Callable[[Decision, ErrorCode, bool, Now], None]] = []
        self._when_committed: list[Callable[[Decision, Now], None]] = []

    def reply(self, token: Any, response: Any) -> None:
        """Answer `token` now."""
        self.replies.append(Reply(token, response))

    def reply_when_committed(self, token: Any, response: Any, refusal: Callable[[ErrorCode], Any]) -> None:
        """Answer `token` once everything written so far is committed; with `refusal(the log's error)` if that fails."""
        self._held.append(Reply(token, response))
        self._refusals.append(refusal)

    def if_failed(self, undo: Callable[[Decision, ErrorCode, bool, Now], None]) -> None:
        """Take soft state back when the write fails: `undo(decision, code, appended, now)`, see the module."""
        self._if_failed.append(undo)

    def when_committed(self, act: Callable[[Decision, Now], None]) -> None:
        """Call `act(decision, now)` when the records, or if there are none all that was written so far, are
        committed.
        """
        self._when_committed.append(act)

    def result(self) -> Result:
        if self.records or self._held or self._when_committed:
            committed = self._committed if self._when_committed else None
            return Result(self.records, self.replies, self._held, self._failed, committed, self.effects)
        return Result(replies=self.replies, effects=self.effects) if self.replies or self.effects else NOTHING

    def _committed(self, now: Now) -> Result:
        then = Decision()
        for act in self._when_committed:
            act(then, now)
        return then.result()

    def _failed(self, code: ErrorCode, appended: bool, now: Now) -> Result:
        instead = Decision()
        for held, refusal in zip(self._held, self._refusals, strict=True):
            instead.reply(held.token, refusal(code))
        for undo in self._if_failed:
            undo(instead, code, appended, now)
        return instead.result()


Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Due times by key, of which most are moved before they come (each heartbeat moves its member's).

    Moving one to later, the usual case, costs a dict write: its heap entry stays where it is and is pushed back when
    it surfaces.
    """

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._serial = count()

    def __contains__(self, key: Key) -> bool:
        return key in self._due

    def __len__(self) -> int:
        return len(self._due)

    def get(self, key: Key) -> float | None:
        return self._due.get(key)

    def set(self, key: Key, due: float) -> None:
        """Arm `key`, or move it."""
        self._due[key] = due
        queued = self._queued.get(key)
        if queued is None or due < queued:
            self._queued[key] = due
            heappush(self._heap, (due, next(self._serial), key))
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due):
                self._sweep()

    def cancel(self, key: Key) -> None:
        self._due.pop(key, None)

    def next(self) -> float | None:
        """The earliest due time, None when nothing is armed."""
        heap = self._heap
        while heap:
            queued, _, key = heap[0]
            if self._queued.get(key) != queued:
                heappop(heap)
                continue
            due = self._due.get(key)
            if due is None:
                heappop(heap)
                del self._queued[key]
            elif due > queued:
                self._queued[key] = due
                heapreplace(heap, (due, next(self._serial), key))
            else:
                return due
        return None

    def pop(self, now: float) -> Key | None:
        """One key that is due at `now`, disarmed; None when there is none."""
        due = self.next()
        if due is None or due > now:
            return None
        key = heappop(self._heap)[2]
        del self._queued[key]
        del self._due[key]
        return key

    def _sweep(self) -> None:
        self._queued = dict(self._due)
        self._heap = [(due, next(self._serial), key) for key, due in self._due.items()]
        heapify(self._heap)

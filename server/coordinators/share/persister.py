"""Asks share coordinators, for the leaders of share partitions and for the coordinators of share groups.

A coordinator on this broker is asked by a direct call; every other broker gets one request at a time for a group, with
all that came up meanwhile, over a connection that is kept for the purpose, in the newest version that it serves.

While there is no coordinator, or it is loading or away, it is asked again, with pauses from `FIRST_PAUSE_S` to
`LAST_PAUSE_S`, and after `GIVE_UP_S` the last error is the answer. (Apache Kafka: pauses from 1 s, 5 attempts.) Whether
the coordinator has handled a request without an answer is unknown; all may be repeated. A broker that lost its power
neither answers nor closes the connection: when the image shows another leader of a partition that a request is about,
or another epoch, the request is cancelled, and asked again.

What begins and ends the life of a share partition, `Initialize` and `Delete`, is asked one after another: else a group
that is joined while it is removed would lose what it has just been given, or leave something behind. Brokers do not
wait for each other: what is not wanted any more, as another one coordinates the group, is not asked again.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import trio

from barnabas.coordinator import Callback
from barnabas.coordinator.share import ShareKey, coordinator_key
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import PartitionImage
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.share.state_wire import Asked, Delete, Initialize, Told, Wire, wire_of
from barnabas.server.coordinators.share_states import ShareStateCoordinator
from barnabas.server.network.peers import Connect, PeerConnection, PeerError
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.groups")

FIRST_PAUSE_S: Final = 0.02
LAST_PAUSE_S: Final = 1.0
GIVE_UP_S: Final = 15.0
_SILENT: Final = "The share coordinator did not answer."
_UNWANTED: Final = "Another broker coordinates the group now."
_STALE_CHECK_S = 1.0
"""How often a request in flight is compared with the image. Seconds."""
_COMPLAIN_EVERY = 100  # failures between two log lines about the same broker
_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


def _always() -> bool:
    return True


class _Ask:
    """Something that is asked until there is an answer. `until`: when it is given up (trio's clock)."""

    __slots__ = ("asked", "done", "is_wanted", "key", "pause_s", "until", "wire")

    def __init__(
        self, key: ShareKey, asked: Asked, done: Callable[[Any], None], until: float, is_wanted: Callable[[], bool]
    ) -> None:
        self.is_wanted = is_wanted
        self.key = key
        self.asked = asked
        self.done = done
        self.wire: Wire = wire_of(asked)
        self.until = until
        self.pause_s = FIRST_PAUSE_S

    @property
    def is_in_line(self) -> bool:
        """Whether it waits for what was asked before about the partition."""
        return isinstance(self.asked, Initialize | Delete)


class SharePersister:
    """See the module. `run` must be running for other brokers to be asked. states: the coordinator on this broker.
    connect: to other brokers.
    """

    def __init__(self, ground: CoordinatorGround, states: ShareStateCoordinator, connect: Connect) -> None:
        self._ground = ground
        self._states = states
        self._connect = connect
        self._broker_id = ground.partitions.broker_id
        self._nursery: trio.Nursery | None = None
        self._peers: dict[int, PeerConnection] = {}
        self._to_send: dict[int, list[_Ask]] = {}
        self._failures: Counter[int] = Counter()
        self._in_line: dict[ShareKey, deque[_Ask]] = {}
        self._answers: list[tuple[_Ask, Any]] = []
        self._is_due = False

    async def run(self) -> None:
        """Ask other brokers, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for broker_id in self._to_send:
                    nursery.start_soon(self._send_all, broker_id)
                await trio.sleep_forever()
        finally:
            self._nursery = None
            for peer in self._peers.values():
                await peer.close()

    # -- what is asked ----------------------------------------------------------------------------

    def ask(
        self,
        key: ShareKey,
        asked: Asked,
        done: Callable[[Any], None],
        is_wanted: Callable[[], bool] = _always,
    ) -> None:
        """Ask the share coordinator of `key`. `done` is called once with the answer, a value of
        `barnabas.coordinator.share` as the operation has it; never before this returns, and outside of any other
        operation: at the end of a write, as what `barnabas.server.partitions.registry` calls after one. When it is not
        wanted any more, it is given up instead of being asked for (again).
        """
        ask = _Ask(key, asked, done, self._ground.now() + GIVE_UP_S, is_wanted)
        if ask.is_in_line:
            if (line := self._in_line.get(key)) is not None:
                line.append(ask)
                return
            self._in_line[key] = deque()
        self._try(ask)
        self._wake()  # what a coordinator here has staged is written soon, whoever has called

    def ask_all(
        self,
        asked: Mapping[ShareKey, Asked],
        done: Callable[[dict[ShareKey, Any]], None],
        is_wanted: Callable[[], bool] = _always,
    ) -> None:
        """As `ask`, for several partitions; `done` gets all answers."""
        if not asked:
            raise ValueError("nothing is asked")
        all_of = _All(len(asked), done)
        for key, what in asked.items():
            self.ask(key, what, partial(all_of.answered, key), is_wanted)

    def _try(self, ask: _Ask) -> None:
        if not ask.is_wanted():
            self._give_up(ask, _UNWANTED)
            return
        place = self._place(ask.key)
        if place is None:
            self._states.want_topic()
            self._answered(ask, ask.wire.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no share coordinator."))
        elif place.leader == self._broker_id:
            self._try_here(ask)
        elif place.leader not in self._ground.current_image().brokers:
            self._answered(ask, ask.wire.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is away."))
        else:
            waiting = self._to_send.get(place.leader)
            if waiting is not None:
                waiting.append(ask)
                return
            self._to_send[place.leader] = [ask]
            if self._nursery is not None:
                self._nursery.start_soon(self._send_all, place.leader)

    def _place(self, key: ShareKey) -> PartitionImage | None:
        return self._states.place(coordinator_key(key))

    def _try_here(self, ask: _Ask) -> None:
        token = Callback(partial(self._answered, ask), f"this broker's own {ask.wire.key.name}")
        try:
            ask.wire.act(self._states, ask.key, ask.asked, token)
        except KafkaError as error:
            self._answered(ask, ask.wire.failed(error.code, error.message))
        except Exception as error:
            # Others wait for the answer as well: those that are in line.
            contain(log, f"asking this broker's share coordinator about {ask.key}", error, token)

    # -- what is answered -------------------------------------------------------------------------

    def _answered(self, ask: _Ask, told: Told | None) -> None:
        if told is None:  # a fault of ours, which is in the log
            told = ask.wire.failed(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        if told.code in _AGAIN and self._ground.now() + ask.pause_s < ask.until and ask.is_wanted():
            pause_s, ask.pause_s = ask.pause_s, min(2 * ask.pause_s, LAST_PAUSE_S)
            self._ground.timers.after(pause_s, partial(self._try_again, ask))
            return
        self._answers.append((ask, told))
        self._wake()

    def _give_up(self, ask: _Ask, why: str) -> None:
        self._answered(ask, ask.wire.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))

    def _try_again(self, ask: _Ask) -> None:
        self._try(ask)
        self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._states.runtime.results.after_write(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        answers, self._answers = self._answers, []
        for ask, told in answers:
            try:
                ask.done(told)
            except Exception as error:
                contain(log, f"what follows from {ask.wire.key.name} of {ask.key}", error, ask.done)
            if ask.is_in_line:
                self._ask_next(ask.key)

    def _ask_next(self, key: ShareKey) -> None:
        line = self._in_line[key]
        if line:
            self._try(line.popleft())
            self._wake()
        else:
            del self._in_line[key]

    # -- other brokers ----------------------------------------------------------------------------

    async def _send_all(self, broker_id: int) -> None:
        await trio.lowlevel.checkpoint()  # the rest of the round may have more
        while asks := self._to_send[broker_id]:
            portion, self._to_send[broker_id] = _portion(self._without_late(asks))
            if portion:
                await self._send(broker_id, portion)
        del self._to_send[broker_id]

    def _without_late(self, asks: Iterable[_Ask]) -> list[_Ask]:
        """Those that were not given up while the broker kept silent about others."""
        now, in_time = self._ground.now(), []
        for ask in asks:
            if now < ask.until and ask.is_wanted():
                in_time.append(ask)
            else:
                self._give_up(ask, _SILENT)
        return in_time

    async def _send(self, broker_id: int, asks: Mapping[ShareKey, _Ask]) -> None:
        """One request. Without an answer, or with one that lacks something, it is as if the coordinator was away."""
        first = next(iter(asks.values()))
        group_id, wire = first.key.group_id, first.wire
        told: Mapping[ShareKey, Told] = {}
        places = {key: self._place(key) for key in asks}
        request = wire.to_request(group_id, {key: ask.asked for key, ask in asks.items()})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_stale, broker_id, places, nursery.cancel_scope)
            told = await self._told(broker_id, wire, request)
            nursery.cancel_scope.cancel()
        for key, ask in asks.items():
            answer = told.get(key)
            if answer is None:
                answer = wire.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, _SILENT)
            self._answered(ask, answer)

    async def _cancel_stale(
        self, broker_id: int, places: Mapping[ShareKey, PartitionImage | None], scope: trio.CancelScope
    ) -> None:
        while True:
            await trio.sleep(_STALE_CHECK_S)
            if any(_has_moved(place, self._place(key)) for key, place in places.items()):
                log.info("broker %d is not asked any more: it coordinates other share partitions now", broker_id)
                scope.cancel()

    async def _told(self, broker_id: int, wire: Wire, request: Any) -> Mapping[ShareKey, Told]:
        """The answers; none if the broker did not answer."""
        try:
            told = wire.from_response(request.group_id, await self._exchange(broker_id, wire, request))
        except PeerError as error:
            if self._failures[broker_id] % _COMPLAIN_EVERY == 0:
                log.warning("cannot ask the share coordinator on broker %d, retrying: %s", broker_id, error)
            self._failures[broker_id] += 1
        except Exception as error:
            contain(log, f"asking the share coordinator on broker {broker_id}", error)
        else:
            if self._failures.pop(broker_id, 0):
                log.info("the share coordinator on broker %d answers again", broker_id)
            return told
        return {}

    async def _exchange(self, broker_id: int, wire: Wire, request: Any) -> Any:
        broker = self._ground.current_image().brokers.get(broker_id)
        config = self._ground.current_config()
        endpoint = None if broker is None else broker.endpoint(config.inter_broker_listener)
        if endpoint is None:
            raise PeerError("its address is not known")
        peer = self._peers.get(broker_id)
        if peer is None:
            timeout_s = min(config.get_int("request.timeout.ms") / 1000, GIVE_UP_S)
            peer = PeerConnection(self._connect, f"broker-{self._broker_id}-share-persister", timeout_s)
            self._peers[broker_id] = peer
        served = (await peer.versions(endpoint)).get(wire.key)
        if served is None:
            raise PeerError(f"it does not serve {wire.key.name}")
        return await peer.ask(endpoint, request, min(served[1], wire.newest))


class _All:
    """Collects the answers for several partitions."""

    __slots__ = ("_answers", "_count", "_done")

    def __init__(self, count: int, done: Callable[[dict[ShareKey, Any]], None]) -> None:
        self._count = count
        self._done = done
        self._answers: dict[ShareKey, Any] = {}

    def answered(self, key: ShareKey, told: Told) -> None:
        self._answers[key] = told
        if len(self._answers) == self._count:
            self._done(self._answers)


def _portion(asks: Iterable[_Ask]) -> tuple[dict[ShareKey, _Ask], list[_Ask]]:
    """What goes into one request, and the rest, in order: one kind, one group, each partition once."""
    portion: dict[ShareKey, _Ask] = {}
    rest: list[_Ask] = []
    first: _Ask | None = None
    for ask in asks:
        first = first or ask
        if ask.wire is first.wire and ask.key.group_id == first.key.group_id and ask.key not in portion:
            portion[ask.key] = ask
        else:
            rest.append(ask)
    return portion, rest


def _has_moved(then: PartitionImage | None, now: PartitionImage | None) -> bool:
    return then is not now and (
        then is None or now is None or (then.leader, then.leader_epoch) != (now.leader, now.leader_epoch)
    )

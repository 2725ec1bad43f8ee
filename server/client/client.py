"""`Client`: asks one broker, or all that are responsible, and tries again while that makes sense.

The whole of a call, with its retries, takes at most the client's `timeout_s` (or the call's own); a single exchange at
most half of it, so that a broker that hangs leaves time for another one. The first contact is not retried: an address
where nobody listens is said at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import trio

from barnabas.kproto import ApiKey, DecodeError, ErrorCode
from barnabas.kproto.messages import FindCoordinatorRequest, MetadataRequest
from barnabas.server.client.approach import Approach
from barnabas.server.client.connections import MAIN, Pool, approached, endpoint, tcp, words_of
from barnabas.server.client.errands import PORTION, Errands, Trip
from barnabas.server.client.failures import ClientError, Failed, Refused, Rejected, Unanswered, Unreachable
from barnabas.server.client.retrying import (
    Pauses,
    Verdict,
    of_brokers,
    of_controllers,
    of_coordinators,
    of_leaders,
    verdict,
)
from barnabas.server.client.view import ClusterView
from barnabas.server.network.blocking_client import NoAnswer, split_bootstrap
from barnabas.server.network.peers import Connect, NotSent, PeerError, PeerRefused

if TYPE_CHECKING:
    from barnabas.replication import Endpoint

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R", covariant=True)
TopicPartition = tuple[str, int]

GROUP: Final = 0
TRANSACTION: Final = 1
"""Kinds of coordinators, as FindCoordinator numbers them."""
COORDINATORS_MAX: Final = 100_000
"""How many are remembered: groups come and go."""


@dataclass(frozen=True, slots=True)
class Job(Generic[K, R]):
    """What to ask for some items. make(items, version): the request. read(answer, items): each item's result; an item
    that is left out has failed.
    """

    key: ApiKey
    make: Callable[[list[K], int], Any]
    read: Callable[[Any, list[K]], Iterable[tuple[K, R | Failed]]]


class _Route(NamedTuple, Generic[K]):
    """Who is responsible for items: as far as it is known, how it is found out, and which errors mean that it is not
    so.
    """

    whose: Callable[[K], int | Failed | None]
    look_up: Callable[[list[K]], Awaitable[None]]
    judge: Callable[[ErrorCode], Verdict]


class Client:
    """See the module; made by `open_client`, used within one trio loop by any number of tasks."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        approach: Approach,
        client_id: str,
        timeout_s: float,
        connect: Connect,
        rng: Random,
    ) -> None:
        self.timeout_s = timeout_s
        self.rng = rng
        self.pauses = Pauses(rng)
        self.view = ClusterView()
        self._protocol = approach.protocol
        self._bootstrap = [self._endpoint(*_address(text)) for text in bootstrap]
        self._contact = ", ".join(bootstrap)
        self._was_reached = False
        self._pool = Pool(approached(approach, connect), client_id, self.request_s)
        self._coordinators: dict[tuple[int, str], int | Failed] = {}

    @property
    def request_s(self) -> float:
        """How long one exchange may take."""
        return self.timeout_s / 2

    @property
    def broker_ms(self) -> int:
        """How long a broker may take for a request that says so: its answer must come before we stop waiting for it."""
        return max(1, int(self.request_s * 800))

    @property
    def bootstrap(self) -> str:
        """The addresses that were given, for messages."""
        return self._contact

    # -- one request -------------------------------------------------------------------------------------------------

    async def ask_any(self, key: ApiKey, make: Callable[[int], Any], *, timeout_s: float | None = None) -> Any:
        """The answer of some broker to a request that may be repeated. Raises ClientError."""

        def ask(place: Endpoint, left_s: float) -> Awaitable[Any]:
            return self._once(place, key, make, MAIN, left_s)

        return await self._try_candidates(ask, timeout_s)

    async def _try_candidates(self, ask: Callable[[Endpoint, float], Awaitable[V]], timeout_s: float | None) -> V:
        until = trio.current_time() + (timeout_s or self.timeout_s)
        tries = 0
        while True:
            why: PeerError | None = None
            for place in self._candidates():
                try:
                    answer = await ask(place, until - trio.current_time())
                    self._was_reached = True
                    return answer
                except PeerError as error:
                    why = error
                if trio.current_time() >= until:
                    break
            tries += 1
            pause_s = self.pauses.after(tries)
            if not self._was_reached or trio.current_time() + pause_s >= until:
                raise self._unreachable(why)
            await trio.sleep(pause_s)

    async def ask_patiently(
        self, key: ApiKey, make: Callable[[int], Any], code_of: Callable[[Any], int], *, what: str | None = None
    ) -> Any:
        """As `ask_any`, again while the answer's code says that it may yet succeed. Raises Refused for other codes,
        with `what` at its beginning.
        """
        until = trio.current_time() + self.timeout_s
        tries = 0
        while True:
            answer = await self.ask_any(key, make)
            number = code_of(answer)
            if not number:
                return answer
            failed = Failed.of(number, getattr(answer, "error_message", None))
            tries += 1
            pause_s = self.pauses.after(tries)
            if verdict(failed.code) is Verdict.FINAL or trio.current_time() + pause_s >= until:
                raise Refused(failed.code, f"{what}: {failed}" if what else str(failed))
            await trio.sleep(pause_s)

    async def highest(self, key: ApiKey) -> int:
        """The version of `key` that brokers will be asked in, by one of them. Raises ClientError."""
        if not self.view.brokers:
            await self.refresh([])
        return await self._try_candidates(lambda place, left_s: self._pool.version(place, key), None)

    async def ask_broker(
        self,
        broker_id: int,
        key: ApiKey,
        make: Callable[[int], Any],
        *,
        lane: str = MAIN,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer of this broker, asked once. Raises PeerError, Unsupported; Unreachable for one that is unknown."""
        address = self.view.brokers.get(broker_id)
        if address is None:
            raise Unreachable(f"there is no broker {broker_id}; there are {_listed(self.view.brokers)}")
        return await self._once(self._endpoint(address.host, address.port), key, make, lane, timeout_s)

    async def _once(
        self, place: Endpoint, key: ApiKey, make: Callable[[int], Any], lane: str, timeout_s: float | None
    ) -> Any:
        limit_s = self.request_s if timeout_s is None else min(timeout_s, self.request_s)
        return await self._pool.ask(place, key, make, lane=lane, timeout_s=max(limit_s, 0.001))

    # -- many items --------------------------------------------------------------------------------------------------

    async def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        job: Job[TopicPartition, V],
        *,
        lane: str = MAIN,
        repeatable: bool = True,
        timeout_s: float | None = None,
        portion: int = PORTION,
    ) -> dict[TopicPartition, V | Failed]:
        """Each partition's result, from its leader. Raises ClientError."""
        route = _Route(self.leader_of, self._look_up_leaders, of_leaders)
        return await self._carry(partitions, job, route, timeout_s, lane=lane, repeatable=repeatable, portion=portion)

    async def by_coordinator(
        self,
        kind: int,
        names: Iterable[str],
        job: Job[str, V],
        *,
        repeatable: bool = True,
        timeout_s: float | None = None,
        portion: int = 100,
    ) -> dict[str, V | Failed]:
        """Each group's or transactional id's result, from its coordinator. kind: GROUP or TRANSACTION."""

        def whose(name: str) -> int | Failed | None:
            known = self._coordinators.get((kind, name))
            return None if isinstance(known, int) and known not in self.view.brokers else known

        async def look_up(lost: list[str]) -> None:
            await self._find_coordinators(kind, lost)

        route = _Route(whose, look_up, of_coordinators)
        return await self._carry(names, job, route, timeout_s, repeatable=repeatable, portion=portion)

    async def by_controller(
        self, names: Iterable[K], job: Job[K, V], *, repeatable: bool = True, timeout_s: float | None = None
    ) -> dict[K, V | Failed]:
        """Each item's result, from the controller."""

        def whose(name: K) -> int | None:
            return self.view.controller_id if self.view.controller_id in self.view.brokers else None

        async def look_up(lost: list[K]) -> None:
            await self.refresh([])

        route = _Route(whose, look_up, of_controllers)
        return await self._carry(names, job, route, timeout_s, repeatable=repeatable)

    async def by_broker(
        self, broker_ids: Iterable[int], job: Job[int, V], *, repeatable: bool = True, timeout_s: float | None = None
    ) -> dict[int, V | Failed]:
        """Each broker's result, from itself."""

        def whose(broker_id: int) -> int | Failed | None:
            if broker_id in self.view.brokers:
                return broker_id
            many = _listed(self.view.brokers)
            return Failed(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}; there are {many}")

        async def look_up(lost: list[int]) -> None:
            await self.refresh([])

        return await self._carry(broker_ids, job, _Route(whose, look_up, of_brokers), timeout_s, repeatable=repeatable)

    async def _carry(
        self,
        items: Iterable[K],
        job: Job[K, V],
        route: _Route[K],
        timeout_s: float | None,
        *,
        repeatable: bool,
        lane: str = MAIN,
        portion: int = PORTION,
    ) -> dict[K, V | Failed]:
        errands: Errands[K, V] = Errands(
            items,
            now=trio.current_time(),
            limit_s=timeout_s or self.timeout_s,
            pauses=self.pauses,
            judge=route.judge,
            portion=portion,
            repeatable=repeatable,
        )
        raised: list[ClientError] = []
        while not errands.is_done:
            if lost := errands.lookups(trio.current_time()):
                await route.look_up(lost)
                errands.looked_up(lost)
            now = trio.current_time()
            trips = errands.plan(route.whose, now)
            async with trio.open_nursery() as nursery:
                for trip in trips:
                    nursery.start_soon(self._travel, errands, trip, job, lane, raised)
            if raised:
                raise raised[0]
            if not trips and not errands.is_done and not errands.lookups(now):
                await trio.sleep_until(errands.due(now))
        return errands.results

    async def _travel(
        self, errands: Errands[K, V], trip: Trip[K], job: Job[K, V], lane: str, raised: list[ClientError]
    ) -> None:
        left_s = errands.until - trio.current_time()
        try:
            answer = await self.ask_broker(
                trip.broker_id, job.key, lambda version: job.make(trip.items, version), lane=lane, timeout_s=left_s
            )
        except PeerError as error:
            why = self._about_broker(trip.broker_id, error)
            errands.lost(trip, why, trio.current_time(), sent=not isinstance(error, NotSent))
            return
        except ClientError as error:
            raised.append(error)
            return
        now = trio.current_time()
        for item, result in job.read(answer, trip.items):
            errands.answered(item, result, now)
        errands.unanswered(trip, now)

    # -- who is responsible ------------------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Ask for brokers and these topics (None: all), and return what is known now. Raises ClientError."""
        asked = None if topics is None else sorted(set(topics))

        def make(version: int) -> MetadataRequest:
            rows = None if asked is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in asked]
            return MetadataRequest(topics=rows, allow_auto_topic_creation=False)

        answer = await self.ask_any(ApiKey.METADATA, make)
        self.view = self.view.after(answer, asked)
        places = [self._endpoint(address.host, address.port) for address in self.view.brokers.values()]
        await self._pool.keep_only([*places, *self._bootstrap])
        return self.view

    def leader_of(self, partition: TopicPartition) -> int | Failed | None:
        """As `ClusterView.leader`."""
        return self.view.leader(*partition)

    def coordinator_of(self, kind: int, name: str) -> int:
        """Who was last asked about this group or transactional id; -1: nobody."""
        known = self._coordinators.get((kind, name))
        return known if isinstance(known, int) else -1

    async def _look_up_leaders(self, lost: list[TopicPartition]) -> None:
        await self.refresh({topic for topic, _ in lost})

    async def _find_coordinators(self, kind: int, names: list[str]) -> None:
        """Put down who coordinates these; what is not known now is left out."""
        if not self.view.brokers:
            await self.refresh([])
        for at in range(0, len(names), PORTION):
            await self._find_portion(kind, names[at : at + PORTION])
        found = {self._coordinators.get((kind, name)) for name in names}
        if any(isinstance(broker_id, int) and broker_id not in self.view.brokers for broker_id in found):
            await self.refresh([])

    async def _find_portion(self, kind: int, names: list[str]) -> None:
        batched: list[int] = []

        def make_all(version: int) -> FindCoordinatorRequest:
            batched.append(version)
            if version >= 4:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
            return FindCoordinatorRequest(key_type=kind, key=names[0])

        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, make_all)
        if batched[-1] >= 4:
            for row in answer.coordinators:
                self._found(kind, row.key, row.error_code, row.error_message, row.node_id)
            return
        self._found(kind, names[0], answer.error_code, answer.error_message, answer.node_id)
        for name in names[1:]:
            one = FindCoordinatorRequest(key_type=kind, key=name)
            answer = await self.ask_any(ApiKey.FIND_COORDINATOR, partial(_same, one))
            self._found(kind, name, answer.error_code, answer.error_message, answer.node_id)

    def _found(self, kind: int, name: str, number: int, message: str | None, broker_id: int) -> None:
        if len(self._coordinators) >= COORDINATORS_MAX:
            self._coordinators.clear()
        failed = Failed.of(number, message)
        if not number:
            self._coordinators[kind, name] = broker_id
        elif verdict(failed.code) is Verdict.FINAL:
            self._coordinators[kind, name] = failed
        else:
            self._coordinators.pop((kind, name), None)

    # -- addresses ---------------------------------------------------------------------------------------------------

    def _endpoint(self, host: str, port: int) -> Endpoint:
        return endpoint(host, port, self._protocol)

    def _candidates(self) -> list[Endpoint]:
        """Who may be asked what any broker knows: connected ones first, then known ones, then the given addresses."""
        known = [self._endpoint(address.host, address.port) for address in self.view.brokers.values()]
        self.rng.shuffle(known)
        every = dict.fromkeys([*known, *self._bootstrap])
        return sorted(every, key=lambda place: not self._pool.is_connected(place))

    def _unreachable(self, error: PeerError | None) -> ClientError:
        if error is None:
            return Unreachable(f"{self.bootstrap} did not answer within {self.timeout_s:g} s")
        said = words_of(error)
        if isinstance(error, PeerRefused):
            return Rejected(said)
        if _was_cut(error) and not self._was_reached and self._protocol == "PLAINTEXT":
            said += " (if this listener wants TLS or a log-in, say how with --command-config)"
        elif isinstance(error.__cause__, ConnectionRefusedError) and not self._was_reached:
            said += " (`barnabas serve` starts a broker, --bootstrap names another one)"
        elif isinstance(error.__cause__, DecodeError):
            return Rejected(f"{said} (is it a Kafka broker, and this its listener for clients without TLS?)")
        return Unreachable(said)

    def _about_broker(self, broker_id: int, error: PeerError) -> str:
        """Why a broker could not be asked. Where it is, is what brokers say (advertised.listeners)."""
        said = words_of(error)
        if isinstance(error, NotSent):
            return f"{said}, which is the address of broker {broker_id} by its advertised.listeners"
        return said

    async def aclose(self) -> None:
        await self._pool.close()


@asynccontextmanager
async def open_client(
    bootstrap: Sequence[str],
    *,
    approach: Approach | None = None,
    client_id: str = "barnabas",
    timeout_s: float = 10.0,
    connect: Connect = tcp,
    rng: Random | None = None,
) -> AsyncIterator[Client]:
    """A client of the cluster that answers at one of the addresses `bootstrap` (`host:port`). Connects with the first
    request. approach: TLS and log-in. connect: opens streams without either. Raises Unreachable for an address that
    cannot be one.
    """
    client = Client(
        bootstrap,
        approach=approach or Approach(),
        client_id=client_id,
        timeout_s=timeout_s,
        connect=connect,
        rng=rng or SystemRandom(),
    )
    try:
        yield client
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()


def _was_cut(error: PeerError) -> bool:
    """The other side closed the connection, one way or the other, instead of an answer."""
    cause = error.__cause__
    return isinstance(cause, EOFError) or isinstance(cause and cause.__cause__, ConnectionResetError)


def raise_failed(what: str, result: V | Failed, *, sent: bool = False) -> V:
    """The result, or Refused (Unanswered if the connection was lost and `sent`) with `what` before the reason."""
    if not isinstance(result, Failed):
        return result
    if result.code == ErrorCode.NETWORK_EXCEPTION:
        raise (Unanswered if sent else Unreachable)(f"{what}: {result.message}")
    raise Refused(result.code, f"{what}: {result}")


def _same(request: Any, version: int) -> Any:
    """A request that is the same in all versions."""
    return request


def _address(text: str) -> tuple[str, int]:
    try:
        return split_bootstrap(text)
    except NoAnswer as error:
        raise Unreachable(str(error)) from None


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"

"""One client's trouble stays with it: each place where control passes from one owner to another is made to fail.

The callback of a first client raises. Its connection is closed, or it is answered with an error; a second one, called
by the same code right after, is served; and the log says it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.coordinator import Reply
from barnabas.kproto import ApiKey, EncodeError, ErrorCode, KafkaError
from barnabas.kproto.messages import HeartbeatResponse
from barnabas.server.network.connection import Connection
from barnabas.server.partitions.commit_queue import CommitQueue
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.access import unrestricted
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.dispatch import Dispatcher
from barnabas.server.requests.route import Route
from barnabas.server.runtime.containment import attempt, contain, serve
from barnabas.server.runtime.timers import Timers
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.data_world import DataWorld, data_world
from barnabas.server.tests.apis.records.test_produce import batch, only, request
from barnabas.server.tests.coordinators.test_groups import rig
from barnabas.server.tests.partitions.replicas import replica_world
from barnabas.server.tests.storage.test_flushing import SlowThread

TOO_LONG = "x" * 40_000
"""More than a string may have in an answer."""
SILENT = Api(ApiKey.HEARTBEAT, (0, 4), lambda svc, ctx, req: PENDING, access=unrestricted)


class Peer:
    """A client's connection, as its transport sees it, with one request under way."""

    def __init__(self, api: Api = SILENT, version: int = 3) -> None:
        self.connection = Connection(
            lambda connection, frame: self.context,
            self,
            listener="PLAINTEXT",
            client_host="10.0.0.1",
            max_frame_bytes=1000,
        )
        self.context = RequestContext(self.connection, Route(api, version), version, 7, "cli")
        self.connection.receive(memoryview(b"\0\0\0\1x"))

    def wake(self, connection: Connection) -> None:
        pass

    def abort(self, connection: Connection) -> None:
        connection.lost()

    @property
    def is_answered(self) -> bool:
        return bool(self.connection.out)

    def ask(self, *_: Any) -> None:
        """A callback that serves."""
        self.context.reply(HeartbeatResponse())


class Failing(Peer):
    """A client whose callback raises. What the broker holds for it is this object, as `HasWaiters`."""

    def ask(self, *_: Any) -> None:
        raise ValueError("of the first client")

    progress = reply = ask

    def release_waiters(self) -> str:
        return self.context.release_waiters()


class Serving(Peer):
    progress = reply = Peer.ask


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataWorld]:
    with data_world(tmp_path) as made:
        yield made


def round_end(world: DataWorld, first: Failing, second: Serving) -> None:
    for peer in (first, second):
        world.partitions.after_write(peer.ask)
    world.partitions.write_staged()


def commit(world: DataWorld, first: Failing, second: Serving) -> None:
    queue = CommitQueue()
    for peer in (first, second):
        queue.add(5, peer.ask)
    queue.answer(5, ErrorCode.NONE)


def lost_leadership(world: DataWorld, first: Failing, second: Serving) -> None:
    (partition,) = world.topic("t")
    for peer in (first, second):
        partition.when_committed(5, peer.ask)
    partition.resign()


def flush(world: DataWorld, first: Failing, second: Serving) -> None:
    (partition,) = world.topic("t")
    for peer in (first, second):
        partition.when_flushed(5, peer.ask)
    partition.flushed()


def progress(world: DataWorld, first: Failing, second: Serving) -> None:
    (partition,) = world.topic("t")
    partition.add_waiter(first)
    partition.add_waiter(second)
    partition.wake_all()


def timer(world: DataWorld, first: Failing, second: Serving) -> None:
    timers = Timers()
    for peer in (first, second):
        timers.at(1.0, peer.ask)
    timers._fire(1.0)


def partials_and_closures(world: DataWorld, first: Failing, second: Serving) -> None:
    def fails(who: Failing) -> None:
        who.ask()

    timers = Timers()
    timers.at(1.0, partial(fails, first))
    timers.at(2.0, lambda: second.ask())
    timers._fire(2.0)


PLACES = [round_end, commit, lost_leadership, flush, progress, timer, partials_and_closures]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
async def test_the_second_is_served(
    place: Callable[[DataWorld, Failing, Serving], None], world: DataWorld, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Failing(), Serving()
    place(world, first, second)
    assert first.connection.closed
    assert second.is_answered
    assert not second.connection.closed
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "HEARTBEAT v3 of client 'cli' at 10.0.0.1" in record.getMessage()


async def test_tokens_of_a_result(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A generation's answers: the members behind the one whose answer fails get theirs, too."""
    async with rig(tmp_path) as world:
        first, second = Failing(), Serving()
        world.groups.runtime.results.deliver([Reply(first, "joined"), Reply(second, "joined")])
    assert first.connection.closed
    assert second.is_answered
    assert len(caplog.records) == 1


@pytest.mark.parametrize("place", ["a follower's fetch", "the look for laggards", "another in-sync set"])
def test_failing_callbacks_that_wait_for_followers(
    place: str, tmp_path: Path, trouble: list[logging.LogRecord]
) -> None:
    """An exception of a producer's callback fails neither the follower's fetch nor the check for lagging replicas."""
    with replica_world(tmp_path) as world:
        world.lead(1)
        leader = world[1].replica
        end_offset = world[1].append(b"a", acks=-1)
        first, second = Failing(), Serving()
        for peer in (first, second):
            leader.when_committed(end_offset, peer.ask)
        world.replicate(2, 3)  # it has them now, and says so with its next fetch
        if place == "a follower's fetch":
            for follower in (2, 3):
                assert world.fetch(follower).only.error_code == ErrorCode.NONE
        else:
            world.fetch(2)
            world.seconds += 60
            world.fetch(2)
            if place == "the look for laggards":
                world.kill(3)
                leader.shrink_isr(world.seconds)
            leader.shrink_isr(world.seconds)
            world.grant()
        assert leader.high_watermark == end_offset
        assert first.connection.closed
        assert second.is_answered
        assert len(trouble) == 1


async def test_a_flush_that_fails_by_our_fault(
    trouble: list[logging.LogRecord], autojump_clock: trio.abc.Clock
) -> None:
    """The state of the disk is not known: waiting requests get an error; other partitions are served."""
    thread = SlowThread()
    async with (
        embedded_broker(None, thread, log_flush_interval_messages="1") as broker,
        connected(broker) as first,
        connected(broker) as second,
    ):
        await broker.services.topics.auto_create(["t", "u"])
        thread.error = ValueError("by the test")  # type: ignore[assignment]
        assert only(await first.ask(request(batch(b"a")), 9)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        thread.error = None
        assert only(await second.ask(request(batch(b"a"), topic="u"), 9)).error_code == ErrorCode.NONE
        assert len(trouble) == 1


def test_a_directory_that_fails(
    world: DataWorld, monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord]
) -> None:
    """All of its partitions are taken offline, and waiting requests get an error."""
    bad, good = world.topic("t", 2)
    for each in (bad, good):
        each.log.make_files()
    second = Serving()
    good.when_committed(5, second.ask)
    resign = Partition.resign

    def fails(self: Partition, *code: ErrorCode) -> None:
        if self is bad:
            raise ValueError("by the test")
        resign(self, *code)

    monkeypatch.setattr(Partition, "resign", fails)
    world.partitions.dir_failed(world.log_dir)
    assert second.is_answered
    for index in range(2):
        with pytest.raises(KafkaError) as raised:
            world.partitions.get("t", index)
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [record.exc_info is not None for record in trouble].count(True) == 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_write_that_fails_by_our_fault(
    acks: int,
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    tmp_path: Path,
    autojump_clock: trio.abc.Clock,
) -> None:
    """The state of the disk is not known: that log is offline, with its directory; the other directory is served."""
    dirs = f"{tmp_path}/a,{tmp_path}/b"
    async with (
        embedded_broker(None, log_dirs=dirs) as broker,
        connected(broker) as first,
        connected(broker) as second,
    ):
        await broker.services.topics.auto_create(["t", "u"])
        log_dirs = broker.services.partitions.log_dirs
        bad, good = ("t", "u") if log_dirs.home("t", 0) is log_dirs.dirs[1] else ("u", "t")

        def fails(*_: object) -> None:
            raise ValueError("by the test")

        monkeypatch.setattr(log_dirs.get(bad, 0).writer, "pwritev", fails)
        for _ in range(2):
            answer = only(await first.ask(request(batch(b"lost"), topic=bad, acks=acks), 9))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert only(await second.ask(request(batch(b"x"), topic=good, acks=acks), 9)).error_code == ErrorCode.NONE
        assert [record.exc_info is not None for record in trouble].count(True) == 1


# -- answers ---------------------------------------------------------------------------------------------------------


class Unencodable(HeartbeatResponse):
    pass


def fail_to_encode(route: Route) -> None:
    """`Unencodable` is one; other answers are encoded as usual."""
    encode = route.encode

    def fails(response: Any) -> Any:
        if isinstance(response, Unencodable):
            raise EncodeError("string of 40000 bytes")
        return encode(response)

    route.encode = fails


def test_an_answer_that_cannot_be_encoded(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    fail_to_encode(peer.context.route)
    peer.context.request = SimpleNamespace()
    peer.context.reply(Unencodable())
    assert peer.is_answered
    assert b"".join(map(bytes, peer.connection.out)).endswith(
        ErrorCode.UNKNOWN_SERVER_ERROR.to_bytes(2, "big", signed=True)
    )
    (record,) = caplog.records
    assert record.getMessage() == (
        "cannot encode the answer to HEARTBEAT v3 of client 'cli' at 10.0.0.1: answered with UNKNOWN_SERVER_ERROR"
    )
    peer.context.reply(HeartbeatResponse())  # a late answer is ignored, and not logged
    assert len(caplog.records) == 1


@pytest.mark.parametrize("knows_request", [True, False])
def test_nor_can_its_error(knows_request: bool, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(
        ApiKey.HEARTBEAT,
        (0, 4),
        SILENT.handle,
        access=unrestricted,
        on_error=lambda req, code, version: Unencodable(error_code=code),
    )
    peer = Peer(api)
    fail_to_encode(peer.context.route)
    if knows_request:
        peer.context.request = SimpleNamespace()
    peer.context.reply(Unencodable())
    assert peer.connection.closed
    assert not peer.connection.has_pending
    assert len(caplog.records) == 1


def dispatched(handle: Callable[..., Any], **api: Any) -> Peer:
    """A Heartbeat that `handle` serves."""
    peer = Peer()
    services: Any = SimpleNamespace(authorizer=None, quotas=SimpleNamespace(limits_requests=False))
    nursery: Any = None
    dispatch = Dispatcher([Api(ApiKey.HEARTBEAT, (0, 4), handle, access=unrestricted, **api)], services, nursery)
    peer.connection._dispatch = dispatch
    peer.connection._slots.clear()
    header = b"\0\x0c\0\3\0\0\0\x09\0\1c"
    frame = header + b"\0\1g" + b"\0\0\0\1" + b"\0\1m" + b"\xff\xff"
    peer.connection.receive(memoryview(len(frame).to_bytes(4, "big") + frame))
    return peer


def test_a_handler_that_raises_with_its_token_parked(caplog: pytest.LogCaptureFixture) -> None:
    parked: list[RequestContext] = []

    def handle(svc: Any, ctx: RequestContext, req: Any) -> Any:
        parked.append(ctx)
        raise ValueError("half done")

    peer = dispatched(handle)
    assert peer.is_answered
    parked[0].reply(HeartbeatResponse())  # the machine's timer comes to it later
    (record,) = caplog.records
    assert record.getMessage().endswith("failed: answered with UNKNOWN_SERVER_ERROR")


@pytest.mark.parametrize("waits", [False, True])
def test_an_example_that_cannot_be_taken(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The request is served all the same, at once or later."""
    parked: list[RequestContext] = []

    def handle(svc: Any, ctx: RequestContext, req: Any) -> Any:
        parked.append(ctx)
        return PENDING if waits else HeartbeatResponse()

    def learn(*_: Any) -> None:
        raise ValueError("not like this")

    peer = dispatched(handle, learn=learn)
    if waits:
        assert not peer.is_answered
        parked[0].reply(HeartbeatResponse())
    assert bytes(peer.connection.out[-1])[-2:] == b"\0\0"
    assert not peer.connection.closed
    assert len(caplog.records) == 1


# -- the mechanism ---------------------------------------------------------------------------------------------------


def test_a_client_that_cannot_be_released(caplog: pytest.LogCaptureFixture) -> None:
    """Releasing it fails as well: still one line, and nothing is raised."""

    class Stubborn:
        def release_waiters(self) -> str:
            raise ValueError("no")

    first = Failing()
    contain(logging.getLogger("barnabas.test"), "it", KeyError("x"), Stubborn(), first.ask)
    assert first.connection.closed
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "it failed: Stubborn, which could not be released: ValueError('no'), HEARTBEAT"
    )


async def test_what_serves_for_ever_is_run_again(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log, runs = logging.getLogger("barnabas.test"), []

    async def act() -> None:
        runs.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(runs) < 3:
            raise OSError("once more")

    await serve(log, "the task", act, rest_s=5.0)
    assert [at - runs[0] for at in runs] == pytest.approx([0, 5, 10], abs=0.1)
    assert [record.getMessage() for record in caplog.records] == ["the task failed"] * 2
    with pytest.raises(ZeroDivisionError):
        await serve(log, "the task", partial(_divide, 0), fatal=ZeroDivisionError)


async def test_what_does_one_thing(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("barnabas.test")
    assert await attempt(log, "it", partial(_divide, 1))
    assert not await attempt(log, "it", partial(_divide, 0))
    assert len(caplog.records) == 1


async def _divide(by: int) -> None:
    await trio.lowlevel.checkpoint()
    1 // by

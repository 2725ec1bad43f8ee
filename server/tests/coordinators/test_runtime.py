"""The coordinator runtime and its parts, with a coordinator and machines that do as the test says."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinator import NOTHING, Now, Record, Reply, Result
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records import iter_headers, iter_records
from barnabas.logdir import OwnProducer
from barnabas.replication import PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard, ShardState
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.internal_topic import InternalTopic
from barnabas.server.coordinators.loader import Loader
from barnabas.server.coordinators.loading import Replayed
from barnabas.server.coordinators.results import Results
from barnabas.server.coordinators.runtime import CoordinatorRuntime
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.timers import Timers
from barnabas.server.tests.apis.data_world import NOW, DataWorld, data_world
from barnabas.server.tests.coordinators.test_groups import Token

E = ErrorCode
TOPIC = "__things"
LOG = logging.getLogger("barnabas.things")


class Machine:
    """Remembers the values of its records. due: its deadline, with what is to be done then."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.is_loaded = False
        self.due: tuple[float, Result] | None = None

    def loaded(self, now: Now) -> Result:
        self.is_loaded = True
        return NOTHING

    def deadline(self) -> float | None:
        return None if self.due is None else self.due[0]

    def expire(self, now: Now) -> Result:
        assert self.due is not None
        (_, result), self.due = self.due, None
        return result

    def replay(
        self,
        key: bytes | memoryview,
        value: bytes | memoryview | None,
        record_offset: int,
        committed_to: int,
        producer_id: int,
    ) -> None:
        self.values.append(bytes(value or b""))

    def replay_end_of_transaction(
        self, producer_id: int, committed: bool, marker_offset: int, committed_to: int
    ) -> None:
        raise AssertionError("nobody writes markers here")


class Things:
    """A coordinator: the `Subject` of the runtime. effects: what it was to carry out. waiting: who waits in a machine
    that is unloaded.
    """

    topic = TOPIC
    log = LOG
    open_s: float | None = None

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.active: list[str] = []
        self.waiting: list[Reply] = []
        self.acks = -1

    def new_shard(self, partition: Partition) -> Machine:
        return Machine()

    def replayed(self, shard: Machine) -> Replayed:
        return shard

    def replay_decided(
        self, shard: Machine, records: Sequence[Record], base_offset: int, committed_to: int, producer_id: int
    ) -> None:
        for offset, record in enumerate(records, base_offset):
            shard.replay(record.key, record.value, offset, committed_to, producer_id)

    def activated(self, led: CoordinatedShard[Machine]) -> None:
        self.active.append(repr(led))

    def unloaded(self, led: CoordinatedShard[Machine], now: Now) -> Iterable[Reply]:
        return self.waiting

    def carry_out(self, led: CoordinatedShard[Machine], effect: Any) -> None:
        self.effects.append(effect)

    @property
    def required_acks(self) -> int:
        return self.acks

    @property
    def commit_timeout_s(self) -> float:
        return 5.0

    def size(self, shard: Machine) -> int:
        return len(shard.values)


class World:
    """What the parts stand on."""

    def __init__(self, data: DataWorld) -> None:
        self.data = data
        self.timers = Timers()
        self.things = Things()
        self.create_error: KafkaError | None = None
        self.created: list[str] = []
        self.ground = CoordinatorGround(
            data.partitions,
            self.timers,
            current_image=lambda: data.image,
            current_config=lambda: BrokerConfig.from_values({}),
            create_topic=self._create,
            now=trio.current_time,
            wall_ms=lambda: NOW,
        )

    async def _create(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.created.append(name)
        if self.create_error is not None:
            raise self.create_error
        self.data.topic(name, 2)

    def partition(self) -> Partition:
        (partition,) = self.data.topic(TOPIC)
        return partition

    def round(self) -> None:
        self.data.partitions.write_staged()

    def follow(self, partition: Partition) -> None:
        """The partition has followers that do not fetch: nothing is committed any more."""
        partition.lead(PartitionImage(0, 0, 0, 0, (0, 1, 2), (0, 1, 2)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with data_world(tmp_path) as data:
        yield World(data)


def change(value: bytes, token: Token | None = None, answer: str = "done") -> Result:
    """A record, and an answer when it is committed; else the error."""

    def failed(code: ErrorCode, appended: bool, now: Now) -> Result:
        return Result(replies=() if token is None else (Reply(token, (code, appended)),))

    return Result((Record(b"k", value),), held=() if token is None else (Reply(token, answer),), failed=failed)


def alone(world: World) -> tuple[Results[Machine], list[Any], CoordinatedShard[Machine]]:
    """`Results` without a runtime: what it wants started over, or resigned, is in a list."""
    wanted: list[Any] = []
    results = Results(
        world.ground, world.things, start_over=lambda led, code: wanted.append(code), resign=wanted.append
    )
    led = CoordinatedShard(world.partition(), Machine())
    led.activate()
    return results, wanted, led


# -- results -----------------------------------------------------------------------------------------------------------


async def test_results_answer_what_is_committed(world: World) -> None:
    results, wanted, led = alone(world)
    first, second = Token(), Token()
    results.apply(led, change(b"a", first)._replace(effects=("effect",)))
    results.apply(led, change(b"b", second))
    assert led.shard.values == [b"a", b"b"], "what was decided is replayed at once"
    assert first.waits
    world.round()
    assert (first.answer, second.answer) == ("done", "done")
    assert (world.things.effects, wanted, led.appended_to) == (["effect"], [], 2)


async def test_results_answer_what_the_log_refuses(world: World) -> None:
    results, _, led = alone(world)
    token = Token()
    results.apply(led, change(b"x" * 2_000_000, token))
    assert token.answer == (E.MESSAGE_TOO_LARGE, False)
    assert not led.shard.values


def batches(led: CoordinatedShard[Machine]) -> list[tuple[int, list[bytes]]]:
    """(base offset, values) of what is written, batch by batch."""
    partition = led.partition
    found = partition.read(0, 1 << 20, upper_offset=partition.log_end_offset, min_one_batch=True)
    assert found is not None
    data = found.read()
    return [
        (header.base_offset, [bytes(record.value or b"") for record in iter_records(data, position)])
        for position, header in iter_headers(data)
    ]


async def test_results_of_a_round_share_a_batch(world: World) -> None:
    results, _, led = alone(world)
    tokens = [Token() for _ in range(3)]
    for token, value in zip(tokens, (b"a", b"b", b"c"), strict=True):
        results.apply(led, change(value, token))
    assert led.shard.values == [b"a", b"b", b"c"]
    world.round()
    assert [token.answer for token in tokens] == ["done"] * 3
    results.apply(led, change(b"d"))
    world.round()
    assert batches(led) == [(0, [b"a", b"b", b"c"]), (3, [b"d"])]


async def test_results_that_are_refused_among_others(world: World) -> None:
    results, wanted, led = alone(world)
    first, refused, last = Token(), Token(), Token()
    results.apply(led, change(b"a", first))
    results.apply(led, change(b"x" * 2_000_000, refused))
    results.apply(led, change(b"b", last))
    assert (refused.answer, led.shard.values) == ((E.MESSAGE_TOO_LARGE, False), [b"a", b"b"])
    world.round()
    assert (first.answer, last.answer, wanted, led.appended_to) == ("done", "done", [], 2)
    assert [value for _, values in batches(led) for value in values] == [b"a", b"b"]


async def test_results_in_a_transaction_have_batches_of_their_own(world: World) -> None:
    results, _, led = alone(world)
    tokens = [Token() for _ in range(4)]
    producer = OwnProducer(7, 0)
    for token, value, of in zip(tokens, (b"a", b"t", b"u", b"b"), (None, producer, producer, None), strict=True):
        results.apply(led, change(value, token), of)
    world.round()
    assert [token.answer for token in tokens] == ["done"] * 4
    assert batches(led) == [(0, [b"a"]), (1, [b"t"]), (2, [b"u"]), (3, [b"b"])]


async def test_results_of_several_batches_are_committed_one_after_the_other(world: World) -> None:
    """What followers have fetched is answered, though the machine has decided more."""
    results, _, led = alone(world)
    world.follow(led.partition)
    tokens = [Token() for _ in range(3)]
    for token, value in zip(tokens, (b"a", b"x" * 70_000, b"c"), strict=True):
        results.apply(led, change(value, token))
    world.round()
    assert [base for base, _ in batches(led)] == [0, 1, 2]
    for end in (1, 2, 3):
        for replica in (1, 2):
            led.partition.follower_fetched(replica, -1, end, 0, trio.current_time())
        assert [token.waits for token in tokens] == [number >= end for number in range(3)]
        assert [token.answer for token in tokens[:end]] == ["done"] * end
    results.apply(led, change(b"d", again := Token()))
    world.round()
    for replica in (1, 2):
        led.partition.follower_fetched(replica, -1, 4, 0, trio.current_time())
    assert again.answer == "done"


async def test_results_that_wait_when_leadership_is_lost(world: World) -> None:
    """Some were answered that they take too long, and are late; the coordinator hears of the end once."""
    results, wanted, led = alone(world)
    world.follow(led.partition)
    token = Token()
    results.apply(led, change(b"a")._replace(committed=lambda now: pytest.fail("never")))
    results.apply(led, change(b"b", token))
    world.round()
    led.late.append(led.held.popleft())
    led.partition.follow(PartitionImage(0, 1, 1, 1, (0, 1), (0, 1)))
    assert wanted == [0]
    led.close()
    results.end(led, E.NOT_LEADER_OR_FOLLOWER)
    assert token.answer == (E.NOT_LEADER_OR_FOLLOWER, True)


async def test_results_do_not_wait_for_followers_with_fewer_acks(world: World) -> None:
    results, _, led = alone(world)
    world.follow(led.partition)
    world.things.acks = 1
    token = Token()
    results.apply(led, change(b"a", token))
    assert token.waits
    world.round()
    assert token.answer == "done"


async def test_results_answer_in_time_and_follow_up_when_committed(
    world: World, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    results, _, led = alone(world)
    nursery.start_soon(world.timers.run)
    world.follow(led.partition)
    token, late = Token(), Token()
    follows = Result(replies=(Reply(late, "at last"),))
    results.apply(led, change(b"a", token)._replace(committed=lambda now: follows))
    world.round()
    await trio.sleep(5.1)
    assert token.answer == (E.REQUEST_TIMED_OUT, True)
    assert late.waits
    for replica in (1, 2):
        led.partition.follower_fetched(replica, -1, 1, 0, trio.current_time())
    world.round()
    assert late.answer == "at last"


async def test_results_call_the_machine_at_its_deadline(
    world: World, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    results, _, led = alone(world)
    nursery.start_soon(world.timers.run)
    token = Token()
    led.shard.due = (trio.current_time() + 3, change(b"due", token))
    results.apply(led, NOTHING)
    await trio.sleep(2.9)
    assert not led.shard.values
    await trio.sleep(0.2)
    assert (led.shard.values, token.answer) == ([b"due"], "done")


async def test_results_of_a_closed_shard(world: World) -> None:
    """Who waits is answered; nothing follows from what was written before."""
    results, _, led = alone(world)
    world.follow(led.partition)
    token, other = Token(), Token()
    world.things.waiting = [Reply(other, "led elsewhere")]
    results.apply(led, change(b"a", token)._replace(committed=lambda now: pytest.fail("it is closed")))
    world.round()
    led.close()
    results.end(led, E.NOT_LEADER_OR_FOLLOWER)
    assert (token.answer, other.answer) == ((E.NOT_LEADER_OR_FOLLOWER, True), "led elsewhere")
    led.partition.high_watermark = 1
    results.committed(led, E.NONE)
    world.round()


@pytest.mark.parametrize(("is_leader", "expected"), [(True, [E.KAFKA_STORAGE_ERROR]), (False, [0])])
async def test_results_whose_commit_fails(world: World, is_leader: bool, expected: list[Any]) -> None:
    results, wanted, led = alone(world)
    if not is_leader:
        led.partition.follow(PartitionImage(0, 1, 1, 1, (0, 1), (0, 1)))
    results.committed(led, E.KAFKA_STORAGE_ERROR)
    assert wanted == expected


# -- loading -----------------------------------------------------------------------------------------------------------


async def test_a_loader_replays_the_log(world: World, nursery: trio.Nursery) -> None:
    active: list[Any] = []
    loader: Loader[Machine] = Loader(world.ground, world.things, active.append)
    nursery.start_soon(loader.run)
    partition = world.partition()
    world.data.append(partition, 1, 2, 3)
    led = CoordinatedShard(partition, Machine())
    loader.add(led)
    await trio.testing.wait_all_tasks_blocked()
    assert active == [led]
    assert led.shard.values == [b"v", b"v", b"v"]


async def test_a_loader_waits_until_all_is_committed(world: World, nursery: trio.Nursery) -> None:
    active: list[Any] = []
    loader: Loader[Machine] = Loader(world.ground, world.things, active.append)
    nursery.start_soon(loader.run)
    nursery.start_soon(world.timers.run)
    partition = world.partition()
    world.follow(partition)
    world.data.append(partition, 1)
    led = CoordinatedShard(partition, Machine())
    loader.add(led)
    await trio.testing.wait_all_tasks_blocked()
    assert (active, led.state) == ([], ShardState.LOADING)
    partition.lead(PartitionImage(0, 0, 0, 0, (0,), (0,)))
    world.round()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert active == [led]


async def test_a_loader_skips_a_closed_shard(world: World, nursery: trio.Nursery) -> None:
    loader: Loader[Machine] = Loader(world.ground, world.things, lambda led: pytest.fail("it is closed"))
    partition = world.partition()
    world.data.append(partition, 1)
    led = CoordinatedShard(partition, Machine())
    loader.add(led)
    led.close()
    nursery.start_soon(loader.run)
    await trio.testing.wait_all_tasks_blocked()
    assert led.state is ShardState.CLOSED


# -- roles -------------------------------------------------------------------------------------------------------------


async def test_a_shard_is_loading_active_closed(world: World, nursery: trio.Nursery) -> None:
    runtime = CoordinatorRuntime(world.ground, world.things)
    partition = world.partition()
    world.data.append(partition, 1)
    with pytest.raises(KafkaError) as raised:
        runtime.active("key")
    assert raised.value.code == E.NOT_COORDINATOR
    runtime.lead(partition)
    with pytest.raises(KafkaError) as raised:
        runtime.active("key")
    assert raised.value.code == E.COORDINATOR_LOAD_IN_PROGRESS
    nursery.start_soon(runtime.run)
    await trio.testing.wait_all_tasks_blocked()
    led = runtime.active("key")
    assert (led.state, led.shard.is_loaded, world.things.active) == (ShardState.ACTIVE, True, ["__things-0"])
    runtime.lead(partition)
    assert runtime.active("key") is led, "another epoch changes nothing"
    runtime.resign(0)
    assert (led.state, runtime.shards) == (ShardState.CLOSED, {})
    led.suspend()
    assert led.state is ShardState.CLOSED, "what is closed stays so"


async def test_a_failed_write_starts_the_shard_over(world: World) -> None:
    runtime = CoordinatorRuntime(world.ground, world.things)
    runtime.lead(world.partition())
    led, token = runtime.active("key"), Token()
    runtime.results.apply(led, change(b"a", token))
    runtime.write_failed(0)
    again = runtime.shards[0]
    assert (led.state, again.state, again.shard.values) == (ShardState.CLOSED, ShardState.LOADING, [])


async def test_an_internal_topic_is_created_when_it_is_wanted(
    world: World, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    topic = InternalTopic(TOPIC, LOG, world.ground)
    nursery.start_soon(topic.run)
    world.create_error = KafkaError(E.INVALID_REPLICATION_FACTOR)
    assert topic.place("key") is None
    topic.want()
    await trio.sleep(1.5)
    world.create_error = None
    topic.want()
    await trio.sleep(0.1)
    assert world.created == [TOPIC, TOPIC]
    place = topic.place("key")
    assert place is not None
    topic.want()
    await trio.sleep(1.5)
    assert len(world.created) == 2

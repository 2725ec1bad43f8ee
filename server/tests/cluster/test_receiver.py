"""A controller's requests to this broker, carried out on stand-ins for its partitions."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, Sequencer

from barnabas.kproto import ZERO_UUID, ErrorCode, KafkaError
from barnabas.logdir import StorageError
from barnabas.replication import (
    BrokerImage,
    EmbeddedSession,
    EmbeddedStore,
    Endpoint,
    Image,
    LeaderAndIsr,
    Message,
    Node,
    PartitionChange,
    PartitionImage,
    SessionExpired,
    StoppedPartition,
    StopReplica,
    TopicImage,
    UpdateMetadata,
)
from barnabas.replication.store.store import Create
from barnabas.replication.tree.paths import Assignment, TopicNode, encode_topic
from barnabas.server.cluster.receiver import AGAIN_S, Receiver

TWO = BrokerImage(2, (Endpoint("PLAINTEXT", "two", 2),))
TWO_MOVED = BrokerImage(2, (Endpoint("PLAINTEXT", "elsewhere", 2),))


def change(topic: str, index: int, leader: int, epoch: int = 0) -> PartitionChange:
    return PartitionChange(topic, topic.encode() * 16, PartitionImage(index, leader, epoch, epoch, (1, 2), (1, 2)))


class Replicas:
    """Stands for the broker's partitions: what was asked of them, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.broken: dict[str, Exception] = {}
        self.settled = 0
        self.unsafe: OSError | None = None

    def become_leader(
        self, topic: str, topic_id: bytes, image: PartitionImage, config: Mapping[str, str], *, is_new: bool
    ) -> None:
        self._do(topic, "lead", image.index, dict(config))

    def become_follower(
        self,
        topic: str,
        topic_id: bytes,
        image: PartitionImage,
        config: Mapping[str, str],
        leader: BrokerImage | None,
        *,
        is_new: bool,
    ) -> None:
        self._do(topic, "follow", image.index, dict(config), leader.endpoints[0].host if leader else None)

    def stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> None:
        self._do(topic, "stop", index, leader_epoch, delete)

    async def settle_deletions(self) -> None:
        self.settled += 1
        if self.unsafe is not None:
            raise self.unsafe

    def config_changed(self, topic: str, config: Mapping[str, str]) -> None:
        self._do(topic, "configure", dict(config))

    def _do(self, topic: str, *what: object) -> None:
        if topic in self.broken:
            raise self.broken[topic]
        self.done.append((topic, *what))


class Store(EmbeddedSession):
    """Counts reads, and calls back before and after each."""

    def __init__(self, tree: EmbeddedStore) -> None:
        super().__init__(tree, 1)
        self.reads: list[str] = []
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self.before()
        self.reads += paths
        found = await super().get_many(paths)
        self.after()
        return found


class Rig:
    def __init__(self) -> None:
        self.replicas = Replicas()
        self.store = Store(EmbeddedStore.open())
        self.broker_epoch = 10
        self.decided: dict[str, TopicImage] = {}
        self.receiver = Receiver(
            1,
            self.replicas,
            self.store,
            broker_epoch=lambda: self.broker_epoch,
            decided=self.decided.get,
        )

    async def configure(self, topic: str, value: str) -> None:
        for path in ("/config", "/config/topics"):
            if await self.store.get(path) is None:
                await self.store.commit([Create(path)])
        data = b'{"version":1,"config":{"retention.ms":"%s"}}' % value.encode()
        await self.store.commit([Create(f"/config/topics/{topic}", data)])

    def lead(self, *changes: PartitionChange, epoch: int = 1, broker_epoch: int = 10) -> LeaderAndIsr:
        return LeaderAndIsr(7, epoch, broker_epoch, changes, (TWO,))

    def update(self, *changes: PartitionChange, epoch: int = 1) -> UpdateMetadata:
        return UpdateMetadata(7, epoch, 10, (TWO_MOVED,), changes)


async def test_leaders_come_first_and_all_get_settings() -> None:
    rig = Rig()
    await rig.configure("b", "5")
    codes = await rig.receiver.receive(
        rig.lead(change("a", 0, 2), change("b", 1, 1), change("a", 2, -1), change("b", 3, 9))
    )
    assert rig.replicas.done == [
        ("b", "lead", 1, {"retention.ms": "5"}),
        ("a", "follow", 0, {}, "two"),
        ("a", "follow", 2, {}, None),
        ("b", "follow", 3, {"retention.ms": "5"}, None),
    ]
    assert set(codes.values()) == {ErrorCode.NONE}
    assert rig.receiver.image == Image(), "only UpdateMetadata changes it"


async def test_a_leader_that_the_message_does_not_describe_is_looked_up_in_the_picture() -> None:
    rig = Rig()
    await rig.receiver.receive(rig.update())
    await rig.receiver.receive(replace(rig.lead(change("a", 0, 2)), leaders=()))
    assert rig.replicas.done == [("a", "follow", 0, {}, "elsewhere")]


async def test_settings_are_read_only_of_topics_that_are_new() -> None:
    rig = Rig()
    await rig.configure("a", "5")
    await rig.receiver.receive(rig.update(change("a", 0, 2), change("a", 1, 2)))
    assert rig.store.reads == ["/config/topics/a"]
    assert rig.receiver.image.topics["a"].config == {"retention.ms": "5"}
    await rig.receiver.receive(rig.lead(change("a", 0, 1, 1)))
    assert rig.store.reads == ["/config/topics/a"]
    again = replace(change("a", 0, 1, 0), topic_id=b"x" * 16)
    await rig.receiver.receive(rig.update(again))
    assert rig.store.reads == ["/config/topics/a"] * 2, "another topic of this name"
    assert len(rig.receiver.image.topics["a"].partitions) == 1


async def test_what_our_own_controller_has_in_mind_is_not_read() -> None:
    rig = Rig()
    rig.decided["a"] = TopicImage("a", b"a" * 16, (), {"retention.ms": "7"})
    await rig.receiver.receive(rig.lead(change("a", 0, 1)))
    assert rig.store.reads == []
    assert rig.replicas.done == [("a", "lead", 0, {"retention.ms": "7"})]


async def test_ids_that_old_controllers_do_not_send_are_read() -> None:
    rig = Rig()
    for path in ("/brokers", "/brokers/topics"):
        await rig.store.commit([Create(path)])
    topic_id = b"a" * 16
    node = TopicNode(topic_id, {0: Assignment((1, 2)), 1: Assignment((1, 2))})
    await rig.store.commit([Create("/brokers/topics/a", encode_topic(node))])
    old = [replace(change("a", index, 2), topic_id=ZERO_UUID) for index in (0, 1)]
    older = replace(change("none", 0, 2), topic_id=ZERO_UUID)
    await rig.receiver.receive(rig.update(*old, older))
    topics = rig.receiver.image.topics
    assert (topics["a"].topic_id, len(topics["a"].partitions)) == (topic_id, 2)
    assert topics["none"].topic_id == ZERO_UUID
    rig.store.reads.clear()
    await rig.receiver.receive(rig.update(replace(old[1], partition=change("a", 1, 1, 5).partition), older))
    assert rig.store.reads == []
    topics = rig.receiver.image.topics
    assert [p.leader_epoch for p in topics["a"].partitions] == [0, 5]
    assert topics["a"].topic_id == topic_id
    gone = replace(old[0], partition=replace(old[0].partition, leader=-2))
    await rig.receiver.receive(rig.update(gone))
    assert set(rig.receiver.image.topics) == {"none"}


async def test_one_partition_in_trouble(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.replicas.broken = {
        "old": KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH),
        "disk": OSError("no space"),
        "sick": KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID),
    }
    with caplog.at_level(logging.INFO):
        codes = await rig.receiver.receive(rig.lead(*(change(name, 0, 1) for name in ("old", "disk", "fine", "sick"))))
    assert codes == {
        ("old", 0): ErrorCode.STALE_CONTROLLER_EPOCH,
        ("disk", 0): ErrorCode.KAFKA_STORAGE_ERROR,
        ("fine", 0): ErrorCode.NONE,
        ("sick", 0): ErrorCode.INCONSISTENT_TOPIC_ID,
    }
    assert len(caplog.records) == 2, "what it knew already is nothing to report"
    stopped = tuple(StoppedPartition(name, 0, -2, True) for name in ("disk", "fine"))
    codes = await rig.receiver.receive(StopReplica(7, 1, 10, stopped))
    assert codes == {("disk", 0): ErrorCode.KAFKA_STORAGE_ERROR, ("fine", 0): ErrorCode.NONE}


async def test_deletions_are_durable_before_they_are_answered() -> None:
    rig = Rig()
    await rig.receiver.receive(StopReplica(7, 1, 10, (StoppedPartition("a", 0, -2, False),)))
    assert rig.replicas.settled == 0, "nothing was deleted"
    stopped = StopReplica(7, 1, 10, (*(StoppedPartition("a", index, -2, True) for index in range(3)),))
    assert set((await rig.receiver.receive(stopped)).values()) == {ErrorCode.NONE}
    assert rig.replicas.settled == 1, "once for all"
    rig.replicas.unsafe = OSError("the disk")
    assert set((await rig.receiver.receive(stopped)).values()) == {ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize(("epoch", "refused"), [(-1, False), (9, True), (10, False), (11, False)])
async def test_broker_epochs(epoch: int, refused: bool) -> None:
    rig = Rig()
    message = rig.lead(change("a", 0, 1), broker_epoch=epoch)
    if refused:
        with pytest.raises(KafkaError) as caught:
            await rig.receiver.receive(message)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    else:
        await rig.receiver.receive(message)
    assert bool(rig.replicas.done) != refused


async def test_a_session_that_ends_while_settings_are_read() -> None:
    rig = Rig()

    def expire() -> None:
        raise SessionExpired("expired")

    rig.store.before = expire
    with pytest.raises(KafkaError) as caught:
        await rig.receiver.receive(rig.lead(change("a", 0, 1)))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert rig.replicas.done == []


async def test_messages_are_done_one_after_the_other() -> None:
    """The second may be quicker than the first, which must read settings, and an old controller's comes too late."""
    rig = Rig()
    seq = Sequencer()
    codes: list[object] = []

    async def first() -> None:
        async with seq(0):
            pass
        await rig.receiver.receive(rig.lead(change("new", 0, 1), epoch=2))
        codes.append("first")

    async def second() -> None:
        async with seq(1):
            pass
        try:
            await rig.receiver.receive(rig.lead(epoch=1))
        except KafkaError as error:
            codes.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
    assert codes == ["first", ErrorCode.STALE_CONTROLLER_EPOCH]


async def test_settings_of_a_topic_change() -> None:
    rig = Rig()
    await rig.receiver.receive(rig.update(change("a", 0, 2)))
    rig.receiver.topic_config_changed("a", {"retention.ms": "1"})
    assert rig.replicas.done == [("a", "configure", {"retention.ms": "1"})]
    assert rig.receiver.image.topics["a"].config == {"retention.ms": "1"}
    await rig.receiver.receive(rig.update(change("a", 1, 2)))
    assert rig.receiver.image.topics["a"].config == {"retention.ms": "1"}


async def test_settings_that_change_while_the_controller_speaks_of_the_topic() -> None:
    """The message has read the old ones, and the notification finds no topic yet."""
    rig = Rig()
    await rig.configure("a", "5")
    new = {"retention.ms": "6"}
    rig.store.after = lambda: rig.receiver.topic_config_changed("a", new)
    await rig.receiver.receive(rig.lead(change("a", 0, 1)))
    assert rig.replicas.done[-1] == ("a", "lead", 0, new)
    await rig.receiver.receive(rig.update(change("a", 0, 1)))
    assert rig.receiver.image.topics["a"].config == new


@pytest.mark.parametrize("in_image", [False, True])
async def test_settings_that_change_between_the_two_messages_about_a_new_topic(in_image: bool) -> None:
    """The partition is there, and the image does not have its topic; or has it, with the new settings already."""
    rig = Rig()
    await rig.receiver.receive(rig.lead(change("a", 0, 1)))
    await rig.configure("a", "6")
    if in_image:
        await rig.receiver.receive(rig.update(change("a", 0, 1)))
    rig.receiver.topic_config_changed("a", {"retention.ms": "6"})
    assert rig.replicas.done == [("a", "lead", 0, {}), ("a", "configure", {"retention.ms": "6"})]


async def test_settings_of_a_known_topic_that_change_while_a_message_reads_another_ones() -> None:
    rig = Rig()
    await rig.receiver.receive(rig.update(change("a", 0, 2)))
    rig.store.after = lambda: rig.receiver.topic_config_changed("a", {"retention.ms": "6"})
    await rig.receiver.receive(rig.update(change("a", 0, 2), change("b", 0, 2)))
    assert rig.receiver.image.topics["a"].config == {"retention.ms": "6"}


async def test_settings_that_changed_before_a_message_are_those_of_the_store() -> None:
    """A notification is remembered no longer than the message after it takes: the topic may be another one then."""
    rig = Rig()
    rig.receiver.topic_config_changed("a", {"retention.ms": "4"})
    await rig.configure("a", "5")
    await rig.receiver.receive(rig.update(change("a", 0, 2)))
    assert rig.receiver.image.topics["a"].config == {"retention.ms": "5"}


async def test_the_loop_goes_round_between_few_partitions() -> None:
    """Eight that are created, are there already, or are deleted."""
    rig = Rig()
    steps: list[int] = []

    class Watch(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            steps.append(len(rig.replicas.done))
            rig.replicas.done.clear()

    known = [change("a", index, 1) for index in range(40)]

    async def most(message: Message) -> int:
        steps.clear()
        watch = Watch()
        trio.lowlevel.add_instrument(watch)
        await rig.receiver.receive(message)
        trio.lowlevel.remove_instrument(watch)
        return max(steps)

    assert await most(rig.lead(*known)) == 8
    assert await most(rig.lead(*(replace(each, is_new=True) for each in known))) == 8
    stopped = tuple(StoppedPartition("a", index, 0, delete=True) for index in range(40))
    assert await most(StopReplica(7, 1, 10, stopped)) == 8


def lacking(topic: str) -> StorageError:
    return StorageError(f"opening {topic}", OSError(errno.EMFILE, "said the test"))


async def test_what_the_process_lacked_something_for_is_tried_again(autojump_clock: MockClock) -> None:
    """The role is ours meanwhile, unless another broker could lead; the latest message counts."""
    rig = Rig()
    alone = PartitionChange("a", b"a" * 16, PartitionImage(0, 1, 5, 5, (1, 2), (1,)))
    rig.replicas.broken = {topic: lacking(topic) for topic in "abcd"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.receiver.run)
        codes = await rig.receiver.receive(rig.lead(alone, change("b", 0, 1), change("c", 0, 2), change("d", 0, 2)))
        assert codes == {("a", 0): 0, ("b", 0): ErrorCode.KAFKA_STORAGE_ERROR, ("c", 0): 0, ("d", 0): 0}
        stale = replace(alone, partition=replace(alone.partition, leader_epoch=4))
        assert set((await rig.receiver.receive(rig.lead(stale))).values()) == {ErrorCode.STALE_CONTROLLER_EPOCH}
        await trio.sleep(AGAIN_S * 3.5)
        assert rig.replicas.done == []
        rig.replicas.broken = {}
        stopped = StopReplica(7, 1, 10, (StoppedPartition("d", 0, 0, delete=False),))
        await rig.receiver.receive(stopped)
        await rig.receiver.receive(rig.lead(change("b", 0, 2, 1)))  # elected elsewhere
        rig.replicas.done.clear()
        await trio.sleep(AGAIN_S)
        assert sorted(rig.replicas.done, key=str) == [("a", "lead", 0, {}), ("c", "follow", 0, {}, "two")]
        await trio.sleep(AGAIN_S * 3)
        assert len(rig.replicas.done) == 2
        rig.replicas.broken = {"e": lacking("e")}
        await rig.receiver.receive(rig.lead(change("e", 0, 2)))
        rig.replicas.broken = {}
        await trio.sleep(AGAIN_S * 1.5)
        assert rig.replicas.done[2:] == [("e", "follow", 0, {}, "two")]
        nursery.cancel_scope.cancel()


async def test_a_disk_that_failed_is_not_tried_again(autojump_clock: MockClock) -> None:
    rig = Rig()
    rig.replicas.broken = {"a": StorageError("opening a", OSError(errno.EIO, "said the test"))}
    with trio.move_on_after(AGAIN_S * 3):
        codes = await rig.receiver.receive(rig.lead(change("a", 0, 2)))
        assert set(codes.values()) == {ErrorCode.KAFKA_STORAGE_ERROR}
        rig.replicas.broken = {}
        await rig.receiver.run()
    assert rig.replicas.done == []

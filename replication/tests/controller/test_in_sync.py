"""AlterPartition, controlled shutdown, balance, elections, notifications, failed log directories."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.in_sync import ProposedState
from barnabas.replication.store.store import Create, VersionMoved
from barnabas.replication.tests.controller.controller_rig import Cluster, check, told
from barnabas.replication.tree import paths
from barnabas.replication.values.image import PartitionImage

KEY = ("t", 0)


def cluster_of(*replicas: int, unclean: bool = False) -> Cluster:
    cluster = Cluster((1, 2, 3, 4), unclean=unclean)
    cluster.create("t", {0: replicas})
    cluster.alive(1, 2, 3, 4)
    return cluster


def ask(cluster: Cluster, broker: int = 1, **changes: Any) -> ErrorCode | PartitionImage:
    """Ask for a change of t-0, from the present state."""
    now = cluster.machine.image.partition(*KEY)
    assert now is not None
    wish = {
        "leader_epoch": now.leader_epoch,
        "partition_epoch": now.partition_epoch,
        "isr": dict.fromkeys(now.isr, -1),
        "recovering": now.recovering,
        **changes,
    }
    outcome, effects = cluster.machine.alter_partition(
        broker,
        cluster.live[broker].epoch,
        {KEY: ProposedState(**wish)},
        "asked",
    )
    cluster.answers.pop("asked", None)
    cluster.run(effects)
    assert cluster.answers["asked"] is None
    return outcome[KEY]


def ids(*replicas: int) -> dict[int, int]:
    return dict.fromkeys(replicas, -1)


# -- AlterPartition --------------------------------------------------------------------------------------------------


def test_a_leader_shrinks_and_expands() -> None:
    cluster = cluster_of(1, 2, 3)
    told(cluster)
    after = ask(cluster, isr=ids(1))
    assert isinstance(after, PartitionImage)
    assert (after.leader, after.leader_epoch, after.isr, after.partition_epoch) == (1, 0, (1,), 1)
    assert cluster.state("t") == (1, 0, (1,))
    assert told(cluster) == [], "the leader learns from the answer; LeaderAndIsr is not sent"
    assert all(image.topics["t"].partitions[0].isr == (1,) for image in cluster.images.values())
    assert isinstance(ask(cluster, isr=ids(1, 3)), PartitionImage)
    assert cluster.state("t") == (1, 0, (1, 3))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 1, "partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ids(1, 2, 4)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ids(2, 3)}, ErrorCode.INVALID_REQUEST),
        ({"isr": {}}, ErrorCode.INVALID_REQUEST),
        ({"isr": ids(1), "recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"isr": ids(1, 5)}, ErrorCode.INVALID_REQUEST),
        ({"isr": {1: -1, 2: -1, 3: 7}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = cluster_of(3, 1, 2)
    cluster.alive(1, 2, 4)
    cluster.alive(1, 2, 3, 4)
    cluster.run(cluster.machine.elect([KEY], unclean=False)[1])
    ask(cluster, isr=ids(1, 2, 3))
    ask(cluster, isr=ids(1, 2))
    before = cluster.state("t")
    assert before == (1, 1, (1, 2))
    if changes.get("leader_epoch") == 1:
        cluster.alive(1, 2, 3, 4, epochs={2: 5})
        before = cluster.state("t")
    if "isr" not in changes:
        changes = {**changes, "isr": ids(1)}
    assert ask(cluster, **changes) == code
    assert cluster.state("t") == before


def test_what_is_there_already_is_no_mistake() -> None:
    cluster = cluster_of(1, 2, 3)
    ask(cluster, isr=ids(1, 2))
    before = cluster.tree.zxid
    after = ask(cluster, isr=ids(1, 2), partition_epoch=0)
    assert isinstance(after, PartitionImage)
    assert after.partition_epoch == 1
    assert cluster.tree.zxid == before


def test_dead_stopping_and_unknown() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.alive(1, 2, 4)
    assert ask(cluster, isr=ids(1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA
    cluster.run(cluster.machine.controlled_shutdown(2, -1, None)[1])
    assert ask(cluster, isr=ids(1, 2)) == ErrorCode.INELIGIBLE_REPLICA
    for broker, epoch in ((9, 1), (1, 0), (1, 2)):
        with pytest.raises(KafkaError) as caught:
            cluster.machine.alter_partition(broker, epoch, {}, None)
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    wish = ProposedState(0, 0, ids(1))
    outcome, effects = cluster.machine.alter_partition(1, 1, {("t", 5): wish, ("u", 0): wish}, "x")
    cluster.run(effects)
    assert set(outcome.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.answers["x"] is None


def test_a_follower_may_not_ask() -> None:
    cluster = cluster_of(1, 2, 3)
    assert ask(cluster, 2, isr=ids(2)) == ErrorCode.INVALID_REQUEST


def test_the_store_knows_better() -> None:
    """The state was written without the controller's knowledge: the proposal of one partition fails alone."""
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3), 1: (1, 2, 3)})
    cluster.shrink("t", 0, (1, 3))
    outcome = cluster.report(1, {("t", 0): (1,), ("t", 1): (1,)})
    assert outcome["t", 0] == ErrorCode.INVALID_UPDATE_VERSION
    assert isinstance(outcome["t", 1], PartitionImage)
    assert cluster.state("t", 0) == (1, 0, (1, 3))
    assert cluster.state("t", 1) == (1, 0, (1,))


def test_a_store_that_always_refuses_gives_an_answer() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.refusals.extend(VersionMoved(paths.state("t", 0)) for _ in range(100))
    assert ask(cluster, isr=ids(1)) == ErrorCode.INVALID_UPDATE_VERSION


def test_recovery_after_an_unclean_election() -> None:
    cluster = cluster_of(1, 2, unclean=True)
    cluster.alive(1, 3, 4)
    cluster.alive(2, 3, 4)
    partition = cluster.machine.image.partition(*KEY)
    assert partition is not None
    assert (partition.leader, partition.isr, partition.recovering) == (2, (2,), True)
    cluster.alive(1, 2, 3, 4)
    assert ask(cluster, 2, isr=ids(2, 1)) == ErrorCode.INVALID_REQUEST, "alone until recovered"
    after = ask(cluster, 2, recovering=False)
    assert isinstance(after, PartitionImage)
    assert not after.recovering
    assert isinstance(ask(cluster, 2, isr=ids(2, 1)), PartitionImage)
    assert ask(cluster, 2, isr=ids(2), recovering=True) == ErrorCode.INVALID_REQUEST


def test_a_report_while_the_topic_grows() -> None:
    """The new partitions were decided before the report was in the store: they must not take it back."""
    cluster = cluster_of(1, 2, 3)
    now = cluster.machine.image.topics["t"].partitions[0]
    wish = ProposedState(now.leader_epoch, now.partition_epoch, ids(1))
    report = cluster.machine.alter_partition(1, 1, {KEY: wish}, None)[1]
    growth = cluster.machine.expand("t", {1: (1, 2)}, None)
    cluster.run(report)
    cluster.run(growth)
    assert cluster.state("t", 0) == (1, 0, (1,))
    assert cluster.state("t", 1) == (1, 0, (1, 2))
    check(cluster, "end")


def test_many_partitions_share_commits() -> None:
    cluster = Cluster()
    cluster.create("t", dict.fromkeys(range(600), (1, 2)))
    before = cluster.tree.zxid
    cluster.report(1, {("t", index): (1,) for index in range(600)})
    assert cluster.tree.zxid == before + 2
    assert cluster.state("t", 599) == (1, 0, (1,))


# -- controlled shutdown ---------------------------------------------------------------------------------------------


def shut_down(cluster: Cluster, broker: int, epoch: int = -1) -> list[tuple[str, int]]:
    remaining, effects = cluster.machine.controlled_shutdown(broker, epoch, "stop")
    cluster.answers.pop("stop", None)
    cluster.run(effects)
    assert cluster.answers["stop"] is None
    return remaining


def test_a_broker_that_stops_leaves_nothing_behind() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.create("t", {0: (1, 2, 3), 1: (2, 1, 3), 2: (1,)})
    told(cluster)
    assert shut_down(cluster, 1, 1) == [], "a partition with one replica does not count"
    assert cluster.state("t", 0) == (2, 1, (2, 3))
    assert cluster.state("t", 1) == (2, 1, (2, 3))
    assert cluster.state("t", 2) == (1, 0, (1,))
    assert told(cluster) == [
        "2: t-0 led by 2 epoch 1 isr [2, 3]",
        "2: t-1 led by 2 epoch 1 isr [2, 3]",
        "3: t-0 led by 2 epoch 1 isr [2, 3]",
        "3: t-1 led by 2 epoch 1 isr [2, 3]",
        "1: t-0 led by 2 epoch 1 isr [2, 3]",
    ], "the old leader hears of its successor; where it followed, it has been stopped"
    assert cluster.stopped[1] == {("t", 1)}
    assert offline(cluster) == [(1,), (1,), ()], "a single replica stays what it is until it is gone"
    cluster.alive(2, 3)
    cluster.alive(1, 2, 3, epochs={1: 9})
    cluster.catch_up()
    assert set(cluster.state("t", 0)[2]) == {1, 2, 3}
    assert offline(cluster) == [(), (), ()]
    check(cluster, "end")


def offline(cluster: Cluster) -> list[tuple[int, ...]]:
    """Offline replicas of t's partitions, as broker 3 shows them."""
    return [partition.offline_replicas for partition in cluster.images[3].topics["t"].partitions]


def test_partitions_without_another_leader_remain_and_are_retried() -> None:
    cluster = cluster_of(1, 2)
    ask(cluster, isr=ids(1))
    assert shut_down(cluster, 1) == [KEY]
    assert cluster.state("t") == (1, 0, (1,))
    assert cluster.led[1][KEY].leader == 1
    cluster.create("u", {0: (1, 2)})
    assert cluster.state("u") == (2, 0, (2,)), "nothing new for who is stopping"
    assert isinstance(ask(cluster, isr=ids(1, 2)), PartitionImage), "2 has caught up"
    assert shut_down(cluster, 1) == []
    assert cluster.state("t") == (2, 1, (2,))


def test_two_stop_at_once() -> None:
    cluster = cluster_of(1, 2)
    shut_down(cluster, 1)
    assert shut_down(cluster, 2) == [KEY]
    assert cluster.state("t") == (2, 1, (2,))
    cluster.alive(3, 4)
    assert cluster.state("t") == (-1, 2, (2,))
    cluster.alive(2, 3, 4)
    assert cluster.state("t")[0] == 2, "it may lead again when it is back"


def test_which_brokers_may_stop() -> None:
    cluster = cluster_of(1, 2)
    cluster.alive(1, 2, 3, 4, epochs={2: 7})
    for broker, epoch, code in ((9, -1, ErrorCode.BROKER_NOT_AVAILABLE), (2, 6, ErrorCode.STALE_BROKER_EPOCH)):
        with pytest.raises(KafkaError) as caught:
            cluster.machine.controlled_shutdown(broker, epoch, None)
        assert caught.value.code == code


def test_a_stopping_broker_dies_before_the_write() -> None:
    cluster = cluster_of(1, 2, 3)
    _, effects = cluster.machine.controlled_shutdown(1, -1, "stop")
    cluster.queue.extend(effects)
    cluster.alive(2, 3, 4)
    assert cluster.answers["stop"] is None
    assert cluster.state("t")[0] == 2
    check(cluster, "end")


# -- elections -------------------------------------------------------------------------------------------------------


def unbalanced(preferring_1: int, preferring_2: int) -> Cluster:
    """Partitions that prefer 1 and others that prefer 2; 2 leads all of them."""
    cluster = Cluster((1, 2, 3))
    cluster.create(
        "t", {index: (1, 2) if index < preferring_1 else (2, 1) for index in range(preferring_1 + preferring_2)}
    )
    cluster.alive(2, 3)
    cluster.alive(1, 2, 3)
    cluster.catch_up()
    return cluster


def test_balance() -> None:
    cluster = unbalanced(3, 2)
    assert {cluster.state("t", index)[0] for index in range(5)} == {2}
    cluster.run(cluster.machine.rebalance_due(100))
    assert {cluster.state("t", index)[0] for index in range(5)} == {2}, "not more than all are elsewhere"
    cluster.run(cluster.machine.rebalance_due(10))
    assert [cluster.state("t", index)[0] for index in range(5)] == [1, 1, 1, 2, 2]
    assert cluster.machine.rebalance_due(0) == []


def test_balance_skips_replicas_that_are_not_in_sync() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.create("t", {0: (1, 2)})
    cluster.alive(2, 3)
    cluster.alive(1, 2, 3)
    assert cluster.machine.rebalance_due(10) == []
    cluster.catch_up()
    shut_down(cluster, 1)
    assert cluster.machine.rebalance_due(10) == [], "nor who is stopping"


def test_elections_of_old_tools() -> None:
    cluster = unbalanced(2, 0)
    node = paths.PREFERRED_ELECTION
    cluster.tree.apply([Create(node, paths.encode_partitions([("t", 0), ("ghost", 1)]))], 1)
    cluster.run(cluster.machine.elections_seen([("t", 0), ("ghost", 1)]))
    assert [cluster.state("t", index)[0] for index in range(2)] == [1, 2]
    assert cluster.tree.get(node) is None
    cluster.tree.apply([Create(node, paths.encode_partitions([("t", 1)]))], 1)
    cluster.fail_over()
    assert cluster.state("t", 1)[0] == 1
    assert cluster.tree.get(node) is None


def test_an_election_that_the_store_refuses_is_decided_again() -> None:
    cluster = unbalanced(1, 0)
    cluster.shrink("t", 0, (2,))
    outcome, effects = cluster.machine.elect([KEY], unclean=False, token="elect")
    assert outcome[KEY] is None
    cluster.run(effects)
    error = outcome[KEY]
    assert error is not None
    assert error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.answers["elect"] is None
    assert cluster.state("t") == (2, 1, (2,))


def test_unclean_elections_on_request() -> None:
    cluster = cluster_of(1, 2)
    cluster.alive(1, 3, 4)
    cluster.alive(2, 3, 4)
    assert cluster.state("t")[0] == -1
    outcome, effects = cluster.machine.elect([KEY], unclean=True, token="elect")
    cluster.run(effects)
    assert outcome == {KEY: None}
    assert cluster.state("t") == (2, 3, (2,))
    assert cluster.unclean_seen


def test_unclean_elections_for_all_topics_by_the_brokers_settings() -> None:
    cluster = cluster_of(1, 2)
    cluster.alive(1, 3, 4)
    cluster.alive(2, 3, 4)
    cluster.unclean = True
    cluster.run(cluster.machine.reconsider())
    assert cluster.state("t")[0] == 2


# -- notifications ---------------------------------------------------------------------------------------------------


def test_states_written_by_leaders_are_sent_to_all() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.shrink("t", 0, (1,))
    cluster.run(cluster.machine.states_seen({KEY: cluster.stored("t"), ("ghost", 0): None, ("t", 8): None}))
    assert cluster.state("t") == (1, 0, (1,))
    assert cluster.images[3].topics["t"].partitions[0].isr == (1,)


def test_a_failed_log_directory() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.create("t", {0: (1, 2), 1: (2, 1), 2: (1,), 3: (1, 2)})
    cluster.broken[1] = {("t", 0), ("t", 1), ("t", 2)}
    cluster.run(cluster.machine.log_dirs_failed([1, 9]))
    assert cluster.state("t", 0) == (2, 1, (2,))
    assert cluster.state("t", 1) == (2, 1, (2,))
    assert cluster.state("t", 2) == (-1, 1, (1,))
    assert cluster.state("t", 3) == (1, 0, (1, 2))
    assert offline(cluster) == [(1,), (1,), (1,), ()]
    assert ask_for(cluster, ("t", 0), 2, ids(2, 1)) == ErrorCode.INELIGIBLE_REPLICA
    cluster.broken.clear()
    cluster.alive(1, 2, 3, epochs={1: 9})
    assert cluster.state("t", 2)[0] == 1
    cluster.catch_up()
    assert offline(cluster)[0] == ()
    check(cluster, "end")


def ask_for(cluster: Cluster, key: tuple[str, int], broker: int, isr: dict[int, int]) -> ErrorCode | PartitionImage:
    now = cluster.machine.image.partition(*key)
    assert now is not None
    wish = ProposedState(now.leader_epoch, now.partition_epoch, isr)
    outcome, effects = cluster.machine.alter_partition(broker, cluster.live[broker].epoch, {key: wish}, None)
    cluster.run(effects)
    return outcome[key]

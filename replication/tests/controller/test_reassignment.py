"""Moving partitions: the order of messages and writes, calling off, new targets, deaths in between, old tools."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode
from barnabas.replication.controller.in_sync import ProposedState
from barnabas.replication.store.store import Create, Set
from barnabas.replication.tests.controller.controller_rig import Cluster, check, told
from barnabas.replication.tree import paths

KEY = ("t", 0)


def moved(cluster: Cluster, index: int = 0) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, adding, removing, as the tree has them."""
    assigned = cluster.assigned("t", index)
    return assigned.replicas, assigned.adding, assigned.removing


def cluster_of(*replicas: int, live: tuple[int, ...] = (1, 2, 3, 4)) -> Cluster:
    cluster = Cluster(live)
    cluster.create("t", {0: replicas})
    told(cluster)
    return cluster


def test_a_move_from_begin_to_end() -> None:
    cluster = cluster_of(1, 2)
    assert cluster.reassign({KEY: (3, 2)}) == {KEY: 0}
    assert moved(cluster) == ((3, 2, 1), (3,), (1,))
    assert told(cluster) == [
        "1: t-0 led by 1 epoch 1 isr [1, 2]",
        "2: t-0 led by 1 epoch 1 isr [1, 2]",
        "3: t-0 led by 1 epoch 1 isr [1, 2] new",
    ]
    assert [c.partition.adding_replicas for c in cluster.machine.reassigning(None)] == [(3,)]
    assert cluster.machine.reassigning([("t", 7), KEY]) == cluster.machine.reassigning(None)
    cluster.report(1, {KEY: (1, 2, 3)})
    assert moved(cluster) == ((3, 2), (), ())
    assert cluster.state("t") == (3, 2, (2, 3)), "the leader leaves: the first of the target that is in sync leads"
    assert told(cluster) == [
        "2: t-0 led by 3 epoch 2 isr [2, 3]",
        "3: t-0 led by 3 epoch 2 isr [2, 3]",
        "1: delete t-0",
    ]
    assert cluster.machine.reassigning(None) == []
    check(cluster, "end")


def test_the_leader_stays_if_it_may() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (2, 1, 3)})
    cluster.catch_up()
    assert cluster.state("t") == (1, 2, (2, 1, 3)), "preferred replicas take over when the balance is looked at"
    assert moved(cluster) == ((2, 1, 3), (), ())
    assert told(cluster)[-3:] == [
        "1: t-0 led by 1 epoch 2 isr [2, 1, 3]",
        "2: t-0 led by 1 epoch 2 isr [2, 1, 3]",
        "3: t-0 led by 1 epoch 2 isr [2, 1, 3]",
    ]


def test_fewer_replicas_is_done_at_once() -> None:
    cluster = cluster_of(1, 2, 3)
    assert cluster.reassign({KEY: (2, 3)}) == {KEY: 0}
    assert cluster.state("t") == (2, 2, (2, 3))
    assert moved(cluster) == ((2, 3), (), ())
    assert "1: delete t-0" in told(cluster)


def test_where_it_is_already_nothing_happens() -> None:
    cluster = cluster_of(1, 2)
    before = cluster.tree.zxid
    assert cluster.reassign({KEY: (1, 2)}) == {KEY: 0}
    assert cluster.tree.zxid == before
    assert cluster.reassign({KEY: (2, 1)}) == {KEY: 0}
    assert moved(cluster) == ((2, 1), (), ()), "another order is another preferred leader"
    assert cluster.state("t") == (1, 1, (1, 2))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_is_refused(target: tuple[int, ...] | None, code: ErrorCode) -> None:
    cluster = cluster_of(1, 2)
    before = cluster.tree.zxid
    assert cluster.reassign({KEY: target}) == {KEY: code}
    for unknown in (("no", 3), ("t", 9)):
        assert cluster.reassign({unknown: target})[unknown] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.tree.zxid == before


def test_unknown_partitions_and_those_going() -> None:
    cluster = cluster_of(1, 2)
    cluster.silent = {1, 2}
    assert cluster.reassign({("t", 1): (1,), ("u", 0): (2,)}) == {("t", 1): 3, ("u", 0): 3}
    cluster.run(cluster.machine.delete("t", "d"))
    for target in ((3,), (), None):
        assert cluster.reassign({KEY: target}) == {KEY: 3}


def test_old_replicas_need_not_live() -> None:
    cluster = cluster_of(1, 2)
    cluster.alive(2, 3, 4)
    assert cluster.reassign({KEY: (1, 3)}) == {KEY: 0}, "1 is dead, but it has been there"
    cluster.catch_up()
    assert moved(cluster) == ((1, 3, 2), (3,), (2,)), "1 is not in sync"
    cluster.alive(1, 2, 3, 4)
    cluster.catch_up()
    assert moved(cluster) == ((1, 3), (), ())


def test_a_partition_that_never_had_a_leader() -> None:
    cluster = Cluster((1, 2))
    cluster.create("t", {0: (1, 2), 1: (3, 4)})
    told(cluster)
    assert cluster.reassign({("t", 1): (2, 1)}) == {("t", 1): 0}
    assert moved(cluster, 1) == ((2, 1), (), ())
    assert told(cluster)[:2] == ["1: t-1 led by 2 epoch 0 isr [2, 1] new", "2: t-1 led by 2 epoch 0 isr [2, 1] new"]
    check(cluster, "end")


def test_a_first_leader_and_a_move_at_the_same_time() -> None:
    cluster = Cluster((1, 2))
    cluster.create("t", {0: (3, 4)})
    cluster.set_alive(1, 2, 3)
    effects = cluster.machine.brokers_changed(cluster.live)
    outcome, more = cluster.machine.reassign({KEY: (1, 2)}, "token")
    cluster.run([*effects, *more])
    assert outcome == {KEY: None}
    assert cluster.state("t") == (3, 1, (3,)), "3 has become its leader, and may have records"
    cluster.catch_up()
    assert moved(cluster) == ((1, 2), (), ())
    check(cluster, "end")


def test_a_move_that_was_begun_unheard_and_then_refused_leaves_nothing_in_the_store() -> None:
    cluster = cluster_of(1, 2)
    outcome, effects = cluster.machine.reassign({KEY: (3, 2)}, "token")
    cluster.set_alive(1, 2, 4)
    effects += cluster.machine.brokers_changed(cluster.live)  # 3 is dead when it must be decided again
    answers = iter(["after"])
    cluster.lost = lambda: next(answers, "")
    cluster.run(effects)
    error = outcome[KEY]
    assert error is not None
    assert error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.answers["token"] is None, "the request as a whole has its answer"
    assert moved(cluster) == ((1, 2), (), ())
    check(cluster, "end")


def test_calling_off() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 4)})
    cluster.report(1, {KEY: (1, 2, 3)})
    told(cluster)
    assert cluster.reassign({KEY: None}) == {KEY: 0}
    assert moved(cluster) == ((1, 2), (), ())
    assert cluster.state("t") == (1, 2, (1, 2))
    assert told(cluster) == [
        "1: t-0 led by 1 epoch 2 isr [1, 2]",
        "2: t-0 led by 1 epoch 2 isr [1, 2]",
        "3: delete t-0",
        "4: delete t-0",
    ]
    assert cluster.reassign({KEY: None}) == {KEY: 85}


def test_calling_off_when_only_new_replicas_are_left() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 4)})
    cluster.report(1, {KEY: (1, 2, 3)})
    cluster.alive(3)
    assert cluster.state("t") == (3, 2, (3,))
    assert cluster.reassign({KEY: None}) == {KEY: 39}, "acknowledged records are on 3 alone"
    assert cluster.state("t") == (3, 2, (3,))


def test_calling_off_when_a_new_replica_leads() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 4)})
    cluster.report(1, {KEY: (1, 2, 3)})
    cluster.alive(2, 3, 4)
    assert cluster.state("t") == (3, 2, (2, 3)), "3 is the first of the replicas"
    assert cluster.reassign({KEY: None}) == {KEY: 0}
    assert cluster.state("t") == (2, 3, (2,))
    assert "3: delete t-0" in told(cluster)


def test_another_target_on_the_way() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 2)})
    told(cluster)
    assert cluster.reassign({KEY: (4, 2)}) == {KEY: 0}
    assert moved(cluster) == ((4, 2, 1), (4,), (1,)), "counted from where it was at first"
    assert told(cluster)[-2:] == ["4: t-0 led by 1 epoch 2 isr [1, 2] new", "3: delete t-0"]
    cluster.catch_up()
    assert moved(cluster) == ((4, 2), (), ())


def test_a_target_that_dies_and_returns() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 4)})
    cluster.alive(1, 2, 3)
    cluster.catch_up()
    assert moved(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    cluster.alive(1, 2, 3, 4)
    assert cluster.led[4][KEY].leader == 1, "it is told where to fetch"
    cluster.catch_up()
    assert moved(cluster) == ((3, 4), (), ())
    check(cluster, "end")


def test_no_target_replica_is_alive_at_the_end() -> None:
    cluster = cluster_of(1)
    cluster.reassign({KEY: (3,)})
    cluster.set_alive(1, 2, 4)  # 3 dies just after it has caught up
    isr = cluster.stored("t")
    assert isr is not None
    cluster.shrink("t", 0, (1, 3))
    cluster.machine.state.image = cluster.machine.image.with_brokers(cluster.live)
    cluster.run(cluster.machine.states_seen({KEY: cluster.stored("t")}))
    assert moved(cluster) == ((3, 1), (3,), (1,)), "1 stays until somebody of the target lives"
    cluster.alive(1, 2, 3, 4)
    cluster.catch_up()
    assert moved(cluster) == ((3,), (), ())
    assert cluster.state("t")[0] == 3


def test_a_new_controller_goes_on() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 2)})
    told(cluster)
    cluster.fail_over()
    assert cluster.state("t") == (1, 2, (1, 2)), "a new epoch, for nobody knows what the replicas have heard"
    assert "3: t-0 led by 1 epoch 2 isr [1, 2] new" in told(cluster)
    cluster.catch_up()
    assert moved(cluster) == ((3, 2), (), ())


def test_a_new_controller_finishes() -> None:
    """The old one has written the state without the old replica, and not the topic."""
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 2)})
    outcome = cluster.led[1][KEY]
    isr = ProposedState(outcome.leader_epoch, outcome.partition_epoch, dict.fromkeys((1, 2, 3), -1))
    _, effects = cluster.machine.alter_partition(1, 1, {KEY: isr}, None)
    cluster.queue.extend(effects)
    while (cluster.stored("t") or (None, 0))[1] < outcome.partition_epoch + 2:
        cluster.step()
    assert moved(cluster) == ((3, 2, 1), (3,), (1,))
    told(cluster)
    cluster.fail_over()
    assert moved(cluster) == ((3, 2), (), ())
    assert "1: delete t-0" in told(cluster)
    check(cluster, "end")


def test_partitions_of_one_topic_in_one_request_and_in_turn() -> None:
    cluster = Cluster((1, 2, 3, 4))
    cluster.create("t", dict.fromkeys(range(4), (1, 2)))
    machine = cluster.machine
    tokens = ["one", "two", "more"]
    effects = machine.reassign({("t", 0): (3, 4), ("t", 1): (3, 4)}, "one")[1]
    effects += machine.reassign({("t", 2): (4, 3)}, "two")[1]
    effects += machine.expand("t", {4: (1, 2)}, "more")
    cluster.run(effects)
    assert [cluster.answers[token] is None for token in tokens] == [True, True, False]
    refusal = cluster.answers["more"]
    assert refusal is not None
    assert refusal.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert [moved(cluster, index)[1] for index in range(4)] == [(3, 4), (3, 4), (4, 3), ()]
    cluster.catch_up()
    assert [moved(cluster, index)[0] for index in range(4)] == [(3, 4), (3, 4), (4, 3), (1, 2)]
    cluster.run(machine.expand("t", {4: (1, 2)}, "again"))
    assert cluster.answers["again"] is None
    check(cluster, "end")


def test_a_topic_on_the_move_is_deleted_later() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 2)})
    told(cluster)
    cluster.run(cluster.machine.delete("t", "gone"))
    assert set(cluster.machine.deleting) == {"t"}
    assert told(cluster) == []
    assert "gone" not in cluster.answers
    outcome, _ = cluster.machine.elect([KEY], unclean=False)
    assert outcome[KEY] is not None
    cluster.catch_up()
    assert cluster.answers["gone"] is None
    assert cluster.tree.children(paths.TOPICS) == []
    assert not cluster.machine.deleting


@pytest.mark.parametrize("again", [False, True])
def test_a_requested_deletion_survives_the_move_and_the_controller(again: bool) -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign({KEY: (3, 2)})
    cluster.run(cluster.machine.delete("t", "gone"))
    if again:
        cluster.fail_over()
    assert cluster.reassign({KEY: None}) == {KEY: 3}, "as Apache Kafka: no way back"
    cluster.catch_up()
    assert cluster.tree.children(paths.TOPICS) == []


# -- old tools -------------------------------------------------------------------------------------------------------


def wish(cluster: Cluster, **targets: tuple[int, ...]) -> None:
    data = paths.encode_reassignments({(name, 0): target for name, target in targets.items()})
    exists = cluster.tree.get(paths.REASSIGNMENTS)
    cluster.tree.apply([Set(paths.REASSIGNMENTS, data) if exists else Create(paths.REASSIGNMENTS, data)], 1)


def look(cluster: Cluster) -> dict[tuple[str, int], tuple[int, ...]] | None:
    """The controller looks at the node; what is in it afterwards."""
    node = cluster.tree.get(paths.REASSIGNMENTS)
    cluster.run(cluster.machine.reassignments_seen(None if node is None else paths.decode_reassignments(node.data)))
    node = cluster.tree.get(paths.REASSIGNMENTS)
    return None if node is None else paths.decode_reassignments(node.data)


def test_the_node_of_old_tools_shrinks_as_partitions_arrive() -> None:
    cluster = cluster_of(1, 2)
    cluster.create("u", {0: (1, 2)})
    cluster.create("there", {0: (1, 2)})
    wish(cluster, t=(3, 2), u=(9, 2), ghost=(1,), there=(1, 2))
    assert look(cluster) == {("t", 0): (3, 2), ("u", 0): (9, 2)}, "what cannot be is dropped; 9 need not live"
    epoch = cluster.state("t")[1]
    assert look(cluster) == {("t", 0): (3, 2), ("u", 0): (9, 2)}
    assert cluster.state("t")[1] == epoch, "our own writes to the node are no new wishes"
    cluster.catch_up()
    assert look(cluster) == {("u", 0): (9, 2)}
    assert cluster.reassign({("u", 0): None}) == {("u", 0): 0}
    assert look(cluster) is None, "the API has the last word"
    check(cluster, "end")


def test_the_node_of_old_tools_is_taken_up_by_a_new_controller() -> None:
    cluster = cluster_of(1, 2)
    wish(cluster, t=(3, 2))
    cluster.fail_over()
    assert moved(cluster) == ((3, 2, 1), (3,), (1,))
    cluster.fail_over()
    cluster.catch_up()
    assert moved(cluster) == ((3, 2), (), ())
    assert cluster.tree.get(paths.REASSIGNMENTS) is None


def test_a_node_with_nothing_that_can_be_done() -> None:
    cluster = cluster_of(1, 2)
    wish(cluster, ghost=(1,))
    assert look(cluster) is None

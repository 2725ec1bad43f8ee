"""The controller machine in a cluster of several brokers: topics, dead and returning brokers, deletions, elections."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from barnabas.kproto import ErrorCode
from barnabas.replication.controller.writes import STATES_PER_COMMIT
from barnabas.replication.messages.effects import Commit
from barnabas.replication.planning.topics import NewTopic
from barnabas.replication.store.store import Create, Op, VersionMoved
from barnabas.replication.tests.controller.controller_rig import Cluster, brokers, check, told
from barnabas.replication.tree import paths
from barnabas.replication.tree.nodes import SeenTopic
from barnabas.replication.tree.paths import Assignment, StateNode, TopicNode
from barnabas.replication.values.image import PartitionImage


def test_a_topic_is_one_commit_and_all_brokers_are_notified() -> None:
    cluster = Cluster()
    before = cluster.tree.zxid
    cluster.create("t", {0: (1, 2), 1: (2, 3)})
    assert cluster.tree.zxid == before + 1
    assert told(cluster) == [
        "1: t-0 led by 1 epoch 0 isr [1, 2] new",
        "2: t-0 led by 1 epoch 0 isr [1, 2] new",
        "2: t-1 led by 2 epoch 0 isr [2, 3] new",
        "3: t-1 led by 2 epoch 0 isr [2, 3] new",
    ]
    assert cluster.answers == {"t": None}
    assert {len(image.topics["t"].partitions) for image in cluster.images.values()} == {2}
    assert sorted(cluster.images) == [1, 2, 3]


def test_a_dead_leader_is_replaced_and_leaves_the_isr() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3), 1: (3, 1, 2)})
    told(cluster)
    cluster.alive(2, 3)
    assert cluster.state("t", 0) == (2, 1, (2, 3))
    assert cluster.state("t", 1) == (3, 1, (3, 2)), "an epoch of its own for a mere loss of a follower"
    assert told(cluster) == [
        "2: t-0 led by 2 epoch 1 isr [2, 3]",
        "2: t-1 led by 3 epoch 1 isr [3, 2]",
        "3: t-0 led by 2 epoch 1 isr [2, 3]",
        "3: t-1 led by 3 epoch 1 isr [3, 2]",
    ]
    cluster.alive(1, 2, 3)
    assert cluster.state("t", 0) == (2, 1, (2, 3)), "a broker that is back joins the ISR when it has caught up"
    assert told(cluster) == ["1: t-0 led by 2 epoch 1 isr [2, 3]", "1: t-1 led by 3 epoch 1 isr [3, 2]"]
    assert cluster.images[1].topics["t"].partitions[0].leader == 2


def test_the_last_in_sync_replica_is_waited_for() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2)})
    cluster.alive(2, 3)
    cluster.alive(3)
    assert cluster.state("t") == (-1, 2, (2,))
    assert cluster.images[3].topics["t"].partitions[0].leader == -1
    cluster.alive(1, 3)
    assert cluster.state("t") == (-1, 2, (2,)), "1 is behind: no unclean election"
    cluster.alive(1, 2, 3)
    assert cluster.state("t") == (2, 3, (2,))


@pytest.mark.parametrize("how", ["topic", "broker", "later"])
def test_unclean_election(how: str) -> None:
    cluster = Cluster(unclean=how == "broker")
    allowed = {"unclean.leader.election.enable": "true"}
    cluster.create("t", {0: (1, 2)}, allowed if how == "topic" else {})
    cluster.alive(2, 3)
    cluster.alive(3)
    cluster.alive(1, 3)
    if how == "later":
        assert cluster.state("t")[0] == -1
        cluster.run(cluster.machine.config_changed("t", allowed))
    leader, _, isr = cluster.state("t")
    assert (leader, isr) == (1, (1,))
    partition = cluster.machine.image.partition("t", 0)
    assert partition is not None
    assert partition.recovering
    node = cluster.tree.get(paths.state("t", 0))
    assert node is not None
    assert b'"leader_recovery_state":1' in node.data


def test_a_restarted_broker_gets_new_epochs_even_if_no_other_can_lead() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1,), 1: (1, 2), 2: (2, 1), 3: (2,)})
    cluster.alive(1, 2, 3, epochs={1: 50})
    assert cluster.state("t", 0) == (1, 2, (1,))
    assert cluster.state("t", 1) == (2, 1, (2,))
    assert cluster.state("t", 2) == (2, 1, (2,))
    assert cluster.state("t", 3) == (2, 0, (2,))
    assert cluster.led[1]["t", 0].leader_epoch == 2


@pytest.mark.parametrize("trouble", ["none", "the leader wrote the ISR", "unanswered", "unanswered, but done"])
@pytest.mark.parametrize("new_term", [False, True])
def test_who_restarted_does_not_lead_on_whatever_becomes_of_the_write(trouble: str, new_term: bool) -> None:
    """In its old epoch it would lead followers that have records which it may have lost."""
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3), 1: (1,)})
    told(cluster)
    image = cluster.machine.image
    if trouble == "the leader wrote the ISR":
        cluster.shrink("t", 0, (1, 3))  # which the controller has not heard of
    answers = iter([{"unanswered": "before", "unanswered, but done": "after"}.get(trouble, "")])
    cluster.lost = lambda: next(answers, "")
    if new_term:
        cluster.machine = cluster.new_term(image, epoch=2)
        cluster.run(cluster.machine.elected(restarted=[1]))
    else:
        cluster.alive(1, 2, 3, epochs={1: 50})
    leader, _, isr = cluster.state("t", 0)
    assert (leader, isr) == ((3, (3,)) if trouble == "the leader wrote the ISR" else (2, (2, 3)))
    assert cluster.state("t", 1)[:2] >= (1, 1)
    assert not [line for line in told(cluster) if "led by 1 epoch 0" in line]


def test_a_new_term_takes_over_what_is_there() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2), 1: (2, 3), 2: (3, 1)})
    image = cluster.machine.image
    told(cluster)
    cluster.live = brokers(1, 2)
    cluster.machine = cluster.new_term(image.with_brokers(cluster.live), epoch=2)
    cluster.run(cluster.machine.elected())
    assert cluster.state("t", 0) == (1, 0, (1, 2))
    assert cluster.state("t", 1) == (2, 1, (2,))
    assert cluster.state("t", 2) == (1, 1, (1,))
    trace = told(cluster)
    assert len(trace) == len(set(trace)), "nothing is told twice"
    assert "1: t-0 led by 1 epoch 0 isr [1, 2]" in trace
    node = cluster.tree.get(paths.state("t", 2))
    assert node is not None
    assert b'"controller_epoch":2' in node.data


def test_a_new_term_replaces_leaders_that_restarted_unnoticed() -> None:
    """Registered after the state was written: such a broker may have lost records that count as committed."""
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3), 1: (2, 1, 3), 2: (1, 2), 3: (1,)})
    cluster.machine = cluster.new_term(cluster.machine.image, epoch=2)
    returned = {("t", 0): {1}, ("t", 1): {1}, ("t", 2): {1, 2}, ("t", 3): {1}}
    cluster.run(cluster.machine.elected(returned=returned))
    assert cluster.state("t", 0) == (2, 1, (2, 3))
    assert cluster.state("t", 1) == (2, 1, (2, 3))
    assert cluster.state("t", 2) == (1, 1, (1, 2)), "all were away"
    leader, epoch, isr = cluster.state("t", 3)
    assert (leader, isr) == (1, (1,))
    assert epoch > 0


def test_a_leader_that_wrote_its_isr_is_not_overwritten() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2, 3)})
    cluster.shrink("t", 0, (1, 3))  # 2 fell behind, which the controller has not heard of
    cluster.alive(2, 3)
    assert "refused /brokers/topics/t/partitions/0/state" in told(cluster)
    assert cluster.state("t") == (3, 1, (3,))


def test_states_that_another_controller_made_are_taken_over() -> None:
    cluster = Cluster()
    seen = SeenTopic("t", TopicNode(b"i" * 16, {0: Assignment((1, 2)), 1: Assignment((2, 3))}), 0, {})
    state = paths.encode_state(StateNode(2, 4, 0, (2, 1)))
    cluster.tree.apply(
        [
            Create(paths.topic("t"), paths.encode_topic(seen.node)),
            Create(paths.partitions("t")),
            Create(paths.partition("t", 0)),
            Create(paths.state("t", 0), state),
        ],
        1,
    )
    cluster.run(cluster.machine.topics_seen([seen]))
    assert cluster.state("t", 0) == (2, 4, (2, 1))
    assert cluster.state("t", 1) == (2, 0, (2, 3))
    assert cluster.led[1]["t", 0].leader == 2


def test_a_topic_without_live_replicas_waits() -> None:
    cluster = Cluster()
    seen = SeenTopic("t", TopicNode(b"i" * 16, {0: Assignment((8, 9)), 1: Assignment((1,))}), 0, {})
    cluster.tree.apply([Create(paths.topic("t"), paths.encode_topic(seen.node))], 1)
    cluster.run(cluster.machine.topics_seen([seen]))
    assert cluster.state("t", 0) == (-1, -1, ())
    assert [p.has_state for p in cluster.images[2].topics["t"].partitions] == [False, True]
    cluster.alive(1, 2, 3, 9)
    assert cluster.state("t", 0) == (9, 0, (9,))
    assert cluster.images[2].topics["t"].partitions[0].leader == 9


def test_the_states_of_a_large_topic_are_decided_a_commit_at_a_time() -> None:
    cluster = Cluster()
    new = NewTopic("t", b"t" * 16, dict.fromkeys(range(2 * STATES_PER_COMMIT + 3), (1, 2)), {})
    cluster.queue.extend(cluster.machine.create(new, "t"))
    most = 0
    while cluster.queue:
        cluster.step()
        most = max(most, sum(len(effect.states) for effect in cluster.queue if isinstance(effect, Commit)))
    assert most == STATES_PER_COMMIT
    assert cluster.answers == {"t": None}
    assert all(partition.leader == 1 for partition in cluster.images[3].topics["t"].partitions)
    assert len(cluster.images[3].topics["t"].partitions) == len(new.assignments)


def test_a_large_topic_that_is_deleted_while_its_states_are_decided() -> None:
    cluster = Cluster()
    new = NewTopic("t", b"t" * 16, dict.fromkeys(range(2 * STATES_PER_COMMIT), (1, 2)), {})
    cluster.queue.extend(cluster.machine.create(new, "t"))
    while not cluster.images or "t" not in cluster.images[1].topics:
        cluster.step()
    cluster.queue.extendleft(cluster.machine.delete("t", "gone"))
    cluster.run()
    assert cluster.answers == {"t": None, "gone": None}
    assert "t" not in cluster.machine.image.topics
    assert cluster.tree.children("/brokers/topics") == []


class Counted(set[tuple[int, int]]):
    """A set that counts how often it is looked through."""

    looks = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.looks += 1
        return super().__iter__()


def test_what_a_broker_has_deleted_is_looked_through_once_for_each_topic() -> None:
    """Or each of a topic's partitions would look at all that a dead broker has not confirmed."""
    cluster = Cluster()
    cluster.create("t", dict.fromkeys(range(50), (1, 2)))
    cluster.create("u", dict.fromkeys(range(50), (1, 2)))
    cluster.alive(1)
    cluster.silent = {1}
    cluster.run(cluster.machine.delete("t", "t gone"))
    cluster.run(cluster.machine.delete("u", "u gone"))

    deletions = cluster.machine.state.deletions.values()
    waiting = [Counted(deletion.waiting) for deletion in deletions]
    for deletion, counted in zip(deletions, waiting, strict=True):
        deletion.waiting = counted
    cluster.run(cluster.machine.replicas_stopped(1, [(topic, index) for topic in "tu" for index in range(50)]))
    assert [counted.looks for counted in waiting] == [1, 1]
    assert cluster.answers == {"t": None, "u": None, "t gone": None, "u gone": None}


def test_deletion_waits_for_every_replica() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2), 1: (2, 3)})
    cluster.alive(1, 2)
    told(cluster)
    cluster.run(cluster.machine.delete("t", "one"))
    assert told(cluster) == ["1: delete t-0", "2: delete t-0", "2: delete t-1"]
    assert "t" in cluster.machine.deleting
    assert all("t" not in image.topics for image in cluster.images.values())
    assert cluster.answers["one"] is None, "whoever asked need not wait for a dead broker"
    cluster.run(cluster.machine.delete("t", "two"))
    assert cluster.tree.get(paths.topic("t"))
    cluster.alive(1)
    assert cluster.state("t", 1)[1] == 1, "no elections for what is going"
    cluster.alive(1, 2, 3)
    assert told(cluster) == ["3: delete t-1", "remove t"]
    assert cluster.answers == {"t": None, "one": None, "two": None}
    assert not cluster.machine.deleting
    assert cluster.tree.children("/brokers/topics") == []
    assert cluster.tree.children("/admin/delete_topics") == []


def test_a_new_term_goes_on_with_deletions() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2)})
    cluster.create("u", {0: (1, 2)})
    cluster.silent = {2}
    cluster.run(cluster.machine.delete("t", "lost with the term"))
    told(cluster)
    cluster.silent = set()
    cluster.machine = cluster.new_term(cluster.machine.image, epoch=2)
    cluster.run(cluster.machine.elected(cluster.tree.children("/admin/delete_topics")))
    trace = told(cluster)
    assert trace[:3] == ["1: delete t-0", "2: delete t-0", "remove t"] or "remove t" in trace
    assert not any("t-0 led" in line for line in trace), "what is going is not led again"
    assert sorted(cluster.machine.image.topics) == ["u"]


def test_names_that_are_taken_while_a_topic_is_created() -> None:
    cluster = Cluster()
    new = NewTopic("a.b", b"i" * 16, {0: (1,)}, {})
    effects = cluster.machine.create(new, "token")
    assert cluster.machine.reserved == {"a_b": "a.b"}
    cluster.run(effects)
    assert cluster.machine.reserved == {}
    cluster.run(cluster.machine.create(new, "again"))
    error = cluster.answers["again"]
    assert error is not None
    assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert cluster.machine.reserved == {}


def test_preferred_elections() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2), 1: (2, 1), 2: (3, 1)})
    cluster.alive(2, 3)
    cluster.alive(1, 2, 3)
    asked = [("t", 0), ("t", 1), ("t", 0), ("no", 0), ("t", 9)]

    def elect(unclean: bool = False) -> dict[tuple[str, int], int]:
        outcome, effects = cluster.machine.elect(asked, unclean=unclean)
        cluster.run(effects)
        return {key: 0 if error is None else int(error.code) for key, error in outcome.items()}

    assert elect() == {("t", 0): 80, ("t", 1): 84, ("no", 0): 3, ("t", 9): 3}, "1 is not in sync"
    cluster.shrink("t", 0, (2, 1))
    assert elect()["t", 0] == 80, "the controller does not know yet"
    cluster.machine.state.image = cluster.machine.image.with_topics(
        [
            cluster.machine.image.topics["t"].with_partitions(
                [PartitionImage(0, 2, 1, 2, (1, 2), (2, 1))],
            )
        ]
    )
    assert elect() == {("t", 0): 0, ("t", 1): 84, ("no", 0): 3, ("t", 9): 3}
    assert cluster.state("t", 0) == (1, 2, (2, 1))
    assert elect(unclean=True) == {("t", 0): 84, ("t", 1): 84, ("no", 0): 3, ("t", 9): 3}


def test_a_store_that_always_refuses_is_not_asked_for_ever() -> None:
    cluster = Cluster()
    cluster.create("t", {0: (1, 2)})
    cluster.refusals.extend(VersionMoved(paths.state("t", 0)) for _ in range(1000))
    cluster.alive(2, 3)
    assert len(told(cluster)) < 60
    cluster.refusals.clear()
    cluster.alive(2)
    assert cluster.state("t")[0] == 2, "the next event tries again"


@pytest.mark.parametrize("seed", range(60))
def test_random_lives(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster((1, 2, 3, 4))
    epoch = 100
    made = 0
    for step in range(60):
        where = f"seed {seed}, step {step}"
        kind = rng.randrange(8)
        live = list(cluster.live)
        topics = [name for name in cluster.machine.image.topics if name not in cluster.machine.deleting]
        if kind <= 2:
            wanted = [broker for broker in (1, 2, 3, 4) if rng.random() < 0.7]
            epochs = {}
            for broker in wanted:
                if broker not in cluster.live or rng.random() < 0.2:
                    epoch += 1
                    epochs[broker] = epoch
            cluster.alive(*wanted, epochs=epochs)
        elif kind <= 4 and live:
            made += 1
            replicas = rng.sample((1, 2, 3, 4), 3)
            if not set(replicas) & set(live):
                continue
            cluster.create(f"t{made}", {index: tuple(rng.sample(replicas, 2)) for index in range(rng.randrange(1, 4))})
        elif kind == 5 and topics:
            name = rng.choice(topics)
            count = len(cluster.machine.image.topics[name].partitions)
            cluster.run(cluster.machine.expand(name, {count: tuple(rng.sample((1, 2, 3, 4), 2))}, f"more {step}"))
        elif kind == 6 and topics:
            cluster.run(cluster.machine.delete(rng.choice(topics), f"delete {step}"))
        elif kind == 7 and topics:
            name = rng.choice(topics)
            leader, _, isr = cluster.state(name)
            if leader > 0 and len(isr) > 1:
                cluster.shrink(name, 0, (leader,))
                cluster.run(cluster.machine.states_seen({(name, 0): cluster.stored(name)}))
        check(cluster, where)


def test_no_op_is_without_guard() -> None:
    """The guard comes first in whatever the machine writes."""
    cluster = Cluster()
    ops: list[tuple[Op, ...]] = []
    for effects in (
        cluster.machine.create(NewTopic("t", b"i" * 16, {0: (1,)}, {}), None),
        cluster.machine.deletions_seen(["never"]),
    ):
        ops += [effect.ops for effect in effects if isinstance(effect, Commit)]
    assert len(ops) == 2
    assert all(one[0] == cluster.machine.guard for one in ops)

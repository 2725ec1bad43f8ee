"""The controller's parts, each alone over a `ClusterState` that the test makes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.controller.deletion import Deletions
from barnabas.replication.controller.election import Elections
from barnabas.replication.controller.in_sync import InSyncReplicas, ProposedState
from barnabas.replication.controller.messages import Messages
from barnabas.replication.controller.outcomes import Outcomes
from barnabas.replication.controller.reassignment import Reassignments
from barnabas.replication.controller.reassignments_node import ReassignmentsNode
from barnabas.replication.controller.state import BrokerChanges, ClusterState, Deletion
from barnabas.replication.controller.topics import Topics
from barnabas.replication.controller.writes import STATES_PER_COMMIT, Writes
from barnabas.replication.messages.effects import (
    Answer,
    Commit,
    Effect,
    LeaderAndIsr,
    PartitionChange,
    Remove,
    SendMessage,
    StopReplica,
    UpdateMetadata,
    Work,
)
from barnabas.replication.planning.topics import NewTopic
from barnabas.replication.store.store import ConnectionLost, Delete, NodeExists, Set, VersionMoved
from barnabas.replication.tests.controller.controller_rig import brokers
from barnabas.replication.tree import paths
from barnabas.replication.values.image import BrokerImage, Image, PartitionImage, TopicImage

ID = b"i" * 16


def led(index: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> PartitionImage:
    """A partition in its first leader epoch."""
    return PartitionImage(index, leader, 0, 0, replicas, replicas if isr is None else isr)


def state_with(*partitions: PartitionImage, live: tuple[int, ...] = (1, 2, 3)) -> ClusterState:
    """A state with the topic 't'."""
    image = Image().with_brokers(brokers(*live)).with_topics([TopicImage("t", ID, partitions)])
    return ClusterState.begin(1, 7, 3, image)


def tells(effects: list[Effect]) -> list[tuple[int, type]]:
    """Who hears what."""
    return [(effect.broker, type(effect.message)) for effect in effects if isinstance(effect, SendMessage)]


def written(effects: list[Effect]) -> list[PartitionImage]:
    """The states that are to be written."""
    return [s.partition for effect in effects if isinstance(effect, Commit) for s in effect.states]


def elections_of(state: ClusterState, *, unclean: bool = False) -> Elections:
    return Elections(state, Messages(state), Writes(state), lambda config: unclean)


# -- ClusterState ----------------------------------------------------------------------------------------------------


def test_brokers_that_are_gone_or_restarted_are_neither_stopping_nor_without_directories() -> None:
    state = state_with(led(0, 1, (1, 2, 3)))
    state.shutting_down = {1, 2}
    state.offline = {1: {("t", 0)}, 3: {("t", 0)}}
    assert list(state.eligible(("t", 0))) == []
    assert list(state.online(("t", 0))) == [2]
    changes = state.replace_brokers({2: BrokerImage(2, (), epoch=1), 3: BrokerImage(3, (), epoch=9)})
    assert changes == BrokerChanges(started=(), died=(1,), restarted=(3,))
    assert (state.shutting_down, state.offline) == ({2}, {})
    assert list(state.eligible(("t", 0))) == [3]
    assert state.replace_brokers(dict(state.image.brokers)) is None


def test_a_topic_whose_deletion_has_begun_is_not_found() -> None:
    state = state_with(led(0, 1, (1, 2)))
    assert [change.key for change in state.known([("t", 0), ("t", 1), ("u", 0)])] == [("t", 0)]
    state.deletions["t"] = Deletion(set(), ["token"])
    assert state.known([("t", 0)]) == state.everything() == []
    assert list(state.deleting) == ["t"]
    assert state.remove_topics(["t"]) == ["token"]
    assert not state.image.topics


# -- Messages --------------------------------------------------------------------------------------------------------


def test_replicas_are_notified_first_and_a_stopping_broker_does_not_follow() -> None:
    state = state_with(led(0, 1, (1, 2)))
    state.shutting_down = {2}
    effects = Messages(state).announce(state.everything())
    assert tells(effects) == [(1, LeaderAndIsr), (1, UpdateMetadata), (2, UpdateMetadata), (3, UpdateMetadata)]
    update = effects[-1]
    assert isinstance(update, SendMessage)
    assert isinstance(update.message, UpdateMetadata)
    assert update.message.controller_epoch == 7
    assert update.message.partitions[0].partition.offline_replicas == (2,)


def test_the_dead_are_not_spoken_to() -> None:
    state = state_with(led(0, 1, (1, 9)))
    assert [broker for broker, _ in tells(Messages(state).announce(state.everything()))] == [1, 1, 2, 3]
    assert Messages(state).stop(9, []) == []


# -- Writes ----------------------------------------------------------------------------------------------------------


def test_many_states_are_several_commits_of_one_work() -> None:
    state = state_with(*(led(index, 1, (1, 2)) for index in range(STATES_PER_COMMIT + 1)))
    work = Work(lambda change: None, lambda changes: [])
    effects = Writes(state).commits(state.everything(), work)
    commits = [effect for effect in effects if isinstance(effect, Commit)]
    assert [len(commit.states) for commit in commits] == [STATES_PER_COMMIT, 1]
    assert work.outstanding == 2
    assert all(commit.ops[0] == state.guard for commit in commits)


def test_writers_of_a_topics_node_take_turns() -> None:
    state = state_with()
    writes = Writes(state)
    order: list[str] = []

    def writer(name: str) -> list[Effect]:
        order.append(name)
        return []

    writes.in_turn("t", lambda: writer("first"))
    writes.in_turn("t", lambda: writer("second"))
    writes.in_turn("u", lambda: writer("other"))
    assert order == ["first", "other"]
    writes.next_in_turn("t")
    assert order == ["first", "other", "second"]
    writes.next_in_turn("t")
    assert list(state.assigning) == ["u"]


# -- Elections -------------------------------------------------------------------------------------------------------


def test_which_replica_leads_next() -> None:
    state = state_with(led(0, 1, (1, 2, 3), isr=(1, 3)), live=(2, 3))
    (change,) = state.everything()
    after = elections_of(state).next(change)
    assert after is not None
    assert (after.partition.leader, after.partition.isr) == (3, (3,))
    assert (after.partition.leader_epoch, after.partition.partition_epoch) == (1, 1)
    assert elections_of(state).next(replace(change, partition=led(0, 2, (2, 3)))) is None


def test_unclean_elections_as_the_settings_allow() -> None:
    state = state_with(led(0, 1, (1, 2), isr=(1,)), live=(2,))
    for unclean, leader in ((False, -1), (True, 2)):
        (after,) = elections_of(state, unclean=unclean).due(state.everything())
        assert after.partition.leader == leader


def test_an_election_that_is_not_needed_has_its_answer_at_once() -> None:
    state = state_with(led(0, 1, (1, 2)))
    outcome, effects = elections_of(state).elect([("t", 0)], unclean=False, token="token")
    error = outcome["t", 0]
    assert error is not None
    assert error.code == ErrorCode.ELECTION_NOT_NEEDED
    assert effects == [Answer("token")]


# -- Deletions -------------------------------------------------------------------------------------------------------


def test_a_deletion_is_done_when_all_replicas_have_confirmed() -> None:
    state = state_with(led(0, 1, (1, 2)))
    deletions = Deletions(state, Messages(state))
    (request,) = deletions.delete("t", "token")
    assert isinstance(request, Commit)
    effects = deletions.written([request])
    assert [broker for broker, message in tells(effects) if message is StopReplica] == [1, 1, 2, 2]
    assert deletions.replicas_stopped(1, [("t", 0)]) == []
    assert deletions.replicas_stopped(2, [("t", 0)]) == [Remove("t")]
    assert deletions.removed(["t"]) == [Answer("token")]


def test_a_deletion_waits_for_a_move() -> None:
    state = state_with(led(0, 1, (1, 2)).reassigned_to((1, 3)))
    deletions = Deletions(state, Messages(state))
    assert deletions.seen(["t"]) == []
    assert (list(state.held_deletions), list(state.deletions)) == (["t"], [])
    state.apply([PartitionChange("t", ID, led(0, 1, (1, 3)))])
    assert deletions.resume()
    assert (list(state.held_deletions), list(state.deletions)) == ([], ["t"])


def test_without_delete_topic_enable_the_request_is_dropped() -> None:
    state = state_with(led(0, 1, (1, 2)))
    (commit,) = Deletions(state, Messages(state), enabled=False).seen(["t"])
    assert isinstance(commit, Commit)
    assert commit.ops[1:] == (Delete(paths.topic_deletion("t")),)


# -- Reassignments ---------------------------------------------------------------------------------------------------


def test_a_move_begins_with_one_commit_of_node_and_state() -> None:
    state = state_with(led(0, 1, (1, 2)))
    reassignments = Reassignments(state, Messages(state), Writes(state))
    outcome, effects = reassignments.reassign({("t", 0): (3, 2), ("t", 5): (1,)}, "token")
    (commit,) = effects
    assert isinstance(commit, Commit)
    assert [op.path for op in commit.ops[1:]] == [paths.topic("t"), paths.state("t", 0)]
    assert outcome["t", 0] is None
    assert isinstance(outcome["t", 5], KafkaError)
    assert list(state.assigning) == ["t"]


def test_a_move_ends_when_the_target_is_in_sync() -> None:
    moving = replace(led(0, 1, (1, 2)).reassigned_to((3, 2)), isr=(1, 2))
    state = state_with(moving)
    reassignments = Reassignments(state, Messages(state), Writes(state))
    assert [change.key for change in reassignments.reassigning(None)] == [("t", 0)]
    assert reassignments.finish([("t", 0)]) == []
    state.apply([PartitionChange("t", ID, replace(moving, isr=(1, 2, 3)))])
    (after,) = written(reassignments.finish([("t", 0)]))
    assert (after.leader, after.replicas, set(after.isr)) == (3, (3, 2), {2, 3})
    assert reassignments.finish([("t", 0)]) == [], "it is being written"


def test_the_node_of_old_tools_is_written_once_at_a_time() -> None:
    state = state_with(led(0, 1, (1, 2)), led(1, 1, (1, 2)))
    node = ReassignmentsNode(state)
    wanted = {("t", 0): (1, 2), ("t", 1): (1, 2), ("gone", 0): (1,)}
    assert node.seen(wanted) == wanted
    assert node.seen(wanted) == {}
    (first,) = node.arrived([("gone", 0)])
    assert isinstance(first, Commit)
    assert first.ops[1:] == (
        Set(paths.REASSIGNMENTS, paths.encode_reassignments({("t", 0): (1, 2), ("t", 1): (1, 2)})),
    )
    assert node.arrived([("t", 0)]) == []
    assert node.drop([("t", 1)]) == []
    assert first.work is not None
    (last,) = first.work.done()
    assert isinstance(last, Commit)
    assert last.ops[1:] == (Delete(paths.REASSIGNMENTS),)


# -- InSyncReplicas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("isr", "outcome"), [((1, 3), (1, 3)), ((1, 9), ErrorCode.INVALID_REQUEST)])
def test_what_a_leader_proposes(isr: tuple[int, ...], outcome: tuple[int, ...] | ErrorCode) -> None:
    state = state_with(led(0, 1, (1, 2, 3)))
    messages, writes = Messages(state), Writes(state)
    elections, reassignments = elections_of(state), Reassignments(state, messages, writes)
    in_sync = InSyncReplicas(state, messages, writes, elections, reassignments)
    found, effects = in_sync.alter_partition(1, 1, {("t", 0): ProposedState(0, 0, dict.fromkeys(isr, -1))}, "token")
    judged = found["t", 0]
    if isinstance(judged, ErrorCode):
        assert (judged, effects) == (outcome, [Answer("token")])
    else:
        assert judged.isr == outcome
        assert written(effects) == [judged]


# -- Topics and Outcomes ---------------------------------------------------------------------------------------------


def parts_of(state: ClusterState) -> tuple[Topics, Outcomes]:
    messages, writes, elections = Messages(state), Writes(state), elections_of(state)
    deletions, reassignments = Deletions(state, messages), Reassignments(state, messages, writes)
    topics = Topics(state, messages, writes, elections, deletions, Random(1))
    return topics, Outcomes(state, messages, writes, topics, deletions, reassignments)


def test_a_created_topic_is_in_the_image_when_the_store_has_it() -> None:
    state = state_with()
    topics, outcomes = parts_of(state)
    (commit,) = topics.create(NewTopic("new", b"n" * 16, {0: (2, 3)}, {}), "token")
    assert isinstance(commit, Commit)
    assert topics.reserved == {"new": "new"}
    assert "new" not in state.image.topics
    effects = outcomes.committed([commit])
    assert state.image.topics["new"].partitions[0].leader == 2
    assert tells(effects)[:2] == [(2, LeaderAndIsr), (3, LeaderAndIsr)]
    assert effects[-1] == Answer("token")
    assert topics.reserved == {}


def test_a_creation_without_answer_that_is_there_when_written_again_counts_as_ours() -> None:
    state = state_with()
    topics, outcomes = parts_of(state)
    (commit,) = topics.create(NewTopic("new", b"n" * 16, {0: (2, 3)}, {}), "token")
    assert isinstance(commit, Commit)
    (again,) = outcomes.refused(commit, ConnectionLost(), {})
    assert again == replace(commit, attempt=1)
    assert isinstance(again, Commit)
    assert topics.reserved == {"new": "new"}
    assert outcomes.refused(again, NodeExists(paths.topic("new")), {}) == [Answer("token")]


def test_a_refused_state_is_decided_again_from_what_is_in_the_store() -> None:
    state = state_with(led(0, 1, (1, 2, 3)), live=(2, 3))
    _, outcomes = parts_of(state)
    elections = elections_of(state)
    (commit,) = elections.write(elections.due(state.everything()))
    assert isinstance(commit, Commit)
    assert [partition.leader for partition in written([commit])] == [2]
    shrunk = paths.StateNode(1, 0, 1, (1, 3))
    effects = outcomes.refused(commit, VersionMoved(paths.state("t", 0)), {("t", 0): (shrunk, 1)})
    assert [(partition.leader, partition.isr) for partition in written(effects)] == [(3, (3,))]

"""Random members of a streams group, over a log that refuses, lags and loses what was not committed, answers that are
lost, members that crash, topics that come, grow and go; the seed is the bug report.

After each step (with the numbers that these invariants have in our notes):

- 17: no task is active, or being revoked as active, at two members; no process has a task in two roles, or twice;
- 18: member epoch ≤ target epoch ≤ group epoch, and none of them falls while the member or the group lives; UNREVOKED
  exactly while something is revoked; what is assigned is not being revoked; STABLE at the target's epoch has the
  target;
- 20: the topology that was validated is the group's or none, and the group's does not change while it lives;
- 21: each active task has the epoch at which it was given, which is not above the member's; a commit with an older
  epoch passes exactly if all its tasks were given by then;
- 16: a target that was just made gives each task to one member if the topology was ready, else none;
- what is in memory is what replaying the log gives; each request gets one answer.

In the end the faults stop: within some rounds of heartbeats of honest members the group is Stable (19). Offsets stay
when an empty group becomes classic and comes back (22). More seeds: BARNABAS_STREAMS_SEEDS.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from barnabas.coordinator.group.config import GroupSettings
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.streams.config import StreamsGroupConfig, StreamsSettings
from barnabas.coordinator.group.streams.configured import configure
from barnabas.coordinator.group.streams.group import StreamsGroup
from barnabas.coordinator.group.streams.reconcile import MemberState
from barnabas.coordinator.group.streams.tasks import HeldTasks, Tasks, each_task
from barnabas.coordinator.tests.streams_groups.streams_group_kit import StreamsKit, shown, subtopology, topology
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import StreamsGroupHeartbeatResponse

E = ErrorCode
SEEDS = int(os.environ.get("BARNABAS_STREAMS_SEEDS", "25"))
LOG_ERRORS = (E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.MESSAGE_TOO_LARGE)
APPLICATION = topology(
    subtopology("0", ["in"], writes=["r"], changelogs=["c0"]),
    subtopology("1", ["side"], reads=["r"], changelogs=["c1"]),
    subtopology("2", ["in"]),
)


class Client:
    """A member that does what it is told, as Kafka Streams: it closes what it is not told to have, some time later."""

    def __init__(self, name: str, process: str) -> None:
        self.name = name
        self.process = process
        self.forget()

    def forget(self) -> None:
        """It starts over, or its answers were errors that make it."""
        self.epoch = 0
        self.owned = ["", "", ""]
        self.told: list[str] | None = None
        self.must_say_all = False

    def close(self) -> None:
        """It has got where it was told to be."""
        if self.told is not None:
            self.owned, self.told, self.must_say_all = self.told, None, True

    def hear(self, answer: StreamsGroupHeartbeatResponse) -> None:
        if answer.error_code in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND):
            self.forget()
        elif answer.error_code != E.NONE:
            self.must_say_all = True
        else:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.told = [shown(answer.active_tasks), shown(answer.standby_tasks), shown(answer.warmup_tasks)]


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        config = StreamsGroupConfig(
            initial_rebalance_delay_ms=rng.choice((0, 3_000)),
            assignment_interval_ms=rng.choice((0, 1_000)),
            num_standby_replicas=rng.randrange(3),
            max_size=5,
        )
        self.kit = StreamsKit(config, side=2, **{"in": 3})
        self.clients = {name: Client(name, rng.choice(("P", "Q", f"own-{name}"))) for name in "abcde"}
        self.waiting: dict[int, str] = {}
        self.epochs: dict[str, int] = {}
        self.group_epochs = (0, 0)
        self.loads = self.lost = self.targets = 0
        self.at_target: tuple[int, int] = (0, 0)

    @property
    def group(self) -> StreamsGroup | None:
        group = self.kit.shard.groups.get("g")
        return group if isinstance(group, StreamsGroup) else None

    def step(self) -> None:
        rng, kit = self.rng, self.kit
        dice = rng.random()
        if dice < 0.5:
            self.beat(rng.choice(list(self.clients.values())))
        elif dice < 0.58:
            rng.choice(list(self.clients.values())).close()
        elif dice < 0.66:
            kit.advance(rng.choice((0.3, 1.0, 3.0, 20.0, 46.0)))
        elif dice < 0.74:
            self.move_topics()
        elif dice < 0.78:
            self.stray()
        elif dice < 0.8:
            rng.choice(list(self.clients.values())).forget()
        elif dice < 0.84:
            kit.refuse = rng.choice(LOG_ERRORS) if rng.random() < 0.5 else None
        elif dice < 0.9:
            kit.commit_lag = rng.random() < 0.4
            if not kit.commit_lag:
                kit.commit()
        elif dice < 0.92:
            kit.time_out_commits()
        elif dice < 0.95:
            kit.restart(lose_uncommitted=rng.random() < 0.5)
            self.loads += 1
            # Epochs that were not committed may come again.
            self.epochs.clear()
            self.group_epochs = (0, 0)
            self.at_target = (0, 0)
        elif dice < 0.97:
            self.other_kinds()
        else:
            kit.settings["g"] = StreamsSettings(GroupSettings(45_000, 5_000, 0), 0, rng.randrange(3))
        self.deliver()
        self.check()

    def beat(self, client: Client) -> None:
        rng, kit = self.rng, self.kit
        fields: dict[str, Any] = {}
        if client.epoch == 0:
            fields = {"topology": APPLICATION, "rebalance_timeout_ms": 10_000, "process_id": client.process}
            fields["owned"] = ""
        elif client.must_say_all or rng.random() < 0.1:
            fields["owned"] = client.owned
        epoch = client.epoch
        if epoch > 0 and rng.random() < 0.08:
            epoch, fields = -1, {}
        token = kit.send(client.name, epoch, **fields)
        self.waiting[token] = "" if epoch < 0 else client.name
        if epoch < 0:
            client.forget()
        elif "owned" in fields:
            client.must_say_all = False

    def stray(self) -> None:
        """What no honest client sends."""
        rng, kit = self.rng, self.kit
        name = rng.choice("abcdez")
        epoch = rng.choice((-1, 0, 1, 2, 9)) if name == "z" else rng.choice((1, 99))
        fields: dict[str, Any] = {"owned": rng.choice(["", "0_0", "1_1", "9_9"])}
        if rng.random() < 0.3:
            fields["topology"] = topology(epoch=rng.choice((-1, 0, 1)))
        self.waiting[kit.send(name, epoch, **fields)] = ""

    def deliver(self) -> None:
        """Answers reach their clients, or are lost."""
        for token in [token for token in self.waiting if token in self.kit.answers]:
            answer = self.kit.told(token)
            name = self.waiting.pop(token)
            client = self.clients.get(name)
            if client is None:
                continue
            if self.rng.random() < 0.1:
                self.lost += 1
                client.must_say_all = True
                continue
            if self.kit.wanted and self.rng.random() < 0.5:
                self.kit.make_topics()
            client.hear(answer)

    def move_topics(self) -> None:
        rng, kit = self.rng, self.kit
        name = rng.choice(("in", "side", "r", "c0", "c1"))
        topic = kit.topics.by_name.get(name)
        if topic is None:
            kit.set_topics(**{name: rng.randint(1, 4)})
        elif rng.random() < 0.4:
            kit.set_topics(**{name: topic.partition_count + 1})
        else:
            kit.set_topics(**{name: None})

    def other_kinds(self) -> None:
        """An empty group is taken by a classic member, deleted, or gets a commit."""
        rng, kit = self.rng, self.kit
        dice = rng.random()
        if dice < 0.4:
            kit.answer(kit.commit_offsets({("in", 0): rng.randrange(99)})) if not kit.commit_lag else None
        elif dice < 0.7:
            kit.run_all(kit.shard.delete_group("g", kit.token(), kit.now))
        elif self.group is not None and self.group.is_empty:
            kit.join(version=3)

    # -- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        group = self.group
        if group is None:
            self.epochs.clear()
            self.group_epochs = (0, 0)
            self.at_target = (0, 0)
            return
        assert group.target_epoch <= group.epoch
        assert self.group_epochs[0] <= group.epoch
        assert self.group_epochs[1] <= group.target_epoch
        self.group_epochs = (group.epoch, group.target_epoch)
        self.epochs = {name: epoch for name, epoch in self.epochs.items() if name in group.members}
        assert group.topology is not None
        assert group.topology.epoch == 0
        assert group.validated_epoch in (-1, group.topology.epoch)
        active: Counter[tuple[str, int]] = Counter()
        at_process: Counter[tuple[str, tuple[str, int]]] = Counter()
        for name, member in group.members.items():
            standing = member.standing
            assert self.epochs.get(name, 0) <= standing.epoch <= group.target_epoch
            self.epochs[name] = standing.epoch
            assert (standing.state is MemberState.UNREVOKED) == (not standing.revoking.is_empty)
            assert not standing.assigned.tasks.has_any(standing.revoking)
            if member.is_at(group.target_epoch) and standing.epoch > 1:
                assert standing.assigned.tasks == group.target.get(name, Tasks()), "it has the target of its epoch"
            for held in (standing.assigned, standing.revoking):
                active.update(each_task(held.active))
                for epochs in held.active.values():
                    assert all(epoch <= standing.epoch for epoch in epochs.values())
                for tasks in held:
                    at_process.update((member.metadata.process_id, task) for task in each_task(tasks))
            self.check_commits(group, name, standing.assigned)
            assert ("g", Due.HEARTBEAT, name) in self.kit.shard.store.deadlines
        assert not active or max(active.values()) == 1, active
        assert not at_process or max(at_process.values()) == 1, at_process
        self.check_target(group)

    def check_commits(self, group: StreamsGroup, name: str, held: HeldTasks) -> None:
        member = group.members[name]
        places = {("in", number): epoch for number, epoch in held.active.get("2", {}).items()}
        if not places or member.standing.epoch < 2:
            return
        epoch = self.rng.randrange(1, member.standing.epoch + 1)
        told = group.check_commit(epoch, name, None, self.kit.now, partitions=places)
        may = epoch == member.standing.epoch or all(since <= epoch for since in places.values())
        assert (told is None) == may, (name, epoch, places)

    def check_target(self, group: StreamsGroup) -> None:
        """A target that was just made."""
        made = (group.target_epoch, group.assigned_at_ms)
        if made == self.at_target or group.target_epoch < group.epoch or not group.members:
            return
        self.at_target = made
        self.targets += 1
        assert group.topology is not None
        names = group.topology.required_topics
        by_name = self.kit.topics.by_name
        if group.context.metadata_hash(names) != group.metadata_hash:
            return  # the topics have changed since
        configured = configure(
            group.topology, {name: by_name[name].partition_count for name in names if name in by_name}
        )
        members = {name: group.target[name] for name in group.members if name in group.target}
        assert members.keys() == group.members.keys()
        assert configured.is_ready == (group.validated_epoch == 0)
        if not configured.is_ready or configured.subtopologies is None:
            assert all(tasks.is_empty for tasks in members.values())
            return
        given = Counter(task for tasks in members.values() for task in each_task(tasks.active))
        wanted = {(key, number) for key, each in configured.subtopologies.items() for number in range(each.tasks)}
        assert given == Counter(wanted)
        most = -(-len(wanted) // len(members))
        assert all(sum(1 for _ in each_task(tasks.active)) <= most for tasks in members.values())
        processes = {group.members[name].metadata.process_id for name in members}
        replicas = dict(group.assignment_configs)["num.standby.replicas"]
        standbys = Counter(task for tasks in members.values() for task in each_task(tasks.standby))
        for key, each in configured.subtopologies.items():
            for number in range(each.tasks):
                assert standbys[key, number] == (min(int(replicas), len(processes) - 1) if each.is_stateful else 0)

    def check_replay(self) -> None:
        kit = self.kit
        kit.refuse = None
        before = kit.hard()
        kit.restart(lose_uncommitted=False)
        assert kit.hard() == before
        self.deliver()

    # -- the end ----------------------------------------------------------------------------------

    def heal(self) -> None:
        kit = self.kit
        self.check_replay()
        kit.refuse, kit.commit_lag = None, False
        kit.commit()
        self.deliver()
        kit.advance(100)  # who does not come back is gone
        kit.run_all(kit.shard.delete_group("g", kit.token(), kit.now))
        self.check()
        for name in ("in", "side"):
            if name not in kit.topics.by_name:
                kit.set_topics(**{name: 2})
        for name in ("r", "c0", "c1"):
            if name in kit.topics.by_name:
                kit.set_topics(**{name: None})
        honest = [self.clients[name] for name in "abc"]
        for client in honest:
            client.forget()
        self.rounds(honest, 12)
        group = self.group
        assert group is not None
        assert group.state_name == "Stable", group
        assert group.members.keys() == {"a", "b", "c"}
        length = len(kit.log)
        self.rounds(honest, 2)
        assert len(kit.log) == length, "at rest nothing is written"
        for client in honest:
            told = group.members[client.name].standing.assigned
            assert client.owned == [shown(tasks) for tasks in told], "each knows what it has"
        kit.answer(kit.commit_offsets({("in", 0): 7}, generation=group.members["a"].standing.epoch, member_id="a"))
        before = kit.committed()
        for client in honest:
            kit.beat(client.name, -1)
        kit.join(version=3)
        assert self.group is None
        assert kit.committed() == before
        kit.advance(300)
        assert kit.enter("a", topology=APPLICATION).error_code == E.NONE
        assert kit.committed() == before
        kit.restart()
        assert (self.group is not None, kit.committed()) == (True, before)

    def rounds(self, clients: list[Client], count: int) -> None:
        for _ in range(count):
            self.kit.advance(3)
            for client in clients:
                fields: dict[str, Any] = {"owned": client.owned} if client.epoch else {"owned": ""}
                if client.epoch == 0:
                    fields |= {"topology": APPLICATION, "rebalance_timeout_ms": 10_000, "process_id": client.process}
                answer = self.kit.beat(client.name, client.epoch, **fields)
                assert answer.error_code == E.NONE, answer
                client.hear(answer)
                client.close()
                if self.kit.wanted:
                    self.kit.make_topics()
            self.check()


def run(seed: int, steps: int = 150) -> Run:
    found = Run(seed)
    try:
        for number in range(steps):
            found.step()
            if number % 50 == 49:
                found.check_replay()
        found.heal()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return found


def test_random_members() -> None:
    runs = [run(seed) for seed in range(SEEDS)]
    assert sum(each.loads for each in runs) > 2 * SEEDS
    assert sum(each.lost for each in runs) > SEEDS
    assert sum(each.targets for each in runs) > 3 * SEEDS


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(10_000, 12_000, 1_000))
def test_more_random_members(first: int) -> None:
    for seed in range(first, first + 1_000):
        run(seed)

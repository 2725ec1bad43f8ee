"""Random members against a random coordinator, under virtual time; the seed is the bug report.

Members join, sync, heartbeat, commit, leave, crash, go silent and come back; the coordinator loses its partition at
any point and is loaded again, its log refuses writes, commits them late or never. After each step:

- every token got at most one answer, and those without one are known to the machine; in the end all have one;
- generations only rise while a coordinator lives, and never fall below one whose assignment was told to somebody;
- a generation has one leader, and an assignment that is told was made for this member and this generation;
- an offset whose commit was confirmed is never lost, one that was refused never appears;
- the machine's own books balance, and replaying the log gives the same hard state as having lived it.

In the end the faults stop, and the group must become stable with everybody who is still there.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest

from barnabas.coordinator import GroupConfig, GroupShard
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.classic.states import State
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.tests.kit import Kit
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupResponse, SyncGroupResponse

E = ErrorCode
LOG_ERRORS = [E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.MESSAGE_TOO_LARGE]
START_OVER = (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID)


class Client:
    """A consumer as stock clients behave, with a will to misbehave."""

    def __init__(self, name: str, instance: str | None, version: int) -> None:
        self.name = name
        self.instance = instance
        self.version = version
        self.is_up = True
        self.silent_until = 0.0
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.joined = False
        self.assignment: bytes | None = None
        self.token: int | None = None
        self.to_assign: dict[str, bytes] | None = None
        self.metadata = b"v1"

    @property
    def identity(self) -> str:
        return self.member_id if self.instance is None else self.instance


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        delay_ms = self.random.choice([0, 0, 3000])
        self.kit = Kit(GroupConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=5))
        self.clients = [
            Client(f"c{i}", f"i{i}" if self.random.random() < 0.35 else None, self.random.choice([3, 5, 8, 9, 9]))
            for i in range(6)
        ]
        self.life = 0
        self.generation = 0
        self.told_generation = 0
        self.leaders: dict[tuple[int, int], str] = {}
        self.next_offset = 0
        # Per partition: (offset, fate) in the order of the attempts; fate is None while it is open.
        self.attempts: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
        self.commit_tokens: dict[int, list[list[Any]]] = {}

    # -- steps ------------------------------------------------------------------------------------

    def step(self) -> str:
        random = self.random
        what = random.choices(
            [
                "client",
                "time",
                "crash",
                "return",
                "silence",
                "leave",
                "restart",
                "log",
                "lag",
                "late",
                "change",
                "fence",
            ],
            [60, 14, 1, 3, 1.5, 1, 1, 1, 1.5, 1, 1.5, 0.7],
        )[0]
        client = random.choice(self.clients)
        if what == "client":
            if client.is_up and self.kit.seconds >= client.silent_until:
                self.act(client)
        elif what == "time":
            self.kit.advance(random.choice([0.1, 0.5, 1, 2, 4]))
        elif what == "crash":
            client.is_up = False
        elif what == "return":
            if not client.is_up:
                client.is_up = True
                client.forget()
        elif what == "silence":
            client.silent_until = self.kit.seconds + random.choice([3, 12, 70])
        elif what == "leave":
            if client.joined:
                named = client.member_id if client.instance is None else ("", client.instance)
                self.kit.leave(named)
                client.forget()
        elif what == "restart":
            self.life += 1
            self.kit.restart(lose_uncommitted=random.random() < 0.7)
            self.generation = 0
        elif what == "log":
            self.kit.refuse = None if self.kit.refuse else random.choice(LOG_ERRORS)
        elif what == "lag":
            self.kit.commit_lag = not self.kit.commit_lag
            if not self.kit.commit_lag:
                self.kit.commit()
        elif what == "late":
            self.kit.time_out_commits()
        elif what == "change":
            client.metadata = random.choice([b"v1", b"v2", b"v3"])
            if client.joined and client.token is None:
                self.join(client)
        elif what == "fence" and client.instance is not None and client.is_up:
            # Its process is restarted while the former one is still waiting somewhere.
            client.forget()
        return what

    def act(self, client: Client) -> None:
        """Go on from wherever the client is."""
        kit, random = self.kit, self.random
        if client.token is not None:
            if kit.waits(client.token):
                return
            answer = kit.answer(client.token)
            client.token = None
            if isinstance(answer, JoinGroupResponse):
                self.join_answered(client, answer)
            else:
                self.sync_answered(client, answer)
        elif not client.joined:
            self.join(client)
        elif client.assignment is None:
            client.token = kit.sync(
                client.member_id, client.generation, client.to_assign, instance=client.instance, version=5
            )
        elif random.random() < 0.6:
            code = kit.heartbeat(client.member_id, client.generation, instance=client.instance)
            self.told(client, code)
        else:
            self.commit(client)

    def join(self, client: Client) -> None:
        client.assignment = None
        client.token = self.kit.join(
            client.member_id,
            instance=client.instance,
            version=client.version,
            rebalance_ms=30_000,
            protocols=[("range", client.metadata), ("sticky", b"s")],
        )

    def commit(self, client: Client) -> None:
        partition = ("t", self.random.randrange(3))
        self.next_offset += 1
        attempt: list[Any] = [self.next_offset, None]
        self.attempts[partition].append(attempt)
        token = self.kit.commit_offsets(
            {partition: self.next_offset},
            generation=client.generation,
            member_id=client.member_id,
            instance=client.instance,
        )
        self.commit_tokens[token] = [attempt, client, client.generation]

    # -- answers ----------------------------------------------------------------------------------

    def join_answered(self, client: Client, answer: JoinGroupResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code == E.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif code == E.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.joined = True
            client.to_assign = None
            assert answer.generation_id > 0
            if answer.members:
                assert answer.leader == answer.member_id
                assert answer.member_id in {member.member_id for member in answer.members}
                if not answer.skip_assignment:
                    client.to_assign = {
                        member.member_id: assigned(member, answer.generation_id) for member in answer.members
                    }
        else:
            self.told(client, code)

    def sync_answered(self, client: Client, answer: SyncGroupResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code != E.NONE:
            self.told(client, code)
            return
        client.assignment = bytes(answer.assignment)
        if client.assignment:
            assert client.assignment == f"{client.identity}@{client.generation}".encode()
        self.told_generation = max(self.told_generation, client.generation)

    def told(self, client: Client, code: ErrorCode) -> None:
        """Do what clients do on an error."""
        if code == E.NONE:
            return
        assert code != E.UNKNOWN_SERVER_ERROR or self.kit.refuse is not None or client.token is None
        if code in START_OVER:
            metadata, token = client.metadata, client.token
            client.forget()
            client.metadata, client.token = metadata, token
        elif code == E.GROUP_MAX_SIZE_REACHED:
            client.is_up = False
            client.forget()
        elif code in (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION, E.UNKNOWN_SERVER_ERROR):
            client.joined = False
            client.assignment = None

    # -- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        self.kit.check_tokens()
        self.check_commits()
        group = self.kit.shard.groups.get("g")
        if group is None:
            return
        assert group.generation >= self.generation, "the generation fell"
        self.generation = group.generation
        if group.leader is not None and group.state is State.COMPLETING_REBALANCE:
            leader = self.leaders.setdefault((self.life, group.generation), group.leader)
            assert leader == group.leader, "two leaders in one generation"
        assert group.generation >= self.told_generation or not group.stored, "an assignment was forgotten"
        check_books(group)

    def check_commits(self) -> None:
        for token in [token for token in self.commit_tokens if not self.kit.waits(token)]:
            attempt, client, generation = self.commit_tokens.pop(token)
            (code,) = self.kit.answer(token)
            attempt[1] = code
            if client.generation == generation:
                self.told(client, code)
        committed = self.kit.committed()
        for partition, attempts in self.attempts.items():
            confirmed = [i for i, (_, code) in enumerate(attempts) if code == E.NONE]
            first = confirmed[-1] if confirmed else -1
            # Later ones may have been written although nobody was told so.
            possible = {offset for i, (offset, _) in enumerate(attempts) if i >= first}
            if partition in committed:
                assert committed[partition] in possible, "a confirmed offset was lost"
            else:
                assert not confirmed, "a confirmed offset was lost"

    def check_replay(self) -> None:
        """A coordinator that reads the log knows what this one knows."""
        kit = self.kit
        fresh = GroupShard(kit.config)
        for i, record in enumerate(kit.log):
            fresh.replay(record.key, record.value, i, len(kit.log))
        assert {k: g.stored for k, g in fresh.groups.items()} == {
            k: g.stored for k, g in kit.shard.groups.items() if g.stored is not None or g.offsets
        }
        for group_id, group in fresh.groups.items():
            lived = kit.shard.groups[group_id].offsets
            end = len(kit.log)
            assert {p: group.offsets.get(p, end) for p in group.offsets.partitions()} == {
                p: lived.get(p, end) for p in lived.partitions()
            }

    def settle(self) -> None:
        """No more faults: all live members must end in one stable generation."""
        kit = self.kit
        kit.refuse = None
        kit.commit_lag = False
        kit.commit()
        for client in self.clients:
            client.silent_until = 0.0
        for _ in range(400):
            for client in self.clients:
                if client.is_up:
                    self.act(client)
                self.check()
            kit.advance(0.5)
        up = [client for client in self.clients if client.is_up]
        assert all(client.assignment for client in up), [vars(client) for client in up]
        assert len({client.generation for client in up}) <= 1
        group = kit.shard.groups.get("g")
        if up:
            assert group is not None
            assert group.state is State.STABLE
            assert {member.member_id for member in group.members} == {client.member_id for client in up}


def assigned(member: JoinGroupResponse.JoinGroupResponseMember, generation: int) -> bytes:
    """What the leaders assign: a static member keeps it under its next id."""
    return f"{member.group_instance_id or member.member_id}@{generation}".encode()


def check_books(group: ClassicGroup) -> None:
    """What must hold inside the machine whenever it rests."""
    members = list(group.members)
    deadlines = group._state.deadlines
    assert group.members.joining_count == sum(member.joining is not None for member in members)
    assert (group.leader is None) == (not members)
    assert group.leader is None or group.leader in group.members
    assert group._state.unsynced <= {member.member_id for member in members}
    for member in members:
        assert member.member_id in group.members
        if member.instance_id is not None:
            assert group.members.static_id(member.instance_id) == member.member_id
        is_armed = (group.group_id, Due.SESSION, member.member_id) in deadlines
        assert is_armed or member.is_waiting, "a member that never expires"
    for member_id in group.members.pending:
        assert (group.group_id, Due.PENDING, member_id) in deadlines
        assert member_id not in group.members
    supported = {name for member in members for name, _ in member.protocols}
    for name in supported:
        count = sum(any(each == name for each, _ in member.protocols) for member in members)
        assert group.members._supported[name] == count
    armed = {what for what in (Due.JOIN, Due.SYNC) if (group.group_id, what, "") in deadlines}
    if group.state is State.EMPTY:
        assert not members
        assert not armed
    elif group.state is State.PREPARING_REBALANCE:
        assert armed == {Due.JOIN}
        assert not any(member.syncing for member in members)
    else:
        assert not any(member.joining for member in members)
        assert armed <= {Due.SYNC}
        assert bool(armed) == bool(group._state.unsynced)
        assert members
        if group.state is State.STABLE:
            assert not any(member.syncing for member in members)
            assert group.stored is not None
            assert group.stored.generation == group.generation


def run(seed: int, steps: int) -> None:
    world = World(seed)
    trace: list[str] = []
    try:
        for i in range(steps):
            trace.append(world.step())
            world.check()
            if i % 25 == 0:
                world.check_replay()
        world.settle()
        world.check_replay()
        world.kit.restart()
        world.check_commits()
        assert not world.kit.open
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {len(trace)}, after {trace[-5:]}: {error}") from error


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(10, 40))]
)
def test_random_behaviour(seed: int) -> None:
    run(seed, 400)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1000, 1010))
def test_random_behaviour_for_long(seed: int) -> None:
    run(seed, 6000)

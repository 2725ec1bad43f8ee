"""Random clusters of one partition: whatever brokers, controller and network do, nothing that was committed is lost.

The logs are lists of (epoch, number). The controller is honest and slow: its messages arrive in any order of brokers,
so former leaders go on believing in themselves for a while; answers to proposals may be lost and are then asked for
again. Elections are clean. Followers cut off what their leader does not have, as the protocol makes sure.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from barnabas.kproto import ErrorCode
from barnabas.replication import LeaderState, PartitionImage, Proposal, Refusal
from barnabas.replication.replica.leader import UNKNOWN_OFFSET

LAG = 10.0
BROKERS = (0, 1, 2, 3)


class Broker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.alive = True
        self.log: list[tuple[int, int]] = []
        self.high_watermark = 0
        self.image: PartitionImage | None = None
        self.leader: LeaderState | None = None
        self.truncated_in = -1


class Model:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now = 0.0
        self.numbers = 0
        self.brokers = [Broker(number) for number in BROKERS]
        self.min_insync_replicas = self.rng.choice([1, 1, 2])
        self.state = PartitionImage(0, 0, 0, 0, BROKERS[:3], BROKERS[:3])
        self.committed: list[tuple[int, int]] = []
        self.outstanding: list[tuple[int, Proposal]] = []
        self.moves = 0
        self.epochs: dict[int, tuple[int, int]] = {}  # of each leader, when last looked at

    def is_alive(self, number: int) -> bool:
        return self.brokers[number].alive

    # -- what happens

    def step(self) -> None:
        actions = (
            [self.append] * 6
            + [self.fetch] * 12
            + [self.pass_time] * 3
            + [self.shrink, self.tell, self.tell, self.tell, self.tell, self.answer, self.answer]
        )
        if self.rng.random() < 0.04:
            actions = [self.stop, self.restart, self.restart, self.elect, self.reassign]
        self.rng.choice(actions)()
        for broker in self.leading():
            assert broker.leader is not None
            self.check(broker.leader, broker.number)

    def check(self, state: LeaderState, number: int) -> None:
        """What the fields of a leader's state promise."""
        pending = state.pending
        assert state.maximal_isr == {*state.isr, *(() if pending is None else pending.added)}
        assert pending is None or (pending.leader_epoch, pending.partition_epoch) == (
            state.leader_epoch,
            state.partition_epoch,
        )
        assert (state.leader_epoch, state.partition_epoch) >= self.epochs.get(number, (0, 0))
        self.epochs[number] = state.leader_epoch, state.partition_epoch
        for broker_id, follower in state.followers.items():
            assert broker_id == follower.broker_id != state.broker_id
            assert follower.fetched_at <= self.now
            assert follower.caught_up_at <= self.now
            assert follower.log_end_offset <= follower.leader_end_offset or follower.log_end_offset == UNKNOWN_OFFSET

    def leading(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker.alive and broker.leader is not None]

    def append(self) -> None:
        for broker in self.leading():
            assert broker.image is not None
            self.numbers += 1
            broker.log.append((broker.image.leader_epoch, self.numbers))
            self.advance(broker)

    def fetch(self) -> None:
        follower = self.rng.choice(self.brokers)
        image = follower.image
        if not follower.alive or image is None or follower.leader is not None or image.leader < 0:
            return
        leader = self.brokers[image.leader]
        state = leader.leader
        if not leader.alive or state is None or state.leader_epoch != image.leader_epoch:
            return  # fenced
        if follower.number not in state.followers:
            return
        if follower.truncated_in != image.leader_epoch:
            same = 0
            for mine, theirs in zip(follower.log, leader.log, strict=False):
                if mine != theirs:
                    break
                same += 1
            del follower.log[same:]
            follower.high_watermark = min(follower.high_watermark, same)
            follower.truncated_in = image.leader_epoch
        offset = len(follower.log)
        assert offset <= len(leader.log)
        moved = state.fetched(state.followers[follower.number], -1, offset, 0, len(leader.log), self.now)
        proposal = state.expand(state.followers[follower.number], leader.high_watermark, self.is_alive)
        if proposal is not None:
            self.outstanding.append((leader.number, proposal))
        if moved:
            self.advance(leader)
        if self.rng.random() < 0.9:  # else the answer is lost
            records = leader.log[offset : offset + self.rng.randrange(5)]
            follower.log += records
            follower.high_watermark = max(follower.high_watermark, min(leader.high_watermark, len(follower.log)))

    def pass_time(self) -> None:
        self.now += self.rng.random() * 4

    def shrink(self) -> None:
        for broker in self.leading():
            assert broker.leader is not None
            proposal = broker.leader.shrink(len(broker.log), LAG, self.now)
            if proposal is not None:
                self.outstanding.append((broker.number, proposal))

    def advance(self, broker: Broker) -> None:
        state = broker.leader
        assert state is not None
        before = broker.high_watermark
        broker.high_watermark = state.high_watermark(
            before,
            len(broker.log),
            min_insync_replicas=self.min_insync_replicas,
            lag_s=LAG,
            is_alive=self.is_alive,
            now=self.now,
        )
        assert broker.high_watermark >= before
        if broker.high_watermark == before:
            return
        self.moves += 1
        known = broker.log[: broker.high_watermark]
        assert len(state.isr) >= min(self.min_insync_replicas, len(state.followers) + 1)
        assert known[: len(self.committed)] == self.committed[: len(known)], "two truths"
        for member in self.state.isr:
            there = self.brokers[member].log[: len(known)]
            assert there == known, f"broker {member} is in sync but lacks committed records"
        if len(known) > len(self.committed):
            self.committed = known

    # -- the controller

    def answer(self) -> None:
        """The controller gets to a proposal; its answer may be lost, and then it is sent again."""
        if not self.outstanding:
            return
        number, proposal = self.outstanding.pop(self.rng.randrange(len(self.outstanding)))
        broker = self.brokers[number]
        state = self.state
        code = ErrorCode.NONE
        if proposal.leader_epoch < state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif set(proposal.isr) != set(state.isr):
            if proposal.partition_epoch < state.partition_epoch:
                code = ErrorCode.INVALID_UPDATE_VERSION
            elif not all(self.is_alive(member) for member in proposal.isr) or self.rng.random() < 0.1:
                code = ErrorCode.INELIGIBLE_REPLICA
            else:
                self.state = replace(state, isr=proposal.isr, partition_epoch=state.partition_epoch + 1)
        if self.rng.random() < 0.2:
            self.outstanding.append((number, proposal))
            return
        if broker.leader is None or not broker.alive:
            return
        if code == ErrorCode.NONE:
            isr, epochs = self.state.isr, (self.state.leader_epoch, self.state.partition_epoch)
            if broker.leader.accepted(proposal, isr, *epochs):
                self.advance(broker)
        elif broker.leader.refused(proposal, code) is Refusal.RETRY:
            raise AssertionError(f"{code.name} is for good")

    def change(self, state: PartitionImage) -> None:
        self.state = replace(
            state, leader_epoch=self.state.leader_epoch + 1, partition_epoch=self.state.partition_epoch + 1
        )

    def elect(self) -> None:
        """Another leader out of the ISR, or the same one again."""
        eligible = [member for member in self.state.isr if self.is_alive(member)]
        if eligible:
            self.change(replace(self.state, leader=self.rng.choice(eligible)))

    def reassign(self) -> None:
        """A replica comes, or one that is out of sync goes."""
        state = self.state
        absent = [number for number in BROKERS if number not in state.replicas]
        spare = [number for number in state.replicas if number not in state.isr]
        if absent:
            self.change(replace(state, replicas=(*state.replicas, absent[0])))
        elif spare and len(state.replicas) > 2:
            gone = self.rng.choice(spare)
            self.change(replace(state, replicas=tuple(each for each in state.replicas if each != gone)))

    def stop(self) -> None:
        broker = self.rng.choice(self.brokers)
        if sum(each.alive for each in self.brokers) <= 1 or not broker.alive:
            return
        broker.alive = False
        broker.leader = None
        broker.image = None
        # The controller takes it out of the ISR, unless it is the last one.
        isr = tuple(member for member in self.state.isr if member != broker.number) or self.state.isr
        leader = self.state.leader
        if leader == broker.number:
            eligible = [member for member in isr if self.is_alive(member)]
            leader = eligible[0] if eligible else -1
        self.change(replace(self.state, isr=isr, leader=leader))

    def restart(self) -> None:
        for broker in self.brokers:
            if not broker.alive:
                broker.alive = True
                broker.truncated_in = -1
                broker.high_watermark = self.rng.randrange(broker.high_watermark + 1)  # the last checkpoint
                if self.state.leader < 0 and broker.number in self.state.isr:
                    self.change(replace(self.state, leader=broker.number))
                return

    def tell(self) -> None:
        """LeaderAndIsr arrives at one broker."""
        broker = self.rng.choice(self.brokers)
        state = self.state
        if not broker.alive or broker.number not in state.replicas:
            return
        if broker.image is not None and broker.image.leader_epoch >= state.leader_epoch:
            return
        broker.image = state
        if state.leader != broker.number:
            broker.leader = None
            return
        if broker.leader is None:
            broker.leader = LeaderState(broker.number, state, len(broker.log), self.now)
        else:
            broker.leader.lead(state, len(broker.log), self.now)
        self.advance(broker)


def run(seed: int) -> int:
    """How often the high watermark moved."""
    model = Model(seed)
    try:
        for broker in model.brokers[:3]:
            broker.image = model.state
        model.brokers[0].leader = LeaderState(0, model.state, 0, 0.0)
        for _ in range(800):
            model.step()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return model.moves


@pytest.mark.parametrize("first", range(0, 300, 20))
def test_nothing_committed_is_lost(first: int) -> None:
    assert sum(run(seed) for seed in range(first, first + 20)) > 500

"""How long a next-generation group takes to settle, with members that keep to the interval of each answer, as clients
do: they send a heartbeat at once when they have revoked or taken up partitions, and else when the interval is over.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import pytest

from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.tests.consumer_groups.consumer_kit import ConsumerKit, Parts
from barnabas.kproto import ErrorCode

USUAL_MS = GroupConfig().consumer_heartbeat_interval_ms
AT_ONCE_S = 0.02
"""What a client takes to give partitions up, or to take them up."""


class Client:
    """A member and what it knows. stubborn: it never gives anything up."""

    def __init__(self, name: str, *, stubborn: bool = False) -> None:
        self.name = name
        self.stubborn = stubborn
        self.epoch = 0
        self.owned: Parts = {}
        self.beats = 0
        self.intervals_ms: list[int] = []

    def beat(self, kit: ConsumerKit) -> float:
        """Send a heartbeat; returns the seconds until the next one."""
        self.beats += 1
        answer = kit.beat(self.name, self.epoch, owned=self.owned) if self.epoch else kit.enter(self.name, "t")
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        self.intervals_ms.append(answer.heartbeat_interval_ms)
        assert 0 < answer.heartbeat_interval_ms <= USUAL_MS
        parts = kit.parts(answer)
        if parts is None or parts == self.owned or (self.stubborn and self.owned):
            return answer.heartbeat_interval_ms / 1000
        self.owned = parts
        return AT_ONCE_S


class Clock:
    """Has members send their heartbeats when they are due."""

    def __init__(self, kit: ConsumerKit) -> None:
        self.kit = kit
        self.start_s = self.now_s = 0.0
        self._due: list[tuple[float, int, Client]] = []
        self._number = 0

    def add(self, client: Client, after_s: float) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.now_s + after_s, self._number, client))

    def step(self) -> None:
        at_s, _, client = heapq.heappop(self._due)
        self.kit.advance(at_s - self.now_s)
        self.now_s = at_s
        self.add(client, client.beat(self.kit))

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._due[0][0] < until_s:
            self.step()

    def settle(self, clients: Sequence[Client], count: int) -> float:
        """Until the group is stable with so many members; returns when that was."""
        while True:
            self.step()
            assert self.now_s < 60, "it does not settle"
            if all(client.epoch for client in clients) and self.kit.view().group_state == "Stable":
                held = sorted(part for client in clients for part in client.owned.get("t", ()))
                if held == list(range(count)):
                    return self.now_s


@pytest.mark.parametrize("within_s", [0.1, 1, 4])
def test_a_hundred_members_that_join_are_soon_stable(within_s: float) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    kit = ConsumerKit(GroupConfig(), t=200)
    clock = Clock(kit)
    clients = [Client(f"m{number}") for number in range(100)]
    for client in clients:
        clock.add(client, rng.uniform(0, within_s))
    assert clock.settle(clients, 200) < within_s + 2
    clock.run(30)
    assert sum(client.beats for client in clients) < 100 * 60
    before = sum(client.beats for client in clients)
    clock.run(30)
    assert sum(client.beats for client in clients) - before <= 100 * (30 / (USUAL_MS / 1000) + 1), "then all is usual"


@pytest.mark.parametrize("members", [2, 10])
def test_who_joins_later_waits_for_one_heartbeat_of_the_others(members: int) -> None:
    """They cannot be called; but what they revoke is noticed soon."""
    kit = ConsumerKit(GroupConfig(), t=20)
    clock = Clock(kit)
    first = Client("first")
    clock.add(first, 0)
    clock.run(31)
    later = [Client(f"m{number}") for number in range(1, members)]
    for client in later:
        clock.add(client, 0)
    begun_s = clock.now_s
    assert clock.settle([first, *later], 20) - begun_s < USUAL_MS / 1000 * 1.3


def test_a_member_that_does_not_revoke_does_not_make_the_others_ask_often() -> None:
    kit = ConsumerKit(GroupConfig(), t=2)
    clock = Clock(kit)
    stubborn, waiting = Client("a", stubborn=True), Client("b")
    clock.add(stubborn, 0)
    clock.run(10)
    clock.add(waiting, 0)
    clock.run(25)
    assert kit.view().group_state == "Reconciling"
    assert waiting.beats < 25
    assert waiting.intervals_ms == sorted(waiting.intervals_ms)
    assert waiting.intervals_ms[-1] == USUAL_MS


def test_the_intervals_of_a_group_that_changes() -> None:
    kit = ConsumerKit(GroupConfig(), t=4)
    assert kit.enter("a", "t").heartbeat_interval_ms == 250
    kit.advance(0.4)
    assert kit.enter("b", "t").heartbeat_interval_ms == 600, "then there may be another target"
    kit.advance(0.6)
    assert kit.beat("b", 2).heartbeat_interval_ms == 250, "its partitions are still with the other"
    kit.advance(2)
    assert kit.beat("a", 2).heartbeat_interval_ms == 500
    kit.advance(17.9)
    assert kit.beat("a", 2).heartbeat_interval_ms == 4975
    kit.advance(1)
    assert kit.beat("a", 2).heartbeat_interval_ms == USUAL_MS


def test_a_large_group_is_asked_less_often() -> None:
    kit = ConsumerKit(GroupConfig(consumer_assignment_interval_ms=0), t=1)
    intervals_ms = [kit.enter(f"m{number}", "t").heartbeat_interval_ms for number in range(302)]
    assert intervals_ms[:251] == [250] * 251
    assert intervals_ms[-1] == 301


def test_a_clock_that_was_set_back() -> None:
    kit = ConsumerKit(GroupConfig(), t=1)
    kit.enter("a", "t")
    kit.advance(-100)
    assert kit.beat("a", 2).heartbeat_interval_ms == USUAL_MS

"""Random leaders and coordinators of groups against the share coordinator, with a log that refuses, lags, loses what
was not committed, and is cut off; against a model that keeps each offset; the seed is the bug report.

- The content is what the model has; epochs only rise, a snapshot's by one.
- No more updates follow a snapshot than the setting says.
- Replaying the log gives the state that is alive, also when what is redundant was cut off.
- Each request gets one answer. What was confirmed is there after a restart.

More seeds: BARNABAS_SHARE_SEEDS.
"""

from __future__ import annotations

import os
from itertools import pairwise
from random import Random

import pytest

from barnabas.coordinator.share import ShareKey, StateConfig
from barnabas.coordinator.share.state_stored import Snapshot, Update, parse_share
from barnabas.coordinator.tests.share.state_kit import TOPIC_ID, StateKit
from barnabas.kproto import ErrorCode

E = ErrorCode
SEEDS = int(os.environ.get("BARNABAS_SHARE_SEEDS", "40"))
KEYS = [ShareKey(group, TOPIC_ID, partition) for group in ("g", "h") for partition in (0, 1)]
LOG_ERRORS = (E.NOT_ENOUGH_REPLICAS, E.MESSAGE_TOO_LARGE, E.NOT_LEADER_OR_FOLLOWER)


class Model:
    """One share partition: `offsets` is (count, state) for each."""

    def __init__(self, state_epoch: int, leader_epoch: int, start: int) -> None:
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start = start
        self.complete = -1 if start == -1 else 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def copy(self) -> Model:
        other = Model(self.state_epoch, self.leader_epoch, self.start)
        other.complete = self.complete
        other.offsets = dict(self.offsets)
        return other


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.limit = rng.choice((0, 1, 4, 500))
        self.kit = StateKit(StateConfig(snapshot_update_records_per_snapshot=self.limit))
        self.models: dict[ShareKey, Model] = {}
        self.committed: dict[ShareKey, Model] = {}
        self.confirmed = 0

    def step(self) -> None:
        rng, kit = self.rng, self.kit
        key = rng.choice(KEYS)
        dice = rng.random()
        if dice < 0.12:
            self.initialize(key)
        elif dice < 0.55:
            self.write(key)
        elif dice < 0.7:
            self.read(key)
        elif dice < 0.74:
            self.delete(key)
        elif dice < 0.8:
            kit.seconds += rng.choice((1, 200))
            for result in kit.shard.snapshot_old(kit.now):
                kit.run(result)
        elif dice < 0.86:
            kit.prune()
        elif dice < 0.9:
            kit.refuse = rng.choice(LOG_ERRORS) if rng.random() < 0.4 else None
        elif dice < 0.95:
            kit.commit_lag = rng.random() < 0.5
            if not kit.commit_lag:
                kit.commit()
        elif dice < 0.97:
            kit.time_out_commits()
        else:
            is_lost = rng.random() < 0.5
            kit.restart(lose_uncommitted=is_lost)
            if is_lost:
                self.models = {of: model.copy() for of, model in self.committed.items()}
        if kit.committed_to == len(kit.log):
            self.committed = {of: model.copy() for of, model in self.models.items()}
        self.check()

    def initialize(self, key: ShareKey) -> None:
        rng, kit, model = self.rng, self.kit, self.models.get(key)
        epoch = rng.choice((1, 2, 3, 5)) if model is None else model.state_epoch + rng.choice((-1, 0, 1))
        start = rng.choice((-1, 0, 7))
        told = kit.initialize(key, epoch, start)
        if model is not None and epoch < model.state_epoch and epoch != -1:
            assert told.code == E.FENCED_STATE_EPOCH
        elif kit.refuse is None:
            self.models[key] = Model(epoch, 0 if model is None else model.leader_epoch, start)
            self.check_told(told)

    def write(self, key: ShareKey) -> None:
        rng, kit, model = self.rng, self.kit, self.models.get(key)
        batches = []
        for _ in range(rng.randrange(4)):
            first = rng.randrange(20)
            batches.append((first, first + rng.randrange(6), rng.choice((0, 2, 4)), rng.randint(1, 3)))
        start = rng.choice((-1, -1, rng.randrange(8)))
        if model is not None and start != -1:
            start = max(start, model.start)
        epoch = 0 if model is None else model.leader_epoch + rng.choice((-1, 0, 0, 0, 1))
        state_epoch = 0 if model is None else model.state_epoch + rng.choice((-1, 0, 0, 0, 1))
        complete = rng.randrange(9)
        told = kit.write(
            *batches, key=key, start_offset=start, leader_epoch=epoch, state_epoch=state_epoch, complete=complete
        )
        if model is None:
            assert told.code == E.INVALID_REQUEST
        elif epoch < model.leader_epoch and epoch != -1:
            assert told.code == E.FENCED_LEADER_EPOCH
        elif state_epoch < model.state_epoch and state_epoch != -1:
            assert told.code == E.FENCED_STATE_EPOCH
        elif kit.refuse is None:
            model.complete = complete
            if start != -1:
                model.start = start
            for first, last, state, count in batches:
                for offset in range(first, last + 1):
                    model.offsets[offset] = max(model.offsets.get(offset, (0, 0)), (count, state))
            model.offsets = {offset: value for offset, value in model.offsets.items() if offset >= model.start}
            self.check_told(told)

    def read(self, key: ShareKey) -> None:
        rng, kit, model = self.rng, self.kit, self.models.get(key)
        epoch = -1 if model is None else model.leader_epoch + rng.choice((-1, 0, 0, 1))
        told = kit.read(key, epoch)
        if model is None:
            assert told.code == E.INVALID_REQUEST
        elif epoch < model.leader_epoch and epoch != -1:
            assert told.code == E.FENCED_LEADER_EPOCH
        elif kit.refuse is None or epoch <= model.leader_epoch:
            model.leader_epoch = max(model.leader_epoch, epoch)
            if told is not None and told.code == E.NONE:
                assert (told.state_epoch, told.start_offset) == (model.state_epoch, model.start)
                content = {
                    offset: (count, state)
                    for first, last, state, count in told.batches
                    for offset in range(first, last + 1)
                }
                assert content == model.offsets

    def delete(self, key: ShareKey) -> None:
        told = self.kit.delete(key)
        if self.kit.refuse is None or key not in self.models:
            self.models.pop(key, None)
            self.check_told(told)

    def check_told(self, told: object) -> None:
        assert (told is None) == self.kit.commit_lag
        self.confirmed += told is not None

    def check(self) -> None:
        partitions = self.kit.shard.store.partitions
        assert partitions.keys() == self.models.keys()
        for key, model in self.models.items():
            state = partitions[key].state
            assert (state.state_epoch, state.leader_epoch) == (model.state_epoch, model.leader_epoch)
            assert (state.start_offset, state.delivery_complete_count) == (model.start, model.complete)
            content = {}
            for first, last, number, count in state.batches:
                content.update(dict.fromkeys(range(first, last + 1), (count, number)))
            assert content == model.offsets
            assert all(
                left.last_offset + 1 < right.first_offset or left[2:] != right[2:]
                for left, right in pairwise(state.batches)
            )
            assert partitions[key].updates <= self.limit

    def check_log(self) -> None:
        kit = self.kit
        live = {key: found.state for key, found in kit.shard.store.partitions.items()}
        updates: dict[ShareKey, int] = {}
        epochs: dict[ShareKey, int] = {}
        for record in kit.log[kit.log_start :]:
            meaning = parse_share(record.key, record.value)
            if isinstance(meaning, Update):
                updates[meaning.key] = updates.get(meaning.key, 0) + 1
                assert updates[meaning.key] <= self.limit
                assert meaning.change.snapshot_epoch == epochs.get(meaning.key, meaning.change.snapshot_epoch)
            elif isinstance(meaning, Snapshot) and meaning.state is not None:
                updates[meaning.key] = 0
                assert meaning.state.snapshot_epoch == epochs.get(meaning.key, meaning.state.snapshot_epoch - 1) + 1
                epochs[meaning.key] = meaning.state.snapshot_epoch
            elif isinstance(meaning, Snapshot):
                epochs.pop(meaning.key, None)
        kit.refuse = None
        kit.restart()
        assert {key: found.state for key, found in kit.shard.store.partitions.items()} == live
        assert not kit.open


def run(seed: int, steps: int = 120) -> Run:
    found = Run(seed)
    try:
        for _ in range(steps):
            found.step()
        found.check_log()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return found


def test_random_requests() -> None:
    runs = [run(seed) for seed in range(SEEDS)]
    assert sum(each.confirmed for each in runs) > 10 * SEEDS
    assert sum(each.kit.log_start > 0 for each in runs) > SEEDS // 2


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(10_000, 14_000, 1_000))
def test_more_random_requests(first: int) -> None:
    for seed in range(first, first + 1_000):
        run(seed)

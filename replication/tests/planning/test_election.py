"""The election functions, over every combination of live, in-sync and assigned for three replicas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import pytest

from barnabas.replication.planning import election
from barnabas.replication.values.image import PartitionImage, unled


def subsets(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


REPLICAS = (2, 3, 1)
STATES = [PartitionImage(0, leader, 5, 8, REPLICAS, isr) for isr in subsets(REPLICAS) if isr for leader in (-1, *isr)]
LIVE = list(subsets((1, 2, 3, 9)))


@pytest.mark.parametrize("live", LIVE, ids=str)
def test_offline(live: tuple[int, ...]) -> None:
    for before in STATES:
        eligible = [replica for replica in REPLICAS if replica in live and replica in before.isr]
        clean = election.offline(before, live, unclean=False)
        assert (clean is None) == (not eligible)
        for after in (clean, election.offline(before, live, unclean=True)):
            if after is None:
                continue
            assert (after.leader_epoch, after.partition_epoch, after.replicas) == (6, 8, REPLICAS)
            assert after.leader in live
            assert after.leader in after.isr
            assert set(after.isr) <= set(live)
            if eligible:
                assert after.leader == eligible[0]
                assert after.isr == tuple(r for r in before.isr if r in live)
                assert not after.recovering
            else:
                assert after.isr == (after.leader,)
                assert after.recovering
        unclean = election.offline(before, live, unclean=True)
        assert (unclean is None) == (not set(REPLICAS) & set(live))


@pytest.mark.parametrize("live", LIVE, ids=str)
def test_preferred_and_reassign_keep_the_isr(live: tuple[int, ...]) -> None:
    for before in STATES:
        preferred = election.preferred(before, live)
        assert (preferred is not None) == (2 in live and 2 in before.isr)
        if preferred is not None:
            assert (preferred.leader, preferred.leader_epoch, preferred.isr) == (2, 6, before.isr)
        for target in ((1, 9), (9,), (3, 2)):
            after = election.reassign(before, target, live)
            wanted = [replica for replica in target if replica in live and replica in before.isr]
            assert (after.leader if after else None) == (wanted[0] if wanted else None)
            assert after is None or after.isr == before.isr


@pytest.mark.parametrize("live", LIVE, ids=str)
def test_controlled_shutdown(live: tuple[int, ...]) -> None:
    for before in STATES:
        for stopping in subsets((1, 2)):
            after = election.controlled_shutdown(before, live, stopping)
            wanted = [r for r in REPLICAS if r in live and r in before.isr and r not in stopping]
            assert (after.leader if after else None) == (wanted[0] if wanted else None)
            if after is not None:
                assert not set(after.isr) & set(stopping)
                assert after.leader_epoch == 6


@pytest.mark.parametrize("live", LIVE, ids=str)
def test_lose_brokers(live: tuple[int, ...]) -> None:
    for before in STATES:
        after = election.lose_brokers(before, live)
        assert after.isr, "the last member never leaves"
        assert set(after.isr) <= set(before.isr)
        assert after.leader == (before.leader if before.leader in live else -1)
        changed = (after.isr, after.leader) != (before.isr, before.leader)
        assert after.leader_epoch == (6 if changed else 5)
        assert changed or after is before
        assert election.lose_brokers(after, live) is after, "settled"


def test_initial() -> None:
    before = unled(4, (3, 1, 2))
    assert election.initial(before, ()) is None
    after = election.initial(before, (1, 2))
    assert after == PartitionImage(4, 1, 0, 0, (3, 1, 2), (1, 2))

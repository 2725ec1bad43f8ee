"""The simulated cluster: seeds that must go well, the same run twice, and that what is wrong is found.

The slow test tries seeds for `BARNABAS_SIM_SECONDS` (150) of CPU, which are as many seeds however busy the machine is,
and at most `BARNABAS_SIM_SEEDS` (1,000) of them, from `BARNABAS_SIM_FIRST` (1) on. A failing seed is run again, with
everything that happens in it, by `python -m barnabas.server.sim --seeds N --trace`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

from barnabas.kproto.records import Record, build_batch
from barnabas.server.sim.checks import History, Item, check_content
from barnabas.server.sim.cluster import Cluster
from barnabas.server.sim.run import simulate
from barnabas.server.sim.world import World

ROOT = Path(__file__).resolve().parents[3]
SECONDS = int(os.environ.get("BARNABAS_SIM_SECONDS", "150"))
SEEDS = int(os.environ.get("BARNABAS_SIM_SEEDS", "1000"))
FIRST = int(os.environ.get("BARNABAS_SIM_FIRST", "1"))
KEY = ("t", 0)


def simulated(*arguments: str) -> str:
    """What the command says, which must be that all is well."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.server.sim", "--quiet", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.campaign
def test_a_few_seeds() -> None:
    assert "all well" in simulated("--seeds", "7-8")


@pytest.mark.campaign
def test_one_broker() -> None:
    assert "all well" in simulated("--seeds", "1-2", "--brokers", "1")


@pytest.mark.campaign
@pytest.mark.timeout(4 * SECONDS + 300)
def test_as_many_seeds_as_there_is_time_for() -> None:
    cores = min(os.cpu_count() or 1, 4)
    each = -(-SEEDS // cores)
    with ThreadPoolExecutor(cores) as pool:
        starts = range(FIRST, FIRST + SEEDS, each)
        limit = str(SECONDS / cores)
        said = pool.map(lambda first: simulated("--seeds", f"{first}-{first + each - 1}", "--limit", limit), starts)
        print(*said, sep="\n")


def test_the_same_seed_is_the_same_run() -> None:
    one, other = (simulate(3, seconds=5, keep=True) for _ in range(2))
    assert one.lines == other.lines
    assert one.digest == other.digest
    assert simulate(4, seconds=5).digest != one.digest


def test_nothing_of_a_killed_process_goes_on() -> None:
    world = World(1)
    done: list[str] = []

    async def main() -> None:
        cluster = Cluster(world, 1, {})
        with cluster.watching_logs():
            machine = cluster.machines[1]
            machine.start()
            await trio.sleep(5)
            process = machine.process
            assert process is not None

            async def files() -> None:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                    done.append("files are renamed")

            world.in_domain(process.domain, world.nursery.start_soon, files)
            await trio.sleep(0.1)
            machine.kill()
            await trio.sleep(5)
            assert not done
            machine.start()
            await trio.sleep(10)  # until the session of its last life is over
            assert machine.serves
            assert machine.process is not process

    world.run(main)
    assert not world.violations


def test_nothing_goes_wrong_without_faults() -> None:
    outcome = simulate(1, seconds=0)
    assert outcome.violations == []
    assert outcome.acknowledged == outcome.shown > 100
    assert outcome.committed > 10
    assert outcome.transactions > 3


@pytest.mark.campaign
def test_a_cluster_that_may_lose_records_is_caught() -> None:
    """Acknowledged by the leader alone, and unclean elections: that loses records, and the checks must see it."""
    careless = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    assert any(simulate(seed, settings=careless).violations for seed in range(1, 30))


# -- the checks themselves -------------------------------------------------------------------------------------------


def log_of(*batches: tuple[int, list[Item], int]) -> bytes:
    """Batches of (base offset, items, leader epoch)."""
    return b"".join(
        build_batch(
            [Record(timestamp=1, value=item.encode()) for item in items], base_offset=offset, leader_epoch=epoch
        )
        for offset, items, epoch in batches
    )


A = [Item("a", number) for number in range(5)]
B = [Item("b", number) for number in range(5)]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (log_of((0, A[:2], 0), (2, B[:1], 1), (3, A[2:], 1)), None),
        (log_of((0, A[:2], 0), (3, A[2:], 1)), "begins at 3"),
        (log_of((0, A[:2], 1), (2, A[2:], 0)), "epoch 0"),
        (log_of((0, A[:2], 0), (2, A[1:], 0)), "second time"),
        (log_of((0, [A[0], A[2], A[1]], 0)), "something is missing"),
        (log_of((0, A[:1], 0), (1, A[2:], 0)), "something is missing"),
        (log_of((0, B, 0)), "is lost"),
        (b"", "is lost"),
    ],
)
def test_what_is_wrong_with_a_log(content: bytes, wrong: str | None) -> None:
    world = World(0)
    history = History(world)
    history.record_acknowledged(KEY, A[0], 0, 1)
    history.record_shown(KEY, A[1], 1, 1)
    check_content(world, history, KEY, content)
    if wrong is None:
        assert world.violations == []
    else:
        assert wrong in world.violations[0]


def test_records_that_were_given_up_may_be_there_or_not_but_once() -> None:
    for content, is_right in (
        (log_of((0, A[:1], 0), (1, A[2:], 0)), True),
        (log_of((0, A[:1], 0), (1, A[2:], 0), (4, A[1:2], 0)), True),
        (log_of((0, A, 0), (5, A[1:2], 0)), False),
        (log_of((0, A[:1], 0), (1, A[3:], 0)), False),
    ):
        world = World(0)
        history = History(world)
        history.given_up[KEY].add(A[1])
        check_content(world, history, KEY, content)
        assert (world.violations == []) == is_right


def test_responses_to_clients_must_agree() -> None:
    for tell, wrong in (
        (lambda history: history.record_acknowledged(KEY, A[0], 0, 2), False),
        (lambda history: history.record_acknowledged(KEY, A[0], 1, 2), True),
        (lambda history: history.record_acknowledged(KEY, B[0], 0, 2), True),
        (lambda history: history.record_shown(KEY, A[0], 0, 2), False),
        (lambda history: history.record_shown(KEY, B[0], 0, 2), True),
    ):
        world = World(0)
        history = History(world)
        history.record_acknowledged(KEY, A[0], 0, 1)
        tell(history)
        assert bool(world.violations) == wrong

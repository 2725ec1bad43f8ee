"""One call of a disk fails, at any place, with any error: nothing acknowledged is lost, no client waits without end.

The slow test lets `BARNABAS_DISK_FAULTS_EACH` (1) calls of each kind fail with each error, of a broker alone, and with
every other one, of three, with the seed `BARNABAS_DISK_FAULTS_SEED` (1). `python -m barnabas.server.sim.disk_faults`
tries all of them.
What a failed call means for those who share a round is in test_answered_is_written.py.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from barnabas.logdir import OURS
from barnabas.server.sim.disk_faults import CODES, faults
from barnabas.server.sim.run import DiskFault, simulate

ROOT = Path(__file__).resolve().parents[3]
EACH = os.environ.get("BARNABAS_DISK_FAULTS_EACH", "1")
SEED = os.environ.get("BARNABAS_DISK_FAULTS_SEED", "1")


def test_every_kind_of_call_fails_with_every_error() -> None:
    disks = simulate(1, brokers=3, seconds=0, disk=DiskFault(1, 0, 0)).disks
    chosen = list(faults(1, 3, 1, 2, CODES))
    assert len(set(chosen)) == len(chosen)
    struck = Counter((disks[fault.broker_id].calls[fault.number - 1], fault.code) for fault in chosen)
    counts = Counter(kind for disk in disks.values() for kind in disk.calls)
    assert struck == {(kind, code): min(2, count) for kind, count in counts.items() for code in CODES}


def test_a_topic_waits_for_a_broker_whose_disk_has_failed() -> None:
    making = "make_dir a partition's directory"
    number = simulate(1, brokers=3, seconds=0, disk=DiskFault(2, 0, 0)).disks[2].calls.index(making) + 1
    outcome = simulate(1, brokers=3, seconds=0, disk=DiskFault(2, number, errno.EIO))
    assert outcome.disks[2].struck == making
    assert outcome.disks[2].has_ended
    assert not outcome.violations


@pytest.mark.parametrize(("number", "code"), [(40, errno.ENOSPC), (90, errno.EINTR), (150, errno.EMFILE)])
def test_one_call_fails(number: int, code: int) -> None:
    outcome = simulate(3, brokers=1, seconds=0, disk=DiskFault(1, number, code))
    assert not outcome.violations
    assert outcome.acknowledged > 50
    assert outcome.disks[1].struck is not None
    assert outcome.disks[1].has_ended == (code not in OURS)


@pytest.mark.campaign
@pytest.mark.timeout(2400 * int(EACH))
@pytest.mark.parametrize(("brokers", "every"), [("1", "1"), ("3", "2")])
def test_calls_all_over_the_place_fail(brokers: str, every: str) -> None:
    command = [sys.executable, "-m", "barnabas.server.sim.disk_faults", "--brokers", brokers, "--seeds", SEED]
    done = subprocess.run(
        [*command, "--each", EACH, "--every", every], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "lost=0" in done.stdout

"""One call of a disk fails, at any place, with any error: nothing acknowledged is lost, nobody waits for ever.

The slow test tries one in `BARNABAS_DISK_FAULTS_EVERY` (40) of all pairs of a call and an error, of a broker alone and
of three, for `BARNABAS_DISK_FAULTS_SECONDS` (300) each at most, with the seed `BARNABAS_DISK_FAULTS_SEED` (1). With
EVERY 1 it tries all of them, as `python -m server.sim.disk_faults` does. What a failed call means for those who share a
round is in test_answered_is_written.py.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logdir import OURS
from server.sim.run import DiskFault, simulate

ROOT = Path(__file__).resolve().parents[2]
EVERY = os.environ.get("BARNABAS_DISK_FAULTS_EVERY", "40")
SECONDS = os.environ.get("BARNABAS_DISK_FAULTS_SECONDS", "300")
SEED = os.environ.get("BARNABAS_DISK_FAULTS_SEED", "1")


@pytest.mark.parametrize(("number", "code"), [(40, errno.ENOSPC), (90, errno.EINTR), (150, errno.EMFILE)])
def test_one_call_fails(number: int, code: int) -> None:
    outcome = simulate(3, brokers=1, seconds=0, disk=DiskFault(1, number, code))
    assert not outcome.violations
    assert outcome.acknowledged > 50
    assert outcome.disks[1].struck is not None
    assert outcome.disks[1].has_ended == (code not in OURS)


@pytest.mark.slow
@pytest.mark.timeout(int(SECONDS) + 300)
@pytest.mark.parametrize("brokers", ["1", "3"])
def test_calls_all_over_the_place_fail(brokers: str) -> None:
    command = [sys.executable, "-m", "server.sim.disk_faults", "--brokers", brokers, "--seeds", SEED]
    done = subprocess.run(
        [*command, "--every", EVERY, "--limit", SECONDS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "lost=0" in done.stdout

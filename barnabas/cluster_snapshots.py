"""Snapshots of a cluster under test: one of each broker, and the files of the store of their metadata, all of a moment
at which every clock stood still and no answer was on its way.

The store's process stands still as well, from before the first broker's snapshot until its files are copied. Clients
may change the metadata meanwhile, and a store that is older or newer than the logs would not fit them: with an older
one leader epochs and producer ids that the logs hold already are given out again, and a newer one may count a replica
in sync whose log was copied before it had caught up.

Put back by the process that runs the tests, while no process of the cluster is there; loads what the broker has for
that when it is used.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.child import BrokerError

if TYPE_CHECKING:
    from barnabas.cluster_clock import ClusterClock

__all__ = ["ClusterSnapshot", "check", "forget", "put_back", "remove_all_of", "take"]

STORE_FILES = ("metadata.journal", "metadata.snapshot")


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """store: a directory with the files of the store. brokers: the ids of their snapshots, in the order of the brokers.
    ahead_s: how far the clock was ahead.
    """

    id: str
    store: Path
    brokers: tuple[str, ...]
    ahead_s: float


def take(
    clock: ClusterClock, store: Path, standing_still: AbstractContextManager[None], directory: Path, count: int
) -> ClusterSnapshot:
    """One of the brokers, all `count` of them, and of the store's directory. standing_still: the store's process is,
    within. directory: where to keep the files of the store. Raises BrokerError.
    """
    name = uuid.uuid4().hex
    place = directory / name
    with clock.held() as brokers:
        if len(brokers) != count:
            raise BrokerError(f"{len(brokers)} of {count} brokers are running")
        brokers.come_to_rest()
        with standing_still:
            ids = tuple(str(each["id"]) for each in brokers.ask_all("POST", "/v1/snapshots"))
            try:
                place.mkdir(parents=True)
                for file in STORE_FILES:
                    if (store / file).exists():
                        shutil.copyfile(store / file, place / file)
            except OSError as error:
                raise BrokerError(f"the metadata store cannot be copied: {error}") from None
        return ClusterSnapshot(name, place, ids, clock.ahead_s)


def check(snapshot: ClusterSnapshot, data: Sequence[Path]) -> None:
    """Whether a snapshot can be put back, before anything is stopped for that. data: of the brokers. Raises
    BrokerError.
    """
    from barnabas.server.storage.snapshots import SnapshotDamaged, Snapshots, UnknownSnapshot

    try:
        for name, directory in zip(snapshot.brokers, data, strict=True):
            Snapshots([str(directory)], shares_files=False).find(name)
    except (OSError, SnapshotDamaged, UnknownSnapshot) as error:
        raise BrokerError(f"the cluster cannot be restored: {error}") from None


def put_back(snapshot: ClusterSnapshot, store: Path, data: Sequence[Path]) -> None:
    """Let these directories, which nobody has open, hold a snapshot. data: of the brokers. Raises BrokerError; what is
    in the directories is undefined then.
    """
    from barnabas.server.storage.snapshots import SnapshotDamaged, Snapshots, UnknownSnapshot, remove_attics

    try:
        for name, directory in zip(snapshot.brokers, data, strict=True):
            snapshots = Snapshots([str(directory)], shares_files=False)
            snapshots.find(name)
            remove_attics(snapshots.put_back(name))
        for file in STORE_FILES:
            (store / file).unlink(missing_ok=True)
            if (snapshot.store / file).exists():
                shutil.copyfile(snapshot.store / file, store / file)
    except (OSError, SnapshotDamaged, UnknownSnapshot) as error:
        raise BrokerError(f"the cluster cannot be restored: {error}") from None


def forget(snapshot: ClusterSnapshot, data: Sequence[Path]) -> None:
    """Remove the files of a snapshot."""
    from barnabas.server.storage.snapshots import Snapshots, UnknownSnapshot

    for name, directory in zip(snapshot.brokers, data, strict=True):
        try:
            Snapshots([str(directory)]).remove(name)
        except UnknownSnapshot:
            pass  # somebody was here before
    shutil.rmtree(snapshot.store, ignore_errors=True)


def remove_all_of(data: Path) -> None:
    """Remove all snapshots of a broker: they lie beside its data."""
    from barnabas.process import SNAPSHOTS_SUFFIX

    shutil.rmtree(f"{data}{SNAPSHOTS_SUFFIX}", ignore_errors=True)

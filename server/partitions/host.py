"""What a partition needs of its broker, and who may wait for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.server.runtime.containment import contain

if TYPE_CHECKING:
    from barnabas.logdir import StorageError
    from barnabas.replication import Proposal


log = logging.getLogger("barnabas.partition")

P = TypeVar("P", contravariant=True)
"""The partition, whose file imports this one."""


class ProgressWaiter(Protocol):
    """Waits for readable bytes, in perhaps several partitions. `progress` is called after `added_bytes` more became
    readable, or with 0 when something else changed.
    """

    def progress(self, added_bytes: int) -> None: ...

    def answer_now(self) -> None:
        """Wait no longer: answer with what there is."""


def tell_progress(waiters: Iterable[ProgressWaiter], added_bytes: int) -> None:
    """Tell all of `waiters`, who may come and go meanwhile: `waiters` is copied. One that fails is let go of."""
    for waiter in tuple(waiters):
        try:
            waiter.progress(added_bytes)
        except Exception as error:
            contain(log, "a fetch that was waiting", error, waiter)


class PartitionHost(Protocol[P]):
    """What a partition needs of its broker. lag_s: `replica.lag.time.max.ms`. now: seconds of trio's clock."""

    @property
    def broker_id(self) -> int: ...

    @property
    def lag_s(self) -> float: ...

    def now(self) -> float: ...

    def wall_ms(self) -> int: ...

    def is_alive(self, broker_id: int) -> bool: ...

    def stage(self, partition: P) -> None:
        """It wants to be written at the end of the round."""

    def write_failed(self, partition: P, error: StorageError) -> None:
        """Something staged is lost, and the partition takes nothing more (`write_error`): at the end of this round,
        when all who staged something have heard of it, its directory is given up, or the error is cleared.
        """

    def flush(self, partition: P) -> None:
        """Sync its log, and call its `flushed`, at once or later."""

    def propose(self, partition: P, proposal: Proposal) -> None:
        """Ask the controller for another ISR."""

    def storage_failed(self, partition: P, error: StorageError) -> None:
        """The disk cannot be read or written."""

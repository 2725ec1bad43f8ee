"""What a partition needs of its broker, and the interface of its waiters."""

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
"""The partition; its module imports this one."""


class ProgressWaiter(Protocol):
    """Waits for readable bytes, perhaps in several partitions. `progress` is called after `added_bytes` became
    readable, or with 0 after another change.
    """

    def progress(self, added_bytes: int) -> None: ...

    def answer_now(self) -> None:
        """Stop waiting: answer with the records there are."""


def notify_progress(waiters: Iterable[ProgressWaiter], added_bytes: int) -> None:
    """Notify all `waiters`, which may change meanwhile: `waiters` is copied. One that fails is released."""
    for waiter in tuple(waiters):
        try:
            waiter.progress(added_bytes)
        except Exception as error:
            contain(log, "notifying a waiting fetch", error, waiter)


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
        """Write it at the end of the round."""

    def write_failed(self, partition: P, error: StorageError) -> None:
        """Something staged is lost, and the partition rejects appends (`write_error`). At the end of this round, when
        all callers of `append` know, its directory is taken offline, or the error is cleared.
        """

    def flush(self, partition: P) -> None:
        """Sync its log, and call its `flushed`, now or later."""

    def propose(self, partition: P, proposal: Proposal) -> None:
        """Propose another ISR to the controller."""

    def storage_failed(self, partition: P, error: StorageError) -> None:
        """The disk cannot be read or written."""

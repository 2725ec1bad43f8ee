"""A broker with metrics: their listener is open from before its logs are loaded until after they are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from barnabas.logdir import Disk
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.metrics.service import MetricsService
from barnabas.server.metrics.timed_disk import timed_disk
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.program import version


@asynccontextmanager
async def measured(
    config: Callable[[], BrokerConfig], offload: Offload, disk: Disk | None
) -> AsyncIterator[tuple[MetricsService, Disk]]:
    """The metrics, and the disk whose syncs they time. disk: None for the operating system's. Raises CannotListen, and
    what the block raises, as it is.
    """
    service = MetricsService(config, offload, version())
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.run)
            try:
                yield service, timed_disk(disk or Disk(), service.counted.syncs)
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # Of the block alone: the service's own tasks are contained. Cancellation may be beside it.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
    finally:
        service.close()

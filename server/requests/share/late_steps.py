"""The rest of a request in turns, once its acknowledgements are stored: then there is no handler to be continued."""

from __future__ import annotations

import logging
from functools import partial

from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.turns import UNFINISHED, Abandoned, Steps, first_turn

log = logging.getLogger("barnabas.requests")


def run_late(svc: Services, ctx: RequestContext, steps: Steps[None]) -> None:
    """Run steps that answer a request: one turn here, and most have answered then; the rest in a task."""
    if first_turn(steps) is UNFINISHED:
        svc.turns.start(f"the rest of {ctx.route.name}", partial(_finish, svc, ctx, steps))


async def _finish(svc: Services, ctx: RequestContext, steps: Steps[None]) -> None:
    try:
        await svc.turns.run(steps, lambda: not ctx.closed)
    except Abandoned:
        pass
    except Exception as error:
        contain(log, f"answering {ctx}", error, ctx)
    svc.partitions.write_staged()

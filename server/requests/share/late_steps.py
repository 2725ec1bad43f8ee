"""The rest of a request in turns, once its acknowledgements are stored: then there is no handler to be continued."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from barnabas.server.requests.api import PENDING
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.turns import UNFINISHED, Abandoned, Steps, first_turn

log = logging.getLogger("barnabas.requests")


def run_late(svc: Services, ctx: RequestContext, steps: Steps[Any]) -> None:
    """Run steps that return the answer to a request, or PENDING: one turn here, and most are done then; the rest in a
    task, and large answers are encoded off the loop.
    """
    response = first_turn(steps)
    if response is UNFINISHED:
        svc.turns.start(f"the rest of {ctx.route.name}", partial(_finish, svc, ctx, steps))
    elif response is not PENDING:
        ctx.reply(response)


async def _finish(svc: Services, ctx: RequestContext, steps: Steps[Any]) -> None:
    try:
        response = await svc.turns.run(steps, lambda: not ctx.closed)
        if response is not PENDING and ctx.route.is_large(response) and not ctx.closed:
            ctx.settle(response)
            encode = ctx.route.encode_frame
            ctx.reply_encoded(*await svc.turns.elsewhere(encode, ctx.correlation_id, response))
        elif response is not PENDING:
            ctx.reply(response)
    except Abandoned:
        pass
    except Exception as error:
        contain(log, f"answering {ctx}", error, ctx)
    svc.partitions.write_staged()

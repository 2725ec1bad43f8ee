"""ListTransactions (key 66, versions 0-2): the transactional ids that this broker coordinates.

Behaviour: filters narrow the list, empty ones do not. Names of states that do not exist are returned, and match
nothing. While a partition of `__transaction_state` is being loaded there is no list, but COORDINATOR_LOAD_IN_PROGRESS.

Versions:

- 1: filters by duration, of transactions that began longer ago than that (KIP-994)
- 2: by a pattern that the whole id has to match (KIP-1152), in RE2's syntax; one that cannot be read is
  INVALID_REGULAR_EXPRESSION
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import ListTransactionsRequest, ListTransactionsResponse
from barnabas.server.requests.access import TRANSACTIONAL_ID, Op, hidden
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


def handle(svc: Services, ctx: RequestContext, req: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    return svc.transactions.listed(req, _compiled(req.transactional_id_pattern))


def _compiled(pattern: str | None) -> Callable[[str], bool] | None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    if not pattern:
        return None
    from barnabas.server.runtime.patterns import compile_pattern  # few ask, and it is a library of its own

    return compile_pattern(pattern)


API = Api(
    ApiKey.LIST_TRANSACTIONS,
    (0, 2),
    handle,
    access=hidden("transaction_states", Op.DESCRIBE, TRANSACTIONAL_ID, name="transactional_id"),
)

"""AddOffsetsToTxn (key 25, versions 0-4): a transaction is about to commit offsets of a group.

Behaviour: the group's partition of `__consumer_offsets` becomes part of the transaction; answered when that is
committed. The offsets themselves go to the group's coordinator (TxnOffsetCommit).

Versions:

- 2: may answer PRODUCER_FENCED, before it that is INVALID_PRODUCER_EPOCH
- 3: flexible
- 4: may answer TRANSACTION_ABORTABLE, which does not happen here

Clients of transaction.version 2 do not send it.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import AddOffsetsToTxnRequest
from barnabas.server.requests.access import Op, both, needs, on_group, on_transactional_id
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


def handle(svc: Services, ctx: RequestContext, req: AddOffsetsToTxnRequest) -> object:
    svc.transactions.add_offsets(req, ctx.api_version, ctx)
    return PENDING


API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    (0, 4),
    handle,
    access=both(needs(on_transactional_id(Op.WRITE)), needs(on_group(Op.READ))),
)

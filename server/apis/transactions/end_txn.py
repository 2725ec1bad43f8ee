"""EndTxn (key 26, versions 0-5): commit or abort.

Behaviour: answered when the decision is committed; the markers follow. A repeated request gets the same answer; the
opposite decision is INVALID_TXN_STATE; until all markers are written it is CONCURRENT_TRANSACTIONS.

Versions:

- 2: may answer PRODUCER_FENCED, before it that is INVALID_PRODUCER_EPOCH
- 3: flexible
- 4: may answer TRANSACTION_ABORTABLE, which does not happen here
- 5: is transaction.version 2 (KIP-890): every end raises the epoch, and the answer has the producer id and epoch to
  continue with
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import EndTxnRequest
from barnabas.server.requests.access import Op, needs, on_transactional_id
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services


def handle(svc: Services, ctx: RequestContext, req: EndTxnRequest) -> object:
    svc.transactions.end(req, ctx.api_version, ctx)
    return PENDING


API = Api(ApiKey.END_TXN, (0, 5), handle, access=needs(on_transactional_id(Op.WRITE)))

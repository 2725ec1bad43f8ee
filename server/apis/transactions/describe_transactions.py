"""DescribeTransactions (key 65, version 0): transactional ids in detail, for administrators.

Behaviour: of each id that this broker coordinates the state, the producer, the time-out, the beginning, and the
partitions; of a decided transaction those that still need a marker. An id named twice is answered once. Trouble of one
id is a value in its row: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_NOT_FOUND.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, KafkaError
from barnabas.kproto.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas.server.requests.access import TOPIC, TRANSACTIONAL_ID, AccessCheck, Op, amended, both, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_State = DescribeTransactionsResponse.TransactionState


def handle(svc: Services, ctx: RequestContext, req: DescribeTransactionsRequest) -> Steps[DescribeTransactionsResponse]:
    states = []
    for each in dict.fromkeys(req.transactional_ids):
        state = _described(svc, each)
        states.append(state)
        yield 1 + sum(1 + len(topic.partitions) for topic in state.topics)
    return DescribeTransactionsResponse(transaction_states=states)


def _described(svc: Services, transactional_id: str) -> _State:
    try:
        return svc.transactions.describe(transactional_id)
    except KafkaError as error:
        return _State(transactional_id=transactional_id, error_code=error.code)


def _on_error(req: DescribeTransactionsRequest, code: int, version: int) -> DescribeTransactionsResponse:
    states = [_State(transactional_id=each, error_code=code) for each in req.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _topics(check: AccessCheck, response: DescribeTransactionsResponse) -> Steps[None]:
    """Topics that may not be described are left out."""
    for state in response.transaction_states:
        state.topics = [topic for topic in state.topics if check.would_allow(Op.DESCRIBE, TOPIC, topic.topic)]
        yield 1 + len(state.topics)


API = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    (0, 0),
    handle,
    access=both(
        for_each(
            "transactional_ids",
            "transaction_states",
            Op.DESCRIBE,
            TRANSACTIONAL_ID,
            name="",
            answer_name="transactional_id",
        ),
        amended(_topics),
    ),
    on_error=_on_error,
)

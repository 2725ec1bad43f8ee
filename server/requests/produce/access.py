"""Who may produce: Write on each topic, and on the transactional id of transactional batches, which need one.

With acks=0 there is no answer, so a denial closes the connection; what was allowed is appended all the same. Source:
`KafkaApis.handleProduceRequest` (4.3).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ProduceRequest, ProduceResponse
from barnabas.kproto.records import BATCH_OVERHEAD, MAGIC_OFFSET, TRANSACTIONAL
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE
from barnabas.server.requests.access import TRANSACTIONAL_ID, AccessCheck, Admitted, Op, Outcome, Refused, for_each

_topics = for_each("topic_data", "responses", Op.WRITE)
_topics_in_silence = for_each(
    "topic_data", "responses", Op.WRITE, refusal=lambda request, code: ProduceResponse(responses=[])
)


def may_produce(check: AccessCheck) -> Generator[int, None, Outcome]:
    """The declaration of Produce."""
    request: ProduceRequest = check.request
    transactional_id = request.transactional_id
    is_silent = request.acks == 0
    if _is_transactional(request) and (
        transactional_id is None or not check.allows(Op.WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        return Refused(None) if is_silent else check.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not is_silent:
        return (yield from _topics(check))
    outcome = yield from _topics_in_silence(check)
    if isinstance(outcome, Admitted) and outcome.amend is not None:
        return Admitted(outcome.request, closes=True)
    return outcome


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether any of the batches is. Records of older formats are not."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if (
                records is not None
                and len(records) >= BATCH_OVERHEAD
                and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL
                and records[MAGIC_OFFSET] == 2
            ):
                return True
    return False

"""ReadShareGroupStateSummary (key 87, versions 0-1): where partitions stand in a share group, for administrators who
asked its coordinator (KIP-932). Between brokers.

Behaviour: of what was never initialized the start is −1, and there is no error. The leader epoch is not compared. Per
partition: a negative number INVALID_REQUEST.

Versions:

- 1: says how many records from the start on are settled
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.server.coordinators.share.state_wire import WIRES, Summarize
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.share.state_requests import error_answer_of, handler_of

API = Api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    (0, 1),
    handler_of(WIRES[Summarize]),
    access=needs(on_cluster(Op.CLUSTER_ACTION)),
    on_error=error_answer_of(WIRES[Summarize]),
)

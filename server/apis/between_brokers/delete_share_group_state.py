"""DeleteShareGroupState (key 86, version 0): the coordinator of a share group has partitions forgotten (KIP-932).
Between brokers.

Behaviour: what is not stored is forgotten already. Per partition: a negative number INVALID_REQUEST.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.server.coordinators.share.state_wire import WIRES, Delete
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.share.state_requests import error_answer_of, handler_of

API = Api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    (0, 0),
    handler_of(WIRES[Delete]),
    access=needs(on_cluster(Op.CLUSTER_ACTION)),
    on_error=error_answer_of(WIRES[Delete]),
)

"""InitializeShareGroupState (key 83, version 0): the coordinator of a share group lets partitions begin anew (KIP-932).
Between brokers.

Behaviour: whatever is stored of a partition is forgotten; it begins at the offset given, or at −1 where its leader is
to find the start. Per partition: a negative number INVALID_REQUEST; a state epoch before the stored one
FENCED_STATE_EPOCH; no such topic or partition UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.server.coordinators.share.state_wire import WIRES, Initialize
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.share.state_requests import error_answer_of, handler_of

API = Api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    (0, 0),
    handler_of(WIRES[Initialize]),
    access=needs(on_cluster(Op.CLUSTER_ACTION)),
    on_error=error_answer_of(WIRES[Initialize]),
)

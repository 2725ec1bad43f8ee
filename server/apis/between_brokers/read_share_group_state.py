"""ReadShareGroupState (key 84, version 0): the leader of a partition asks what is stored of it for a share group
(KIP-932). Between brokers.

Behaviour: leaders of earlier epochs are fenced from then on. Per partition: never initialized INVALID_REQUEST; a leader
epoch before the stored one FENCED_LEADER_EPOCH; no such topic or partition UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from barnabas.server.coordinators.share.state_wire import WIRES, Read
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.share.state_requests import error_answer_of, handler_of

API = Api(
    ApiKey.READ_SHARE_GROUP_STATE,
    (0, 0),
    handler_of(WIRES[Read]),
    access=needs(on_cluster(Op.CLUSTER_ACTION)),
    on_error=error_answer_of(WIRES[Read]),
)

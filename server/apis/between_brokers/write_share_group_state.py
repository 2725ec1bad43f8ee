"""WriteShareGroupState (key 85, versions 0-1): the leader of a partition stores what has become of its records in a
share group (KIP-932). Between brokers.

Behaviour: what is written is merged into what is stored. Per partition: never initialized INVALID_REQUEST; a leader
epoch before the stored one FENCED_LEADER_EPOCH; a state epoch before it FENCED_STATE_EPOCH; no such topic or partition
UNKNOWN_TOPIC_OR_PARTITION.

Versions:

- 1: says how many records from the start on are settled
"""

from __future__ import annotations

from barnabas.coordinator.share import WriteState
from barnabas.kproto import ApiKey
from barnabas.server.coordinators.share.state_wire import WIRES
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.share.state_requests import error_answer_of, handler_of

API = Api(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    (0, 1),
    handler_of(WIRES[WriteState]),
    access=needs(on_cluster(Op.CLUSTER_ACTION)),
    on_error=error_answer_of(WIRES[WriteState]),
)

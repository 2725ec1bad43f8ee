"""The current leader, sent with an error, so that a client need not request Metadata first (KIP-951).

Produce 10+ sends it with NOT_LEADER_OR_FOLLOWER, Fetch 16+ with FENCED_LEADER_EPOCH too: the leader's id and epoch are
in the partition, its address, on the listener that the client uses, is at the end of the response, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.kproto import ErrorCode

if TYPE_CHECKING:
    from barnabas.replication import Image
    from barnabas.server.requests.services import Services

HINTED_IN_PRODUCE = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER,))
HINTED_IN_FETCH = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))


class LeaderHints:
    """The hints of one answer. `leaders`: ids of the brokers that were used."""

    def __init__(self, svc: Services, listener: str) -> None:
        self._svc = svc
        self._image: Image = svc.image
        self._listener = listener
        self.leaders: dict[int, None] = {}

    def fill(self, current_leader: Any, topic: str | None, topic_id: bytes, index: int) -> None:
        """Fill in `current_leader`: from this broker's replica, else from the image."""
        if topic is None:
            by_id = self._image.topic_by_id(topic_id)
            if by_id is None:
                return
            topic = by_id.name
        replica = self._svc.partitions.find(topic, index)
        if replica is not None:
            leader, epoch = replica.leader_id, replica.leader_epoch
        else:
            known = self._image.partition(topic, index)
            if known is None:
                return
            leader, epoch = known.leader, known.leader_epoch
        current_leader.leader_id = leader
        current_leader.leader_epoch = epoch
        if leader >= 0:
            self.leaders[leader] = None

    def endpoints(self, make: Any) -> list[Any]:
        """The addresses of all leaders that were used; `make` is the response's `NodeEndpoint`."""
        found = []
        for leader in self.leaders:
            broker = self._image.brokers.get(leader)
            endpoint = broker.endpoint(self._listener) if broker is not None else None
            if broker is not None and endpoint is not None:
                found.append(make(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack))
        return found

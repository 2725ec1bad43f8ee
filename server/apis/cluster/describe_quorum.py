"""DescribeQuorum (key 55, versions 0-2): who decides about the cluster's metadata, and how far it has come (KIP-595).

Behaviour: there is no Raft quorum here. The controller, this broker or the elected one, is the leader and the only
voter of partition 0 of `__cluster_metadata`, as one Apache Kafka node with both roles says it; nobody observes. The
leader epoch is the controller epoch. The log is the metadata store's sequence of commits: the end offset and the high
watermark are the id of the newest commit that this broker has seen, which elsewhere than on the controller may be an
earlier one. The voter's directory id is zero: voters are not chosen at run time. Without a controller the partition has
NOT_LEADER_OR_FOLLOWER, for which clients wait.

A request names this one partition; whatever it names else, or more, gives each of its partitions
UNKNOWN_TOPIC_OR_PARTITION.

Versions:

- 1: when the voter last fetched and was at the end (KIP-836): a leader is, now
- 2: texts of errors, directory ids, and where voters listen (KIP-853): here, for other brokers
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

METADATA_TOPIC: Final = "__cluster_metadata"

_Topic = DescribeQuorumResponse.TopicData
_Partition = DescribeQuorumResponse.PartitionData
_Replica = DescribeQuorumResponse.ReplicaState
_Node = DescribeQuorumResponse.Node
_Listener = DescribeQuorumResponse.Listener
_TEXTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "No controller is elected at the moment.",
}


def handle(svc: Services, ctx: RequestContext, req: DescribeQuorumRequest) -> Steps[DescribeQuorumResponse]:
    if [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in req.topics] != [
        (METADATA_TOPIC, [0])
    ]:
        return (yield from _refused(req, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ctx.api_version))
    image = svc.image
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        return (yield from _refused(req, ErrorCode.NOT_LEADER_OR_FOLLOWER, ctx.api_version))
    newest = svc.cluster.newest_commit
    voter = _Replica(replica_id=controller.id, log_end_offset=newest)
    if ctx.api_version >= 1:
        voter.last_fetch_timestamp = voter.last_caught_up_timestamp = svc.wall_ms()
    partition = _Partition(
        leader_id=controller.id, leader_epoch=image.controller_epoch, high_watermark=newest, current_voters=[voter]
    )
    response = DescribeQuorumResponse(topics=[_Topic(topic_name=METADATA_TOPIC, partitions=[partition])])
    if ctx.api_version >= 2:
        endpoint = controller.endpoint(svc.config.controller_listener)
        listeners = []
        if endpoint is not None:
            listeners.append(_Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port))
        response.nodes = [_Node(node_id=controller.id, listeners=listeners)]
    return response


def _refused(req: DescribeQuorumRequest, code: ErrorCode, version: int) -> Steps[DescribeQuorumResponse]:
    """Each partition that the request names has the error."""
    text = _TEXTS[code] if version >= 2 else ""
    response = DescribeQuorumResponse()
    for topic in req.topics:
        answers = _Topic(topic_name=topic.topic_name)
        response.topics.append(answers)
        yield 1
        for each in topic.partitions:
            answers.partitions.append(
                _Partition(partition_index=each.partition_index, error_code=code, error_message=text)
            )
            yield 1
    return response


API = Api(ApiKey.DESCRIBE_QUORUM, versions=(0, 2), handle=handle, access=needs(on_cluster(Op.DESCRIBE)))

"""The controller's messages on the wire: values of `effects` ↔ requests of `kproto`, in every version.

    LeaderAndIsr (4, versions 0–7)    grouped by topic from 2 on, topic ids from 5, recovery state from 6
    StopReplica (5, 0–4)              one `delete` for all partitions up to 2, leader epochs from 3
    UpdateMetadata (6, 0–8)           endpoints from 1, racks from 2, listener names from 3, topic ids from 7

What a version has no place for is left out when writing, and takes the value that older brokers meant when reading: no
broker epoch −1 (accepted by all), no leader epoch in StopReplica −1 (likewise), no topic id `ZERO_UUID`, no listener's
name that of the security protocol. LeaderAndIsr carries no listeners at all, only the leaders' addresses on the one
between brokers; the reader says which that is. `type` and `is_kraft_controller` belong to the move to KRaft: a
controller in ZooKeeper mode leaves them 0, and a broker that is not migrating ignores them.

The epoch of the controller that decided a partition's state is written as that of the sender: no receiver uses the
difference. Source: `ControllerChannelManager.scala`, `LeaderAndIsrRequest.java`, `UpdateMetadataRequest.java` (3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from barnabas.replication.messages.effects import (
    LeaderAndIsr,
    PartitionChange,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from barnabas.replication.values.image import BrokerImage, Endpoint, PartitionImage

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, ErrorCode]

NO_EPOCH = -1
"""Stands for a broker epoch or a leader epoch that the sender's version has no place for: no check."""

_SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")  # by their numbers


# -- LeaderAndIsr -----------------------------------------------------------------------------------------------------


def leader_and_isr_request(message: LeaderAndIsr, version: int, listener: str) -> LeaderAndIsrRequest:
    """listener: name of the one between brokers; a leader that does not have it is left out."""
    request = LeaderAndIsrRequest(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch,
        live_leaders=[
            LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=leader.id, host_name=endpoint.host, port=endpoint.port)
            for leader in message.leaders
            if (endpoint := leader.endpoint(listener)) is not None
        ],
    )
    states = [_leader_and_isr_state(change, message.controller_epoch, version) for change in message.partitions]
    if version < 2:
        request.ungrouped_partition_states = states
        return request
    topics: dict[str, LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    for change, state in zip(message.partitions, states, strict=True):
        topic = topics.get(change.topic)
        if topic is None:
            topic = topics[change.topic] = LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=change.topic, topic_id=change.topic_id
            )
        topic.partition_states.append(state)
    request.topic_states = list(topics.values())
    return request


def leader_and_isr(request: LeaderAndIsrRequest, listener: str, security_protocol: str) -> LeaderAndIsr:
    """listener, security_protocol: of the one between brokers, where the leaders' addresses belong."""
    changes = [
        PartitionChange(state.topic_name, ZERO_UUID, _led(state), state.is_new)
        for state in request.ungrouped_partition_states
    ]
    for topic in request.topic_states:
        changes += [
            PartitionChange(topic.topic_name, topic.topic_id, _led(state), state.is_new)
            for state in topic.partition_states
        ]
    leaders = tuple(
        BrokerImage(leader.broker_id, (Endpoint(listener, leader.host_name, leader.port, security_protocol),))
        for leader in request.live_leaders
    )
    return LeaderAndIsr(request.controller_id, request.controller_epoch, request.broker_epoch, tuple(changes), leaders)


def leader_and_isr_response(message: LeaderAndIsr, codes: Codes, version: int) -> LeaderAndIsrResponse:
    """codes: outcome of each partition of `message`."""
    response = LeaderAndIsrResponse()
    error = LeaderAndIsrResponse.LeaderAndIsrPartitionError
    if version < 5:
        response.partition_errors = [
            error(topic_name=topic, partition_index=index, error_code=code) for (topic, index), code in codes.items()
        ]
        return response
    ids = {change.topic: change.topic_id for change in message.partitions}
    topics: dict[bytes, LeaderAndIsrResponse.LeaderAndIsrTopicError] = {}
    for (topic, index), code in codes.items():
        topic_id = ids[topic]
        if topic_id not in topics:
            topics[topic_id] = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id)
        topics[topic_id].partition_errors.append(error(partition_index=index, error_code=code))
    response.topics = list(topics.values())
    return response


def leader_and_isr_codes(message: LeaderAndIsr, response: LeaderAndIsrResponse) -> dict[TopicPartition, ErrorCode]:
    """What a broker answered, by partition."""
    names = {change.topic_id: change.topic for change in message.partitions}
    codes = {(row.topic_name, row.partition_index): ErrorCode.of(row.error_code) for row in response.partition_errors}
    for topic in response.topics:
        if topic.topic_id in names:
            name = names[topic.topic_id]
            codes.update({(name, row.partition_index): ErrorCode.of(row.error_code) for row in topic.partition_errors})
    return codes


def _leader_and_isr_state(
    change: PartitionChange, controller_epoch: int, version: int
) -> LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    partition = change.partition
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name=change.topic,
        partition_index=partition.index,
        controller_epoch=controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
        is_new=change.is_new,
    )
    if version >= 6:
        state.leader_recovery_state = int(partition.recovering)
    return state


def _led(state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> PartitionImage:
    return PartitionImage(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
        state.leader_recovery_state == 1,
    )


# -- StopReplica ------------------------------------------------------------------------------------------------------


def stop_replica_requests(message: StopReplica, version: int) -> list[StopReplicaRequest]:
    """One request, or two up to version 2 if only some partitions are to be deleted."""
    if version >= 3:
        topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
        for stopped in message.partitions:
            if stopped.topic not in topics:
                topics[stopped.topic] = StopReplicaRequest.StopReplicaTopicState(topic_name=stopped.topic)
            topics[stopped.topic].partition_states.append(
                StopReplicaRequest.StopReplicaPartitionState(
                    partition_index=stopped.index,
                    leader_epoch=stopped.leader_epoch,
                    delete_partition=stopped.delete,
                )
            )
        request = _stop_replica_head(message)
        request.topic_states = list(topics.values())
        return [request]
    requests = []
    for delete in (True, False):
        some = [stopped for stopped in message.partitions if stopped.delete is delete]
        if not some:
            continue
        request = _stop_replica_head(message)
        request.delete_partitions = delete
        if version == 0:
            request.ungrouped_partitions = [
                StopReplicaRequest.StopReplicaPartitionV0(topic_name=stopped.topic, partition_index=stopped.index)
                for stopped in some
            ]
        else:
            indexes: dict[str, list[int]] = {}
            for stopped in some:
                indexes.setdefault(stopped.topic, []).append(stopped.index)
            request.topics = [
                StopReplicaRequest.StopReplicaTopicV1(name=name, partition_indexes=those)
                for name, those in indexes.items()
            ]
        requests.append(request)
    return requests


def stop_replica(request: StopReplicaRequest) -> StopReplica:
    """The request as a value."""
    delete = request.delete_partitions
    stopped = [
        StoppedPartition(row.topic_name, row.partition_index, NO_EPOCH, delete) for row in request.ungrouped_partitions
    ]
    for old in request.topics:
        stopped += [StoppedPartition(old.name, index, NO_EPOCH, delete) for index in old.partition_indexes]
    for topic in request.topic_states:
        stopped += [
            StoppedPartition(topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
            for state in topic.partition_states
        ]
    return StopReplica(request.controller_id, request.controller_epoch, request.broker_epoch, tuple(stopped))


def stop_replica_response(codes: Codes) -> StopReplicaResponse:
    """codes: outcome of each partition."""
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaResponse.StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
            for (topic, index), code in codes.items()
        ]
    )


def stop_replica_codes(response: StopReplicaResponse) -> dict[TopicPartition, ErrorCode]:
    """What a broker answered, by partition."""
    return {(row.topic_name, row.partition_index): ErrorCode.of(row.error_code) for row in response.partition_errors}


def _stop_replica_head(message: StopReplica) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch,
    )


# -- UpdateMetadata ---------------------------------------------------------------------------------------------------


def update_metadata_request(message: UpdateMetadata, version: int) -> UpdateMetadataRequest:
    """Versions below 3 cannot name a listener: endpoints whose name is not that of their protocol are left out."""
    request = UpdateMetadataRequest(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch,
        live_brokers=[_broker_row(broker, version) for broker in message.brokers],
    )
    states = [_update_metadata_state(change, message.controller_epoch) for change in message.partitions]
    if version < 5:
        request.ungrouped_partition_states = states
        return request
    topics: dict[str, UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for change, state in zip(message.partitions, states, strict=True):
        topic = topics.get(change.topic)
        if topic is None:
            topic = topics[change.topic] = UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=change.topic, topic_id=change.topic_id
            )
        topic.partition_states.append(state)
    request.topic_states = list(topics.values())
    return request


def update_metadata(request: UpdateMetadataRequest, version: int) -> UpdateMetadata:
    """The request as a value. Endpoints of unknown security protocols are left out."""
    changes = [
        PartitionChange(state.topic_name, ZERO_UUID, _image_of(state)) for state in request.ungrouped_partition_states
    ]
    for topic in request.topic_states:
        changes += [
            PartitionChange(topic.topic_name, topic.topic_id, _image_of(state)) for state in topic.partition_states
        ]
    return UpdateMetadata(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        tuple(BrokerImage(row.id, tuple(_endpoints(row, version)), row.rack or None) for row in request.live_brokers),
        tuple(changes),
    )


def _broker_row(broker: BrokerImage, version: int) -> UpdateMetadataRequest.UpdateMetadataBroker:
    endpoints = broker.endpoints
    if version < 3:
        endpoints = tuple(each for each in endpoints if each.listener == each.security_protocol)
    row = UpdateMetadataRequest.UpdateMetadataBroker(id=broker.id, rack=broker.rack)
    if version == 0:
        for each in endpoints:
            if each.listener == "PLAINTEXT":
                row.v0_host, row.v0_port = each.host, each.port
        return row
    row.endpoints = [
        UpdateMetadataRequest.UpdateMetadataEndpoint(
            port=each.port,
            host=each.host,
            listener=each.listener,
            security_protocol=_SECURITY.index(each.security_protocol),
        )
        for each in endpoints
    ]
    return row


def _endpoints(row: UpdateMetadataRequest.UpdateMetadataBroker, version: int) -> Iterable[Endpoint]:
    if version == 0:
        yield Endpoint("PLAINTEXT", row.v0_host, row.v0_port)
    for each in row.endpoints:
        if 0 <= each.security_protocol < len(_SECURITY):
            protocol = _SECURITY[each.security_protocol]
            yield Endpoint(each.listener or protocol, each.host, each.port, protocol)


def _update_metadata_state(
    change: PartitionChange, controller_epoch: int
) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    partition = change.partition
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        topic_name=change.topic,
        partition_index=partition.index,
        controller_epoch=controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=list(partition.offline_replicas),
    )


def _image_of(state: UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionImage:
    replicas = tuple(state.replicas)
    return PartitionImage(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        state.zk_version,
        replicas,
        # Most of the time it is the same: every broker keeps this of each partition of the cluster.
        replicas if state.isr == state.replicas else tuple(state.isr),
        offline_replicas=tuple(state.offline_replicas),
    )

"""What brokers of a cluster with ZooKeeper ask of each other. Each request comes from a controller or a broker of an
epoch long past, so that whoever may ask is told so, and nothing happens.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import always, cluster

_NOBODY = 99
_CONTROLLER = {"controller_id": _NOBODY, "controller_epoch": 0}


def _leader_and_isr(names: Names) -> Values:
    replicas = [names.broker_id]
    state = {
        "partition_index": 0,
        "controller_epoch": 0,
        "leader": names.broker_id,
        "leader_epoch": 0,
        "isr": replicas,
        "partition_epoch": 0,
        "replicas": replicas,
    }
    topic = {"topic_name": names.topic, "topic_id": names.topic_id, "partition_states": [state]}
    ungrouped = [{"topic_name": names.topic, **state}]
    return {**_CONTROLLER, "ungrouped_partition_states": ungrouped, "topic_states": [topic], "live_leaders": []}


def _stop_replica(names: Names) -> Values:
    return {
        **_CONTROLLER,
        "ungrouped_partitions": [{"topic_name": names.topic, "partition_index": 0}],
        "topics": [{"name": names.topic, "partition_indexes": [0]}],
        "topic_states": [{"topic_name": names.topic, "partition_states": [{"partition_index": 0}]}],
    }


def _alter_partition(names: Names) -> Values:
    partition = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0}
    topic = {"topic_name": names.topic, "topic_id": names.topic_id, "partitions": [partition]}
    return {"broker_id": _NOBODY, "broker_epoch": 1, "topics": [topic]}


_NEEDED = (cluster(Op.CLUSTER_ACTION),)
PROBES = (
    Probe("LeaderAndIsr", ApiKey.LEADER_AND_ISR, _leader_and_isr, _NEEDED),
    Probe("StopReplica", ApiKey.STOP_REPLICA, _stop_replica, _NEEDED),
    Probe("UpdateMetadata", ApiKey.UPDATE_METADATA, always(**_CONTROLLER), _NEEDED),
    Probe("ControlledShutdown", ApiKey.CONTROLLED_SHUTDOWN, always(broker_id=_NOBODY, broker_epoch=1), _NEEDED),
    Probe("AlterPartition", ApiKey.ALTER_PARTITION, _alter_partition, _NEEDED),
    Probe("AllocateProducerIds", ApiKey.ALLOCATE_PRODUCER_IDS, always(broker_id=_NOBODY, broker_epoch=1), _NEEDED),
)

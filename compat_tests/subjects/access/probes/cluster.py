"""The cluster and its brokers, and what needs no permission."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Op
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import always, cluster, three_names

PROBES = (
    Probe(
        "ApiVersions",
        ApiKey.API_VERSIONS,
        always(client_software_name="table", client_software_version="1"),
    ),
    Probe("SaslHandshake after a log-in", ApiKey.SASL_HANDSHAKE, always(mechanism="PLAIN")),
    Probe("SaslAuthenticate after a log-in", ApiKey.SASL_AUTHENTICATE, always(auth_bytes=b"\0u\0u")),
    Probe("DescribeCluster", ApiKey.DESCRIBE_CLUSTER, always()),
    Probe(
        "DescribeCluster with operations",
        ApiKey.DESCRIBE_CLUSTER,
        always(include_cluster_authorized_operations=True),
        (cluster(Op.DESCRIBE),),
    ),
    Probe(
        "DescribeLogDirs",
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda names: {"topics": three_names(names, "topic", partitions=[0])},
        (cluster(Op.DESCRIBE),),
    ),
    Probe(
        "AlterReplicaLogDirs",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        lambda names: {
            "dirs": [{"path": "/nowhere", "topics": three_names(names, partitions=[0])}],
        },
        (cluster(Op.ALTER),),
    ),
    Probe(
        "DescribeQuorum",
        ApiKey.DESCRIBE_QUORUM,
        always(topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]),
        (cluster(Op.DESCRIBE),),
    ),
    Probe(
        "DescribeQuorum of another partition",
        ApiKey.DESCRIBE_QUORUM,
        lambda names: {"topics": three_names(names, "topic_name", partitions=[{"partition_index": 0}])},
        (cluster(Op.DESCRIBE),),
    ),
    Probe(
        "UpdateFeatures",
        ApiKey.UPDATE_FEATURES,
        always(
            timeout_ms=60_000,
            validate_only=True,
            feature_updates=[{"feature": "none.version", "max_version_level": 1}],
        ),
        (cluster(Op.ALTER),),
    ),
)

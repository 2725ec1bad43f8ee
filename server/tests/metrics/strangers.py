"""The metrics that dashboards of others ask for: their names, read from the files, in November 2026.

| dashboard | of | speaks |
| --- | --- | --- |
| strimzi-kafka | Strimzi's examples (Grafana 721 and its forks ask for a part of these) | jmx_exporter's rules |
| strimzi-kafka-exporter | Strimzi's examples | kafka_exporter |
| 7589 | kafka_exporter | kafka_exporter |
| kafka-topics, kafka-cluster | Confluent's jmx-monitoring-stacks | its own rules: the same gauges, other counters |
"""

from typing import Final

_MACHINE: Final = "of the machine or of Kubernetes, from its own exporter"
_JVM: Final = "there is no JVM"
_DIALECT: Final = "the same counter is called {} by the rules that we follow"

STRANGERS: Final[dict[str, str]] = {
    "strimzi-kafka": """
        container_cpu_usage_seconds_total container_memory_usage_bytes jvm_gc_collection_seconds_count
        jvm_gc_collection_seconds_sum jvm_memory_used_bytes jvm_threads_current kafka_cluster_partition_atminisr
        kafka_cluster_partition_replicascount kafka_cluster_partition_underminisr
        kafka_controller_controllerstats_uncleanleaderelections_total
        kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
        kafka_log_log_size kafka_network_socketserver_networkprocessoravgidle_percent
        kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesout_total
        kafka_server_brokertopicmetrics_failedfetchrequests_total
        kafka_server_brokertopicmetrics_failedproducerequests_total kafka_server_brokertopicmetrics_messagesin_total
        kafka_server_brokertopicmetrics_totalfetchrequests_total
        kafka_server_brokertopicmetrics_totalproducerequests_total
        kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
        kafka_server_kafkaserver_linux_disk_read_bytes kafka_server_kafkaserver_linux_disk_write_bytes
        kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
        kafka_server_replicamanager_underreplicatedpartitions kafka_server_socket_server_metrics_connection_count
        kubelet_volume_stats_available_bytes process_open_fds
    """,
    "strimzi-kafka-exporter": """
        kafka_broker_info kafka_cluster_partition_atminisr kafka_cluster_partition_underminisr
        kafka_consumergroup_current_offset kafka_consumergroup_lag kafka_topic_partition_current_offset
        kafka_topic_partition_in_sync_replica kafka_topic_partition_leader_is_preferred
        kafka_topic_partition_oldest_offset kafka_topic_partition_replicas
        kafka_topic_partition_under_replicated_partition kafka_topic_partitions
    """,
    "7589": """
        kafka_consumergroup_current_offset kafka_consumergroup_lag kafka_topic_partition_current_offset
        kafka_topic_partitions
    """,
    "kafka-topics": """
        kafka_controller_kafkacontroller_globalpartitioncount kafka_controller_kafkacontroller_globaltopiccount
        kafka_log_log_logendoffset kafka_log_log_logstartoffset kafka_log_log_size kafka_log_log_tiersize
        kafka_server_brokertopicmetrics_bytesinpersec kafka_server_brokertopicmetrics_bytesoutpersec
        kafka_server_brokertopicmetrics_messagesinpersec kafka_server_brokertopicmetrics_totalfetchrequestspersec
        kafka_server_brokertopicmetrics_totalproducerequestspersec kafka_server_kafkaserver_brokerstate
    """,
    "kafka-cluster": """
        jvm_gc_collection_seconds_sum jvm_memory_bytes_max jvm_memory_used_bytes kafka_cluster_partition_underminisr
        kafka_controller_controllerstats_uncleanleaderelectionspersec
        kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
        kafka_controller_kafkacontroller_preferredreplicaimbalancecount
        kafka_coordinator_group_groupmetadatamanager_numgroups
        kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance
        kafka_coordinator_group_groupmetadatamanager_numgroupsdead
        kafka_coordinator_group_groupmetadatamanager_numgroupsempty
        kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance
        kafka_coordinator_group_groupmetadatamanager_numgroupsstable kafka_log_log_size kafka_log_log_tiersize
        kafka_network_acceptor_acceptorblockedpercent kafka_network_requestchannel_requestqueuesize
        kafka_network_requestchannel_responsequeuesize
        kafka_network_requestmetrics_deprecatedrequestspersec_fiveminuterate
        kafka_network_requestmetrics_errorspersec kafka_network_requestmetrics_localtimems
        kafka_network_requestmetrics_remotetimems kafka_network_requestmetrics_requestqueuetimems
        kafka_network_requestmetrics_requestspersec kafka_network_requestmetrics_responsequeuetimems
        kafka_network_requestmetrics_responsesendtimems kafka_network_requestmetrics_totaltimems
        kafka_network_socketserver_networkprocessoravgidlepercent kafka_server_brokertopicmetrics_bytesinpersec
        kafka_server_brokertopicmetrics_bytesoutpersec
        kafka_server_brokertopicmetrics_fetchmessageconversionspersec
        kafka_server_brokertopicmetrics_messagesinpersec
        kafka_server_brokertopicmetrics_producemessageconversionspersec
        kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec
        kafka_server_fetchsessioncache_numincrementalfetchsessions
        kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate
        kafka_server_kafkaserver_brokerstate kafka_server_kafkaserver_linux_disk_read_bytes
        kafka_server_kafkaserver_linux_disk_write_bytes kafka_server_replicafetchermanager_maxlag
        kafka_server_replicafetchermanager_minfetchrate kafka_server_replicamanager_isrexpandspersec
        kafka_server_replicamanager_isrshrinkspersec kafka_server_replicamanager_leadercount
        kafka_server_replicamanager_partitioncount kafka_server_replicamanager_straypartitionscount
        kafka_server_replicamanager_straypartitionsmisclassifiedcount
        kafka_server_replicamanager_straypartitionstotalsize kafka_server_replicamanager_underreplicatedpartitions
        kafka_server_sessionexpirelistener_zookeeperauthfailurespersec
        kafka_server_sessionexpirelistener_zookeeperdisconnectspersec
        kafka_server_sessionexpirelistener_zookeeperexpirespersec
        kafka_server_sessionexpirelistener_zookeepersyncconnectspersec
        kafka_server_socketservermetrics_connection_close_rate kafka_server_socketservermetrics_connection_count
        kafka_server_socketservermetrics_connection_creation_rate kafka_server_socketservermetrics_connections
        kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms
        kafka_tier_tasks_archive_tierarchiver_bytespersec kafka_tier_tasks_archive_tierarchiver_retriespersec
        kafka_tier_tasks_archive_tierarchiver_totallag kafka_tier_tasks_tiertasks_numpartitionsinerror
        process_cpu_seconds_total
    """,
}

_PREFIXES: Final = {
    "container_": _MACHINE,
    "kubelet_": _MACHINE,
    "jvm_": _JVM,
    "kafka_tier_": "there is no tiered storage",
    "kafka_server_sessionexpirelistener_": "not counted; the log says when a session with ZooKeeper ends",
}
_MISSING: Final = {
    "kafka_log_log_tiersize": "there is no tiered storage",
    "kafka_network_acceptor_acceptorblockedpercent": "the loop accepts, and is never blocked by it",
    "kafka_network_requestmetrics_deprecatedrequestspersec_fiveminuterate": "not counted",
    "kafka_network_requestmetrics_responsequeuetimems": "there is no queue between an answer and its sending",
    "kafka_network_socketserver_networkprocessoravgidlepercent": _DIALECT.format("…avgidle_percent"),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate": _DIALECT.format(
        "…avgidle_percent"
    ),
    "kafka_server_brokertopicmetrics_fetchmessageconversionspersec": "not counted",
    "kafka_server_brokertopicmetrics_producemessageconversionspersec": "not counted",
    "kafka_server_replicafetchermanager_minfetchrate": "not counted",
    "kafka_server_replicamanager_straypartitionscount": "of Confluent's own server",
    "kafka_server_replicamanager_straypartitionsmisclassifiedcount": "of Confluent's own server",
    "kafka_server_replicamanager_straypartitionstotalsize": "of Confluent's own server",
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms": "not counted",
}
_SOCKETS: Final = "kafka_server_socketservermetrics_"


def why_missing(name: str) -> str | None:
    """Why there is no metric of that name; None: there is."""
    if name in _MISSING:
        return _MISSING[name]
    for prefix, why in _PREFIXES.items():
        if name.startswith(prefix):
            return why
    if name.endswith("persec"):
        return _DIALECT.format(name.removesuffix("persec") + "_total")
    if name.startswith(_SOCKETS):
        return _DIALECT.format(name.replace(_SOCKETS, "kafka_server_socket_server_metrics_"))
    return None

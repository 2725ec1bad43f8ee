"""Settings of a cluster: replication, the controller; those of KRaft and tiered storage, which are not here.

A broker without `zookeeper.connect` and `metadata.store.socket` runs alone: what is about other brokers then tunes
nothing.
"""

from __future__ import annotations

from barnabas.server.settings.model import (
    LONG_MAX,
    Check,
    Scope,
    Setting,
    Type,
    Value,
    at_least,
    between,
    family,
    no_effect,
    only,
    works,
)

_NO_KRAFT = "this broker has no KRaft quorum; it keeps its metadata in its own data directory"

_OLDEST_PROTOCOL = "1.0-IV0"


def _is_protocol(value: Value) -> bool:
    from barnabas.replication import InterBrokerProtocol  # not at the top: few settings files name a version

    try:
        return InterBrokerProtocol.parse(str(value)).at_least(_OLDEST_PROTOCOL)
    except ValueError:
        return False


_INTER_BROKER_PROTOCOL = Check("a version from 1.0 to 3.9", _is_protocol)
_SELECTOR = Check(
    "org.apache.kafka.common.replica.RackAwareReplicaSelector, or nothing",
    lambda value: value == "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
_ROLES = Check("broker, or broker,controller", lambda value: isinstance(value, tuple) and "broker" in value)
_ONE_VOTER = Check("one voter at most", lambda value: isinstance(value, tuple) and len(value) <= 1)


def throttle(name: str, doc: str) -> Setting:
    """A rate of replication traffic; it exists only as a dynamic setting."""
    row = works(name, Type.LONG, LONG_MAX, doc, at_least(0), scope=Scope.CLUSTER)
    return row._replace(dynamic_only=True)


SETTINGS: tuple[Setting, ...] = (
    works(
        "metadata.store.socket",
        Type.STRING,
        None,
        "The Unix socket of the metadata store that the brokers of a cluster on one machine share instead of ZooKeeper "
        "(barnabas store). zookeeper.session.timeout.ms and zookeeper.connection.timeout.ms count for it too.",
        note="Apache Kafka does not have it; barnabas cluster sets it for its brokers",
    ),
    works(
        "inter.broker.protocol.version",
        Type.STRING,
        "3.9-IV0",
        "The protocol that brokers of one cluster speak to each other; all of them must be able to. In a rolling "
        "upgrade it stays at the oldest broker's version until all are replaced. Tools read the Kafka version from it.",
        _INTER_BROKER_PROTOCOL,
    ),
    only(
        "replica.selector.class",
        Type.STRING,
        None,
        "Which replica a consumer with a rack reads from (KIP-392): the leader, or with RackAwareReplicaSelector one "
        "in the same rack that has the offset to fetch.",
        "Java classes cannot be loaded; the one that comes with Apache Kafka is built in",
        allowed=_SELECTOR,
    ),
    works(
        "controlled.shutdown.enable",
        Type.BOOLEAN,
        True,
        "Whether a broker that stops has its leaderships moved to others first.",
    ),
    works(
        "controlled.shutdown.max.retries",
        Type.INT,
        3,
        "How often a broker that stops asks the controller to move its leaderships before it stops in any case.",
    ),
    works(
        "controlled.shutdown.retry.backoff.ms",
        Type.LONG,
        5000,
        "How long a broker that stops waits between two such requests.",
    ),
    works(
        "controller.socket.timeout.ms",
        Type.INT,
        30000,
        "How long the controller waits for a broker's answer, and a broker for the controller's.",
    ),
    works(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other is left, which loses records.",
        scope=Scope.CLUSTER,
    ),
    no_effect(
        "unclean.leader.election.interval.ms",
        Type.LONG,
        300000,
        "it belongs to KRaft controllers",
        at_least(1),
        doc="How often a KRaft controller looks for partitions to elect leaders for.",
    ),
    works(
        "auto.leader.rebalance.enable",
        Type.BOOLEAN,
        True,
        "Whether the controller gives leadership back to preferred replicas from time to time.",
    ),
    works(
        "leader.imbalance.check.interval.seconds",
        Type.LONG,
        300,
        "How often the controller checks whether preferred replicas lead.",
        at_least(1),
    ),
    works(
        "leader.imbalance.per.broker.percentage",
        Type.INT,
        10,
        "How many of the partitions that a broker should lead may be led by others before the controller acts, "
        "in per cent.",
    ),
    works(
        "num.replica.fetchers",
        Type.INT,
        1,
        "How many connections a broker keeps to each leader that it follows.",
        scope=Scope.CLUSTER,
    ),
    works(
        "replica.lag.time.max.ms",
        Type.LONG,
        30000,
        "How long a follower may lag before it is no longer in sync.",
    ),
    works(
        "replica.socket.timeout.ms",
        Type.INT,
        30000,
        "How long a follower waits for an answer of its leader. It should be above replica.fetch.wait.max.ms.",
    ),
    no_effect(
        "replica.socket.receive.buffer.bytes",
        Type.INT,
        65536,
        "it is left to the operating system",
        doc="Size of the receive buffer of connections to leaders.",
    ),
    works(
        "replica.fetch.max.bytes",
        Type.INT,
        1048576,
        "How many bytes a follower asks for of one partition at once; a single larger batch still comes whole.",
        at_least(0),
    ),
    works(
        "replica.fetch.response.max.bytes",
        Type.INT,
        10485760,
        "How many bytes a follower asks for in one answer.",
        at_least(0),
    ),
    works(
        "replica.fetch.wait.max.ms",
        Type.INT,
        500,
        "How long a leader may wait for new records before it answers a follower. It must be well below "
        "replica.lag.time.max.ms.",
    ),
    works(
        "replica.fetch.min.bytes",
        Type.INT,
        1,
        "How many bytes a leader should have for a follower before it answers.",
    ),
    works(
        "replica.fetch.backoff.ms",
        Type.INT,
        1000,
        "How long a follower waits after an error of a partition, or of the connection; at most so long while a leader "
        "does not know of its election yet.",
        at_least(0),
    ),
    works(
        "replication.quota.window.num",
        Type.INT,
        11,
        "How many windows of time the replication throttles look back.",
        at_least(1),
    ),
    works(
        "replication.quota.window.size.seconds",
        Type.INT,
        1,
        "How long such a window is.",
        at_least(1),
    ),
    works(
        "alter.log.dirs.replication.quota.window.num",
        Type.INT,
        11,
        "How many windows the rate for replica.alter.log.dirs.io.max.bytes.per.second is averaged over.",
        at_least(1),
    ),
    works(
        "alter.log.dirs.replication.quota.window.size.seconds",
        Type.INT,
        1,
        "How long such a window is.",
        at_least(1),
    ),
    *family(
        no_effect,
        "Belongs to tiered storage or KRaft.",
        "there is none of it here",
        (
            ("follower.fetch.last.tiered.offset.enable", Type.BOOLEAN, False),
            ("eligible.leader.replicas.enable", Type.BOOLEAN, False),
        ),
    ),
    # KIP-73 and KIP-113: these three exist only as dynamic settings
    throttle(
        "leader.replication.throttled.rate",
        "How many bytes per second followers may fetch from this broker, of the replicas in the topics' "
        "leader.replication.throttled.replicas.",
    ),
    throttle(
        "follower.replication.throttled.rate",
        "How many bytes per second this broker may fetch from leaders, of the replicas in the topics' "
        "follower.replication.throttled.replicas.",
    ),
    throttle(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "How many bytes per second this broker may copy from one log directory to another.",
    ),
    # A KRaft server.properties of one combined node starts this broker as well; what needs a quorum is refused.
    only(
        "process.roles",
        Type.LIST,
        (),
        "What an Apache Kafka process does in KRaft mode.",
        "this broker has no KRaft quorum",
        allowed=_ROLES,
    ),
    only(
        "controller.quorum.voters",
        Type.LIST,
        (),
        "The controllers of a KRaft cluster, as id@host:port.",
        "this broker has no KRaft quorum and cannot join one",
        allowed=_ONE_VOTER,
    ),
    only(
        "controller.quorum.bootstrap.servers",
        Type.LIST,
        (),
        "Controllers of a KRaft cluster to ask first.",
        "this broker has no KRaft quorum and cannot join one",
        allowed=_ONE_VOTER,
    ),
    no_effect(
        "controller.listener.names",
        Type.STRING,
        None,
        "this broker has no KRaft controller; listeners with these names are not opened",
        doc="The listeners of a KRaft controller, by name.",
    ),
    *family(
        no_effect,
        "Belongs to KRaft mode.",
        _NO_KRAFT,
        (
            ("controller.quorum.append.linger.ms", Type.INT, 25),
            ("controller.quorum.election.backoff.max.ms", Type.INT, 1000),
            ("controller.quorum.election.timeout.ms", Type.INT, 1000),
            ("controller.quorum.fetch.timeout.ms", Type.INT, 2000),
            ("controller.quorum.request.timeout.ms", Type.INT, 2000),
            ("controller.quorum.retry.backoff.ms", Type.INT, 20),
            ("controller.quorum.auto.join.enable", Type.BOOLEAN, False),
            ("controller.quorum.fetch.max.bytes", Type.INT, 1048576, at_least(1)),
            ("controller.quorum.fetch.snapshot.max.bytes", Type.INT, 1048576, at_least(1)),
            ("controller.performance.always.log.threshold.ms", Type.LONG, 2000, at_least(0)),
            ("controller.performance.sample.period.ms", Type.LONG, 60000, at_least(100)),
            ("sasl.mechanism.controller.protocol", Type.STRING, "GSSAPI"),
            ("initial.broker.registration.timeout.ms", Type.INT, 60000),
            ("broker.heartbeat.interval.ms", Type.INT, 2000),
            ("broker.session.timeout.ms", Type.INT, 9000),
            ("metadata.log.dir", Type.STRING, None),
            ("metadata.log.max.record.bytes.between.snapshots", Type.LONG, 20971520, at_least(1)),
            ("metadata.log.max.snapshot.interval.ms", Type.LONG, 3600000, at_least(0)),
            ("metadata.log.segment.bytes", Type.INT, 1073741824, at_least(12)),
            ("metadata.log.segment.min.bytes", Type.INT, 8388608, at_least(12)),
            ("metadata.log.segment.ms", Type.LONG, 604800000),
            ("metadata.max.idle.interval.ms", Type.INT, 500, at_least(0)),
            ("metadata.max.retention.bytes", Type.LONG, 104857600),
            ("metadata.max.retention.ms", Type.LONG, 604800000),
            ("internal.metadata.delete.delay.millis", Type.LONG, 60000),
            ("internal.metadata.log.segment.bytes", Type.INT, None),
            ("internal.metadata.max.batch.size.in.bytes", Type.INT, 8388608),
        ),
    ),
    only(
        "remote.log.storage.system.enable",
        Type.BOOLEAN,
        False,
        "Whether tiered storage (KIP-405) is used.",
        "there is no tiered storage",
    ),
    *family(
        no_effect,
        "Belongs to tiered storage.",
        "there is no tiered storage",
        (
            ("remote.fetch.max.wait.ms", Type.INT, 500, at_least(1)),
            ("remote.list.offsets.request.timeout.ms", Type.LONG, 30000, at_least(1)),
            ("remote.log.index.file.cache.total.size.bytes", Type.LONG, 1073741824, at_least(1)),
            ("remote.log.manager.copy.max.bytes.per.second", Type.LONG, LONG_MAX, at_least(1)),
            ("remote.log.manager.fetch.max.bytes.per.second", Type.LONG, LONG_MAX, at_least(1)),
            ("remote.log.manager.follower.thread.pool.size", Type.INT, 2, at_least(1)),
        ),
        Scope.CLUSTER,
    ),
    *family(
        no_effect,
        "Belongs to tiered storage.",
        "there is no tiered storage",
        (
            ("remote.log.index.file.cache.ttl.ms", Type.LONG, 900000, at_least(-1)),
            ("remote.log.manager.copier.thread.pool.size", Type.INT, -1),
            ("remote.log.manager.copy.quota.window.num", Type.INT, 11, at_least(1)),
            ("remote.log.manager.copy.quota.window.size.seconds", Type.INT, 1, at_least(1)),
            ("remote.log.manager.expiration.thread.pool.size", Type.INT, -1),
            ("remote.log.manager.fetch.quota.window.num", Type.INT, 11, at_least(1)),
            ("remote.log.manager.fetch.quota.window.size.seconds", Type.INT, 1, at_least(1)),
            ("remote.log.manager.task.interval.ms", Type.LONG, 30000, at_least(1)),
            ("remote.log.manager.task.retry.backoff.max.ms", Type.LONG, 30000, at_least(1)),
            ("remote.log.manager.task.retry.backoff.ms", Type.LONG, 500, at_least(1)),
            ("remote.log.manager.task.retry.jitter", Type.DOUBLE, 0.2, between(0, 0.5)),
            ("remote.log.manager.thread.pool.size", Type.INT, 10, at_least(1)),
            ("remote.log.metadata.custom.metadata.max.bytes", Type.INT, 128, at_least(0)),
            (
                "remote.log.metadata.manager.class.name",
                Type.STRING,
                "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
            ),
            ("remote.log.metadata.manager.class.path", Type.STRING, None),
            ("remote.log.metadata.manager.impl.prefix", Type.STRING, "rlmm.config."),
            ("remote.log.metadata.manager.listener.name", Type.STRING, None),
            ("remote.log.reader.max.pending.tasks", Type.INT, 100, at_least(1)),
            ("remote.log.reader.threads", Type.INT, 10, at_least(1)),
            ("remote.log.storage.manager.class.name", Type.STRING, None),
            ("remote.log.storage.manager.class.path", Type.STRING, None),
            ("remote.log.storage.manager.impl.prefix", Type.STRING, "rsm.config."),
        ),
    ),
    works(
        "quota.window.num",
        Type.INT,
        11,
        "How many windows of time the quotas of clients look back.",
        at_least(1),
    ),
    works("quota.window.size.seconds", Type.INT, 1, "How long such a window is.", at_least(1)),
    works(
        "controller.quota.window.num",
        Type.INT,
        11,
        "So many windows' worth of partitions may be created or deleted at once, where their rate is limited.",
        at_least(1),
    ),
    works("controller.quota.window.size.seconds", Type.INT, 1, "How long such a window is.", at_least(1)),
    no_effect(
        "metric.reporters",
        Type.LIST,
        (),
        "metrics are not reported through Java classes",
        doc="Belongs to metrics.",
        scope=Scope.CLUSTER,
    ),
    *family(
        no_effect,
        "Belongs to metrics.",
        "metrics are not reported through Java classes",
        (
            ("metrics.num.samples", Type.INT, 2, at_least(1)),
            ("metrics.sample.window.ms", Type.LONG, 30000, at_least(1)),
            ("metrics.recording.level", Type.STRING, "INFO"),
            ("kafka.metrics.reporters", Type.LIST, ()),
            ("kafka.metrics.polling.interval.secs", Type.INT, 10, at_least(1)),
            ("auto.include.jmx.reporter", Type.BOOLEAN, True),
        ),
    ),
    no_effect(
        "cordoned.log.dirs",
        Type.LIST,
        (),
        "every log directory takes new partitions",
        doc="Directories that get no new partitions.",
    ),
)

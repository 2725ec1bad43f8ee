"""Settings of the broker itself and of its sockets: identity, listeners, connections, request limits."""

from __future__ import annotations

from barnabas.server.settings.endpoints import PROTOCOLS, parse_counts
from barnabas.server.settings.model import (
    INT_MAX,
    Check,
    Scope,
    Setting,
    Type,
    Value,
    at_least,
    no_effect,
    one_of,
    only,
    works,
)

_ONE_LOOP = "one event loop serves all connections and requests"
_AS_THE_REQUEST = "a connection to another broker may take as long as the request that it is for"


def _counts(value: Value) -> bool:
    try:
        parse_counts(str(value))
    except ValueError:
        return False
    return True


SETTINGS: tuple[Setting, ...] = (
    works(
        "broker.id",
        Type.INT,
        1,
        "The number of this broker in the cluster; clients see it as the node id. node.id is another name for it. "
        "It is kept in meta.properties of the data directory, and a different number there stops the start. "
        "A broker in a cluster that sets none, or -1, has one generated.",
        at_least(-1),
        note="a broker that runs alone is number 1 unless this says otherwise",
        kafka_default="-1",
    ),
    works(
        "node.id",
        Type.INT,
        1,
        "Another name for broker.id, the one that Apache Kafka uses in KRaft mode. If both are set they must agree.",
        at_least(-1),
        kafka_default="-1",
    ),
    works(
        "broker.rack",
        Type.STRING,
        None,
        "The rack or zone of this broker, shown to clients in Metadata. Replicas of a partition are put into as many "
        "racks as possible.",
    ),
    works(
        "broker.id.generation.enable",
        Type.BOOLEAN,
        True,
        "Whether a broker in a cluster that is given no broker.id gets one generated, above reserved.broker.max.id.",
    ),
    works(
        "reserved.broker.max.id",
        Type.INT,
        1000,
        "The highest number that may be given as broker.id while ids are generated; generated ones begin above it.",
        at_least(0),
    ),
    works(
        "listeners",
        Type.STRING,
        "PLAINTEXT://:9092",
        "Where the broker listens: a comma-separated list of NAME://host:port. An empty host or 0.0.0.0 means every "
        "interface, localhost both loopback addresses, port 0 any free port. Names and ports must be unique.",
        scope=Scope.PER_BROKER,
        note="a broker alone that is given no settings file listens on PLAINTEXT://localhost:9092, unless "
        "advertised.listeners says otherwise",
    ),
    works(
        "advertised.listeners",
        Type.STRING,
        None,
        "The addresses that clients get to connect to, in the form of `listeners` and for the same names. "
        "Without it the listeners are advertised, with this machine's name where a listener names no host.",
        scope=Scope.PER_BROKER,
    ),
    works(
        "listener.security.protocol.map",
        Type.STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Which security protocol each listener name uses, as NAME:PROTOCOL pairs.",
        scope=Scope.PER_BROKER,
    ),
    works(
        "inter.broker.listener.name",
        Type.STRING,
        None,
        "The listener for traffic between brokers; it must be one of those advertised. "
        "Without it the listener is taken that is called like security.inter.broker.protocol.",
    ),
    works(
        "security.inter.broker.protocol",
        Type.STRING,
        "PLAINTEXT",
        "The name of the listener for traffic between brokers, and its security protocol, when "
        "inter.broker.listener.name is not set. Only one of the two may be set.",
        one_of(*PROTOCOLS),
    ),
    works(
        "control.plane.listener.name",
        Type.STRING,
        None,
        "A listener of its own for the controller's requests to brokers; it must be one of those advertised, and not "
        "the listener between brokers. Without it they come in on the listener between brokers.",
    ),
    no_effect("early.start.listeners", Type.STRING, None, "all listeners open together, once the data is loaded"),
    works(
        "socket.send.buffer.bytes",
        Type.INT,
        102400,
        "Size of the send buffer of client sockets (SO_SNDBUF). -1 leaves it to the operating system.",
        note="left to the operating system while it is not set, which sends large answers faster",
    ),
    works(
        "socket.receive.buffer.bytes",
        Type.INT,
        102400,
        "Size of the receive buffer of client sockets (SO_RCVBUF). -1 leaves it to the operating system.",
        note="left to the operating system while it is not set, which takes large batches faster",
    ),
    works(
        "socket.request.max.bytes",
        Type.INT,
        104857600,
        "Largest request taken, in bytes. A longer one closes the connection before anything of it is read.",
        at_least(1),
    ),
    works(
        "socket.listen.backlog.size",
        Type.INT,
        50,
        "How many connections the operating system may hold before the broker has accepted them.",
        at_least(1),
    ),
    works(
        "max.connections",
        Type.INT,
        INT_MAX,
        "How many connections may be open at once, on all listeners and, unless it has a limit of its own, on each. At "
        "the limit, new ones wait until another closes. The listener between brokers, where there are others, does not "
        "wait for them: the connection of another listener that was idle for longest is closed.",
        at_least(0),
        scope=Scope.CLUSTER,
    ),
    works(
        "max.connections.per.ip",
        Type.INT,
        INT_MAX,
        "How many connections one client address may have open. More are closed at once. 0 needs overrides.",
        at_least(0),
        scope=Scope.CLUSTER,
    ),
    works(
        "max.connections.per.ip.overrides",
        Type.STRING,
        "",
        "Other limits for single addresses or host names, as host:count pairs.",
        Check("host:count pairs", _counts),
        scope=Scope.CLUSTER,
    ),
    works(
        "max.connection.creation.rate",
        Type.INT,
        INT_MAX,
        "How many new connections per second the broker accepts, on all listeners but the one between brokers and, "
        "unless it has a limit of its own, on each. Over it, new ones wait for up to quota.window.size.seconds.",
        at_least(0),
        scope=Scope.CLUSTER,
    ),
    works(
        "connections.max.idle.ms",
        Type.LONG,
        600000,
        "A connection without a request for this long is closed. A negative value sets no limit.",
    ),
    works(
        "fetch.max.bytes",
        Type.INT,
        57671680,
        "Largest answer to one Fetch request, in bytes; a single larger batch is still sent whole.",
        at_least(1024),
    ),
    works(
        "max.incremental.fetch.session.cache.slots",
        Type.INT,
        1000,
        "How many incremental fetch sessions (KIP-227) the broker remembers. With 0, clients send full requests.",
        at_least(0),
    ),
    works(
        "max.request.partition.size.limit",
        Type.INT,
        2000,
        "How many partitions one DescribeTopicPartitions answer may hold.",
        at_least(1),
    ),
    works(
        "delete.topic.enable",
        Type.BOOLEAN,
        True,
        "Whether topics can be deleted. If not, DeleteTopics is answered with TOPIC_DELETION_DISABLED.",
    ),
    works(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        True,
        "Whether a missing topic is created when a client requests its metadata (and allows that).",
    ),
    works(
        "num.partitions",
        Type.INT,
        1,
        "How many partitions a topic gets when the request to create it does not say.",
        at_least(1),
    ),
    works(
        "default.replication.factor",
        Type.INT,
        1,
        "How many replicas a topic gets when the request to create it does not say; at most one per live broker.",
    ),
    no_effect("num.network.threads", Type.INT, 3, _ONE_LOOP, at_least(1), scope=Scope.CLUSTER),
    no_effect("num.io.threads", Type.INT, 8, _ONE_LOOP, at_least(1), scope=Scope.CLUSTER),
    no_effect("background.threads", Type.INT, 10, _ONE_LOOP, at_least(1), scope=Scope.CLUSTER),
    no_effect(
        "queued.max.requests",
        Type.INT,
        500,
        "there is no request queue: a connection is read again when its request is answered",
        at_least(1),
    ),
    no_effect(
        "queued.max.request.bytes",
        Type.LONG,
        -1,
        "there is no request queue: a connection is read again when its request is answered",
    ),
    works(
        "request.timeout.ms",
        Type.INT,
        30000,
        "How long the controller waits for a broker's answer before it asks again.",
    ),
    no_effect("socket.connection.setup.timeout.ms", Type.LONG, 10000, _AS_THE_REQUEST),
    no_effect("socket.connection.setup.timeout.max.ms", Type.LONG, 30000, _AS_THE_REQUEST),
    works(
        "telemetry.max.bytes",
        Type.INT,
        1048576,
        "The largest push of a client's metrics (KIP-714), as it comes; decompressed it may be eight times as large.",
        at_least(1),
    ),
    no_effect("fetch.purgatory.purge.interval.requests", Type.INT, 1000, "waiting requests are dropped when answered"),
    no_effect(
        "producer.purgatory.purge.interval.requests", Type.INT, 1000, "waiting requests are dropped when answered"
    ),
    no_effect(
        "delete.records.purgatory.purge.interval.requests", Type.INT, 1, "waiting requests are dropped when answered"
    ),
    only(
        "unstable.api.versions.enable",
        Type.BOOLEAN,
        False,
        "Whether unfinished API versions are offered to clients.",
        "only finished API versions are offered",
    ),
    only(
        "unstable.feature.versions.enable",
        Type.BOOLEAN,
        False,
        "Whether unfinished feature levels are offered.",
        "only finished features are offered",
    ),
    only(
        "create.topic.policy.class.name",
        Type.CLASS,
        None,
        "A Java class that may refuse new topics.",
        "Java classes cannot be loaded",
    ),
    only(
        "alter.config.policy.class.name",
        Type.CLASS,
        None,
        "A Java class that may refuse changes of settings.",
        "Java classes cannot be loaded",
    ),
    only(
        "config.providers",
        Type.LIST,
        (),
        "Names of Java classes that fill in values written as ${provider:path}.",
        "Java classes cannot be loaded",
    ),
    no_effect("server.max.startup.time.ms", Type.LONG, 2**63 - 1, "the start has no time limit", at_least(0)),
)

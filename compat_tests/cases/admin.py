"""Administration: topics, partitions, configurations, records and the cluster itself, with the errors Kafka gives."""

from __future__ import annotations

from compat_tests.cases import Names, case
from compat_tests.harness.checks import contents, read_topic, ready_topic, refused, sent, texts, visible, wait_until
from compat_tests.harness.client import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_TOPIC,
    MESSAGE_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Client,
    Message,
    Refused,
    Replicas,
)

TOPICS = "topics"
CONFIGS = "configurations"
CLUSTER = "cluster and records"


@case(TOPICS, "create with partitions; list; describe")
def create(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 4)
    assert topic in client.topics()
    found = client.describe_topic(topic)
    assert set(found) == {0, 1, 2, 3}
    for one in found.values():
        assert one.leader in client.describe_cluster().brokers
        assert len(one.replicas) == 1
        assert one.isr == one.replicas == (one.leader,)


@case(TOPICS, "create with replicas named by hand", needs=["named replicas"])
def create_assigned(client: Client, names: Names) -> None:
    broker = min(client.describe_cluster().brokers)
    topic = ready_topic(client, names(), 2, assignment=[[broker], [broker]])
    assert client.describe_topic(topic) == {n: Replicas(broker, (broker,), (broker,)) for n in range(2)}


@case(TOPICS, "create with the broker's defaults (-1)", needs=["default counts"])
def create_defaults(client: Client, names: Names) -> None:
    topic = names()
    client.create_topic(topic, -1, -1)
    wait_until(lambda: topic in client.topics(), "the topic in the list")
    broker = min(client.describe_cluster().brokers)
    wanted = int(client.broker_config(broker)["num.partitions"] or "")
    wait_until(lambda: visible(client, topic, wanted), f"{wanted} partitions")


@case(TOPICS, "validate only: nothing is created")
def validate_only(client: Client, names: Names) -> None:
    topic = names()
    client.create_topic(topic, 3, validate_only=True)
    assert topic not in client.topics()
    with refused(INVALID_PARTITIONS):
        client.create_topic(topic, 0, validate_only=True)


@case(TOPICS, "creating an existing topic is refused")
def duplicate(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    with refused(TOPIC_ALREADY_EXISTS):
        client.create_topic(topic, 2)
    with refused(TOPIC_ALREADY_EXISTS):
        client.create_topic(topic, 2, validate_only=True)
    assert len(client.describe_topic(topic)) == 1


@case(TOPICS, "an invalid name is refused: {}", over=("two words", "..", ".", "x" * 250, "umlaut-ä", "sl/ash"))
def invalid_names(client: Client, names: Names, name: str) -> None:
    with refused(INVALID_TOPIC):
        client.create_topic(name)


@case(TOPICS, "a name of 249 characters is accepted")
def long_name(client: Client, names: Names) -> None:
    topic = names()
    topic = ready_topic(client, topic + "x" * (249 - len(topic)))
    client.produce(topic, texts(2))
    assert len(read_topic(client, topic, 2)) == 2
    client.delete_topic(topic)


@case(TOPICS, "names that collide in metrics (. and _) are refused")
def collision(client: Client, names: Names) -> None:
    stem = names()
    ready_topic(client, f"{stem}.a_b")
    with refused(INVALID_TOPIC):
        client.create_topic(f"{stem}_a.b")


@case(TOPICS, "too many replicas are refused")
def replication(client: Client, names: Names) -> None:
    with refused(INVALID_REPLICATION_FACTOR):
        client.create_topic(names(), 1, 50)
    with refused(INVALID_REPLICATION_FACTOR):
        client.create_topic(names(), 1, 0)


@case(TOPICS, "no partitions are refused")
def no_partitions(client: Client, names: Names) -> None:
    with refused(INVALID_PARTITIONS):
        client.create_topic(names(), 0)


@case(TOPICS, "a replica on an unknown broker is refused", needs=["named replicas"])
def bad_assignment(client: Client, names: Names) -> None:
    with refused(INVALID_REPLICA_ASSIGNMENT):
        client.create_topic(names(), assignment=[[4711]])


@case(TOPICS, "delete: gone, and usable again, empty")
def delete(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 2)
    # A producer that stayed would ask for its topic's metadata now and then, and that creates the topic again.
    client.produce(topic, texts(5, "old"), fresh=True)
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topics(), "the topic is gone from the list")
    ready_topic(client, topic)
    messages = texts(3, "new")
    client.produce(topic, messages)
    assert contents(read_topic(client, topic, 3)) == sent(messages)


@case(TOPICS, "deleting an unknown topic is refused")
def delete_unknown(client: Client, names: Names) -> None:
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        client.delete_topic(names())


@case(TOPICS, "add partitions; records go there")
def more_partitions(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(2))
    client.create_partitions(topic, 3)
    wait_until(lambda: visible(client, topic, 3), "three partitions")
    client.produce(topic, texts(4, partition=2), fresh=True)
    assert sorted((one.partition, one.offset) for one in read_topic(client, topic, 6, 3)) == [
        *((0, 0), (0, 1)),
        *((2, 0), (2, 1), (2, 2), (2, 3)),
    ]


@case(TOPICS, "fewer or equally many partitions are refused")
def fewer_partitions(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), 3)
    for total in (3, 2):
        with refused(INVALID_PARTITIONS):
            client.create_partitions(topic, total)
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        client.create_partitions(names(), 2)


@case(TOPICS, "__consumer_offsets is listed once a group exists")
def internal_topic(client: Client, names: Names) -> None:
    topic, group = ready_topic(client, names()), names("group")
    consumer = client.consumer(assign=[(topic, 0)], group=group)
    try:
        consumer.commit({(topic, 0): 0})
    finally:
        consumer.close()
    wait_until(lambda: "__consumer_offsets" in client.topics(), "the topic in the list")


@case(CONFIGS, "a topic's configuration: defaults and what was given")
def describe(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"retention.ms": "123456", "max.message.bytes": "54321"})
    found = client.topic_config(topic)
    assert (found["retention.ms"], found["max.message.bytes"]) == ("123456", "54321")
    assert found["cleanup.policy"] == "delete"
    assert found["compression.type"] == "producer"
    assert found["min.insync.replicas"] == "1"
    assert found["segment.bytes"] == "1073741824"
    assert found["message.timestamp.type"] == "CreateTime"


@case(CONFIGS, "alter a topic's configuration, and back", needs=["settings back to defaults"])
def alter(client: Client, names: Names) -> None:
    topic = ready_topic(client, names(), config={"retention.ms": "111"})
    client.alter_topic_config(topic, set={"retention.ms": "222", "retention.bytes": "5000"})
    wait_until(lambda: client.topic_config(topic)["retention.ms"] == "222", "the new value")
    assert client.topic_config(topic)["retention.bytes"] == "5000"
    client.alter_topic_config(topic, delete=["retention.ms"])
    wait_until(lambda: client.topic_config(topic)["retention.ms"] == "604800000", "the default again")
    assert client.topic_config(topic)["retention.bytes"] == "5000"


@case(CONFIGS, "an altered max.message.bytes takes effect")
def alter_takes_effect(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, [Message(bytes(5000), None, 0)])
    client.alter_topic_config(topic, set={"max.message.bytes": "1000"})
    wait_until(lambda: client.topic_config(topic)["max.message.bytes"] == "1000", "the new value")

    def is_refused() -> bool:
        try:
            client.produce(topic, [Message(bytes(5000), None, 0)])
        except Refused as refusal:
            if refusal.code != MESSAGE_TOO_LARGE:
                raise
            return True
        return False

    # What is described may not be in force yet.
    wait_until(is_refused, "a refusal")


@case(CONFIGS, "an unknown key or a bad value is refused when creating")
def bad_config(client: Client, names: Names) -> None:
    for config in ({"no.such.key": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}, {"segment.bytes": "-5"}):
        with refused(INVALID_CONFIG):
            client.create_topic(names(), config=config)


@case(CONFIGS, "an unknown key or a bad value is refused when altering")
def bad_alter(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    for config in ({"no.such.key": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}):
        with refused(INVALID_CONFIG):
            client.alter_topic_config(topic, set=config)
    assert client.topic_config(topic)["retention.ms"] == "604800000"


@case(CONFIGS, "the configuration of an unknown topic is refused")
def alter_unknown(client: Client, names: Names) -> None:
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        client.alter_topic_config(names(), set={"retention.ms": "1"})


@case(CONFIGS, "a broker's configuration")
def describe_broker(client: Client, names: Names) -> None:
    broker = min(client.describe_cluster().brokers)
    found = client.broker_config(broker)
    assert int(found["num.partitions"] or "") >= 1
    assert int(found["message.max.bytes"] or "") >= 1_000_000
    assert found["auto.create.topics.enable"] in ("true", "false")
    assert "log.retention.ms" in found
    assert "advertised.listeners" in found


@case(CLUSTER, "describe the cluster")
def cluster(client: Client, names: Names) -> None:
    found = client.describe_cluster()
    assert found.controller in found.brokers
    assert found.cluster_id
    assert all(host and port > 0 for host, port in found.brokers.values())


@case(CLUSTER, "delete records: the beginning moves")
def delete_records(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(30), batch_bytes=300)
    assert client.delete_records((topic, 0), 12) == 12
    records = read_topic(client, topic, 18)
    assert [one.offset for one in records] == list(range(12, 30))
    assert client.delete_records((topic, 0), -1) == 30
    client.produce(topic, texts(1, "after"))
    assert [(one.offset, one.value) for one in read_topic(client, topic, 1)] == [(30, b"after-0")]


@case(CLUSTER, "deleting records beyond the end is refused")
def delete_beyond(client: Client, names: Names) -> None:
    topic = ready_topic(client, names())
    client.produce(topic, texts(3))
    with refused(OFFSET_OUT_OF_RANGE):
        client.delete_records((topic, 0), 4)


@case(CLUSTER, "a topic nobody knows is unknown", needs=["metadata without creation"])
def unknown_topic(client: Client, names: Names) -> None:
    name = names()
    with refused(UNKNOWN_TOPIC_OR_PARTITION):
        client.describe_topic(name)
    assert name not in client.topics()

"""Layers, getters, refusals and warnings of BrokerConfig."""

from pathlib import Path

import pytest

from barnabas.server.config.broker import BrokerConfig, load
from barnabas.server.config.problems import SettingsRefused, refusal, shown
from barnabas.server.config.properties import PropertiesError
from barnabas.server.settings import BROKER, Support
from barnabas.server.settings.endpoints import ListenAddress


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_values({key.replace("_", "."): value for key, value in settings.items()})


def problems(values: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(SettingsRefused) as caught:
        BrokerConfig.from_values(values)
    return caught.value.problems


def notices(values: dict[str, str]) -> list[str]:
    return [notice.text for notice in BrokerConfig.from_values(values).notices]


# -- refused by name -------------------------------------------------------------------------------

REFUSED = {
    "log.dirs": "/a,/a",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "authorizer.class.name": "org.example.Authorizer",
    "super.users": "admin",
    "allow.everyone.if.no.acl.found": "no",
    "sasl.enabled.mechanisms": "EXTERNAL",
    "sasl.kerberos.service.name": "kafka",
    "ssl.client.auth": "always",
    "ssl.enabled.protocols": "TLSv1.1,TLSv1.2",
    "ssl.engine.factory.class": "org.example.Factory",
    "security.inter.broker.protocol": "SSL",
    "control.plane.listener.name": "CONTROLLER",
    "replica.selector.class": "org.example.Rack",
    "inter.broker.protocol.version": "0.11.0",
    "offsets.topic.compression.codec": "1",
    "offsets.commit.required.acks": "2",
    "group.coordinator.rebalance.protocols": "consumer,streams",
    "create.topic.policy.class.name": "org.example.Policy",
    "config.providers": "file",
    "remote.log.storage.system.enable": "true",
    "process.roles": "controller",
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "listeners": "SASL_SSL://:9092",
    "advertised.listeners": "PLAINTEXT://0.0.0.0:9092",
    "listener.security.protocol.map": "PLAINTEXT:TLS",
    "inter.broker.listener.name": "OTHER",
    "broker.id": "-1",
    "num.partitions": "0",
    "message.max.bytes": "lots",
    "compression.type": "brotli",
    "log.retention.ms": "0",
    "log.roll.ms": "0",
    "max.connections.per.ip": "0",
    "max.connections.per.ip.overrides": "localhost",
    "auto.create.topics.enable": "yes",
    "listener.name.internal.max.connections.per.ip": "5",
    "listener.name.internal.ssl.client.auth": "sometimes",
    "listener.name.internal.plain.ssl.client.auth": "none",
    "listener.name.internal.plan.sasl.jaas.config": "x",
    "listener.name.internal.sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.internal.plain.sasl.login.class": "x",
}


@pytest.mark.parametrize("key", REFUSED)
def test_refusal_names_key_and_value_and_nothing_else(key: str) -> None:
    texts = problems({key: REFUSED[key]})
    assert len(texts) == 1
    assert texts[0].startswith(f"{key}={shown(key, REFUSED[key])} is refused: ")
    assert texts[0].endswith(".")
    assert texts[0].count("\n") == 0


@pytest.mark.parametrize(
    "row", [row for row in BROKER.values() if row.support is Support.ONLY], ids=lambda row: row.name
)
def test_what_we_do_anyway_is_taken(row) -> None:
    if row.default_text is not None:
        assert notices({row.name: row.default_text}) == []
    else:
        assert notices({row.name: ""}) == []


def test_all_problems_are_reported_together() -> None:
    texts = problems({"process.roles": "controller", "num.partitions": "0", "listeners": "nonsense"})
    assert [text.split("=")[0] for text in texts] == ["process.roles", "num.partitions", "listeners"]


def test_secrets_are_never_shown() -> None:
    (text,) = problems({"sasl.oauthbearer.client.credentials.client.secret": "hunter2"})
    assert "hunter2" not in text
    assert "[hidden]" in text
    for key in ("sasl.jaas.config", "my.custom.password", "vendor.api.secret"):
        assert shown(key, "hunter2") == "[hidden]"
    assert "hunter2" not in "".join(notices({"my.custom.password": "hunter2"}))
    assert "hunter2" not in repr(BrokerConfig.from_values({"my.custom.password": "hunter2"}))
    assert shown("num.partitions", "3") == "3"
    assert shown("x", "y" * 500) == "y" * 200 + "…"


# -- warnings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", [row for row in BROKER.values() if row.support is Support.NO_EFFECT], ids=lambda row: row.name
)
def test_settings_without_effect_warn_once_and_start(row) -> None:
    text = (
        row.default_text or {"INT": "1", "STRING": "x", "PASSWORD": "x", "LIST": "x", "BOOLEAN": "false"}[row.type.name]
    )
    assert notices({row.name: text}) == [f"{row.name}={shown(row.name, text)} has no effect here: {row.note}"]


def test_a_setting_that_works_says_nothing() -> None:
    assert notices({"num.partitions": "3", "log.retention.hours": "24", "log.dirs": "/data"}) == []


@pytest.mark.parametrize(
    "key",
    ["offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"],
)
def test_what_a_broker_alone_can_never_have_is_said(key: str) -> None:
    (notice,) = BrokerConfig.from_values({key: "3"}).notices
    assert notice.text.startswith(f"{key}=3 makes ")
    assert not BrokerConfig.from_values({key: "3", "zookeeper.connect": "zk:2181"}).notices
    assert not BrokerConfig.from_values({key: "1"}).notices


def test_unknown_settings_warn_and_guess() -> None:
    assert notices({"num.partition": "3"}) == ["num.partition=3 is unknown and is ignored (is num.partitions meant?)"]
    assert notices({"confluent.x": "3"}) == ["confluent.x=3 is unknown and is ignored"]
    assert notices({"port": "9092"}) == ["port=9092 was removed from Apache Kafka and is ignored; use listeners"]


def test_a_kraft_file_of_one_node_starts() -> None:
    made = BrokerConfig.from_values(
        {
            "process.roles": "broker,controller",
            "node.id": "7",
            "controller.quorum.voters": "7@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "inter.broker.listener.name": "PLAINTEXT",
        }
    )
    assert made.broker_id == 7
    assert [str(one) for one in made.listeners] == ["PLAINTEXT://localhost:9092"]
    assert {notice.key for notice in made.notices} == {
        "process.roles",
        "controller.quorum.voters",
        "controller.listener.names",
    }


STOCK = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def test_the_stock_file_of_kafka_makes_a_member_of_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK)
    made = load(file)
    assert made.broker_id == 0
    assert made.is_clustered
    assert made.log_dir == "/tmp/kafka-logs"
    assert made.get_int("group.initial.rebalance.delay.ms") == 0
    file.write_text(STOCK.replace("zookeeper.connect=", "#"))
    assert not load(file).is_clustered


# -- the number of a broker ------------------------------------------------------------------------


def test_the_number_in_a_cluster_is_generated_unless_given() -> None:
    assert config().broker_id == 1
    assert config(zookeeper_connect="z").broker_id == -1
    assert config(zookeeper_connect="z", broker_id="-1").broker_id == -1
    assert config(zookeeper_connect="z", broker_id="0").broker_id == 0
    assert config(zookeeper_connect="z", node_id="3").broker_id == 3
    generated = config(zookeeper_connect="z").with_broker_id(1001)
    assert (generated.broker_id, generated.get_int("node.id")) == (1001, 1001)
    assert generated.with_dynamic(cluster={"num.io.threads": "2"}).broker_id == 1001


@pytest.mark.parametrize(
    ("key", "in_cluster"),
    [
        ("offsets.topic.replication.factor", 3),
        ("transaction.state.log.replication.factor", 3),
        ("transaction.state.log.min.isr", 2),
        ("share.coordinator.state.topic.replication.factor", 3),
        ("share.coordinator.state.topic.min.isr", 2),
    ],
)
def test_coordinators_topics_are_replicated_in_a_cluster(key: str, in_cluster: int) -> None:
    assert config().get_int(key) == 1
    assert config(zookeeper_connect="z").get_int(key) == in_cluster
    assert config(**{"zookeeper_connect": "z", key.replace(".", "_"): "4"}).get_int(key) == 4


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"zookeeper.connect": "z", "broker.id.generation.enable": "false"}, "broker.id=-1 is refused: it must be at"),
        (
            {"zookeeper.connect": "z", "broker.id": "1001"},
            "broker.id=1001 is refused: it must not be above reserved.broker.max.id=1000 while "
            "broker.id.generation.enable is true.",
        ),
        ({"zookeeper.connect": "z", "broker.id": "-2"}, "broker.id=-2 is refused: it must be at least -1."),
        ({"node.id": "-1"}, "node.id=-1 is refused: it must be at least 0."),
    ],
)
def test_numbers_that_cannot_be(values: dict[str, str], why: str) -> None:
    (problem,) = problems(values)
    assert problem.startswith(why)


@pytest.mark.parametrize(
    "values",
    [
        {"zookeeper.connect": "z", "broker.id": "1001", "broker.id.generation.enable": "false"},
        {"zookeeper.connect": "z", "broker.id": "1001", "reserved.broker.max.id": "2000"},
        {"broker.id": "1001"},
    ],
)
def test_numbers_above_the_reserved_ones(values: dict[str, str]) -> None:
    assert BrokerConfig.from_values(values).broker_id == 1001


# -- sources ---------------------------------------------------------------------------------------


def test_command_line_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nbroker.rack=file\nmessage.max.bytes=1\nnum.partitions=2\n")
    environ = {"KAFKA_BROKER_RACK": "environment", "KAFKA_MESSAGE_MAX_BYTES": "2", "KAFKA_OPTS": "-Xmx1g", "HOME": "/"}
    made = load(file, environ=environ, overrides=["message.max.bytes=3", "log.dirs=/a=b"])
    assert made.get_int("num.partitions") == 2
    assert made.rack == "environment"
    assert made.get_int("message.max.bytes") == 3
    assert made.log_dir == "/a=b"
    assert made.notices == ()


def test_origins_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "my.properties"
    file.write_text("\nnum.partitions=x\nnum.io.threads=4\n")
    with pytest.raises(SettingsRefused) as caught:
        load(file, environ={"KAFKA_DEFAULT_REPLICATION_FACTOR": "y"}, overrides=["broker.id=z"])
    assert caught.value.problems == (
        "num.partitions=x is refused: it must be a whole number (my.properties line 2).",
        "default.replication.factor=y is refused: it must be a whole number "
        "(environment variable KAFKA_DEFAULT_REPLICATION_FACTOR).",
        "broker.id=z is refused: it must be a whole number (--set).",
    )


@pytest.mark.parametrize("text", ["num.partitions", "=3", ""])
def test_set_needs_key_and_value(text: str) -> None:
    with pytest.raises(SettingsRefused, match="key=value"):
        load(overrides=[text])


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    (tmp_path / "bad").write_text("a=\\u1\n")
    with pytest.raises(PropertiesError, match="line 1"):
        load(tmp_path / "bad")


# -- values ----------------------------------------------------------------------------------------


def test_typed_getters() -> None:
    made = config(broker_rack="r1", log_cleanup_policy="compact, delete", log_cleaner_min_cleanable_ratio="0.25")
    assert made.get_int("num.partitions") == 1
    assert made.get_bool("auto.create.topics.enable") is True
    assert made.get_str("compression.type") == "producer"
    assert made.get_float("log.cleaner.min.cleanable.ratio") == 0.25
    assert made.get_list("log.cleanup.policy") == ("compact", "delete")
    assert made.get_optional_int("log.retention.ms") is None
    assert made.get_optional_str("broker.rack") == "r1"
    assert made.is_set("broker.rack")
    assert not made.is_set("num.partitions")
    for getter, key in (
        (made.get_int, "compression.type"),
        (made.get_int, "auto.create.topics.enable"),
        (made.get_int, "log.retention.ms"),
        (made.get_bool, "num.partitions"),
        (made.get_str, "num.partitions"),
        (made.get_float, "num.partitions"),
        (made.get_list, "compression.type"),
    ):
        with pytest.raises(TypeError, match=key):
            getter(key)
    with pytest.raises(KeyError):
        made.get_int("no.such.key")


def test_immutable() -> None:
    made = config()
    with pytest.raises(AttributeError):
        made.notices = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.static["a"] = "b"  # type: ignore[index]


@pytest.mark.parametrize("given", [{"broker.id": "5"}, {"node.id": "5"}, {"broker.id": "5", "node.id": "5"}])
def test_two_names_for_the_id(given: dict[str, str]) -> None:
    made = BrokerConfig.from_values(given)
    assert (made.broker_id, made.get_int("node.id")) == (5, 5)


def test_two_names_for_the_id_must_agree() -> None:
    assert problems({"broker.id": "5", "node.id": "6"}) == ("node.id=6 is refused: it must equal broker.id=5.",)


# -- listeners -------------------------------------------------------------------------------------


def advertised(ports: dict[str, int], **settings: str) -> list[str]:
    return [str(one) for one in config(**settings).advertised(ports, "this.host")]


def test_default_listener() -> None:
    assert config().listeners == (ListenAddress("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert advertised({"PLAINTEXT": 9092}) == ["PLAINTEXT://this.host:9092"]


def test_advertised_takes_the_bound_port_and_this_host() -> None:
    assert advertised({"PLAINTEXT": 4711}, listeners="PLAINTEXT://127.0.0.1:0") == ["PLAINTEXT://127.0.0.1:4711"]
    assert advertised({"PLAINTEXT": 4711}, listeners="PLAINTEXT://0.0.0.0:0") == ["PLAINTEXT://this.host:4711"]
    assert advertised(
        {"PLAINTEXT": 4711},
        listeners="PLAINTEXT://[::]:0",
        advertised_listeners="PLAINTEXT://broker.example.org:0",
    ) == ["PLAINTEXT://broker.example.org:4711"]


def test_several_listeners() -> None:
    made = BrokerConfig.from_values(
        {
            "listeners": "OUTSIDE://:9092,INSIDE://:9093",
            "advertised.listeners": "OUTSIDE://a:443,INSIDE://b:9093",
            "listener.security.protocol.map": "outside:plaintext,INSIDE:PLAINTEXT,OTHER:SSL",
            "inter.broker.listener.name": "inside",
        }
    )
    assert [one.name for one in made.listeners] == ["OUTSIDE", "INSIDE"]
    assert made.inter_broker_listener == "INSIDE"
    assert [str(one) for one in made.advertised({}, "h")] == ["OUTSIDE://a:443", "INSIDE://b:9093"]
    assert config().inter_broker_listener == "PLAINTEXT"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"listeners": ""}, "it must name a listener"),
        ({"listeners": "A://:1", "listener.security.protocol.map": "A:PLAINTEXT"}, "inter.broker.listener.name"),
        ({"advertised.listeners": "INTERNAL://h:1"}, "must be in listener.security.protocol.map"),
        (
            {"advertised.listeners": "B://h:1", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"},
            "must be one of the listeners: PLAINTEXT",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "only one of it and security.inter.broker.protocol",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
    ],
)
def test_listener_rules(values: dict[str, str], why: str) -> None:
    (text,) = problems(values)
    assert why in text


def test_connection_limits() -> None:
    made = BrokerConfig.from_values(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5,example.org:7"}
    )
    assert made.max_connections_per_ip_overrides == {"127.0.0.1": 5, "example.org": 7}


def test_pairs_of_limits() -> None:
    assert problems({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"}) == (
        refusal("group.min.session.timeout.ms", "10", "it must not be above group.max.session.timeout.ms=9"),
    )


# -- dynamic layers --------------------------------------------------------------------------------


def test_dynamic_layers() -> None:
    static = config(message_max_bytes="1", log_segment_bytes="100")
    made = static.with_dynamic(
        cluster={"message.max.bytes": "2", "log.retention.ms": "5"}, broker={"message.max.bytes": "3"}
    )
    assert made.get_int("message.max.bytes") == 3
    assert made.get_int("log.retention.ms") == 5
    assert made.get_int("log.segment.bytes") == 100
    assert static.get_int("message.max.bytes") == 1
    assert made.with_dynamic(cluster={"message.max.bytes": "2"}).get_int("message.max.bytes") == 2
    assert made.with_dynamic().get_int("message.max.bytes") == 1
    assert made.is_set("log.retention.ms")


def test_bad_stored_values_are_left_out_with_a_notice() -> None:
    made = config().with_dynamic(
        cluster={"message.max.bytes": "x", "sasl.enabled.mechanisms": "OTHER", "foo": "bar", "log.segment.bytes": "500"}
    )
    assert made.get_int("message.max.bytes") == 1048588
    assert made.get_int("log.segment.bytes") == 500
    assert {notice.key for notice in made.notices} == {"message.max.bytes", "sasl.enabled.mechanisms", "foo"}
    assert made.cluster_defaults == {"foo": "bar", "log.segment.bytes": "500"}


def test_rules_over_several_keys_leave_out_invalid_ones() -> None:
    made = config().with_dynamic(
        cluster={"log.segment.bytes": "500", "max.connections.per.ip": "0"},
        broker={"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"},
    )
    assert made.get_int("log.segment.bytes") == 500
    assert made.get_int("max.connections.per.ip") == 2**31 - 1
    assert made.get_int("log.cleaner.min.compaction.lag.ms") == 9
    assert [n.key for n in made.notices if "left out" in n.text] == [
        "max.connections.per.ip",
        "log.cleaner.max.compaction.lag.ms",
    ]


def test_notices_of_the_start_are_repeated_alike_later() -> None:
    made = load(overrides=["num.io.threads=3"]).with_dynamic(
        cluster={"num.network.threads": "4", "num.io.threads": "5"}
    )
    assert [notice.text for notice in made.notices] == [
        "num.io.threads=3 has no effect here: one event loop serves all connections and requests (--set)",
        "num.network.threads=4 has no effect here: one event loop serves all connections and requests",
        "num.io.threads=5 has no effect here: one event loop serves all connections and requests",
    ]

"""What a cluster on one machine consists of: settings, ports and directories by broker."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from barnabas import cluster as kit
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.machine.plan import Plan, Wishes, _defaults, make_plan

FREE = itertools.count(40001)


def plan(brokers: int = 3, **said: Any) -> Plan:
    return make_plan(
        Wishes(brokers=brokers, **said), temporary=lambda: "/tmp/made", free_port=lambda: next(FREE), port=9092
    )


def refused(*args: Any, **said: Any) -> tuple[str, ...]:
    with pytest.raises(SettingsRefused) as caught:
        plan(*args, **said)
    return caught.value.problems


def test_nothing_said() -> None:
    made = plan()
    assert (made.directory, made.store, made.socket) == ("/tmp/made", "/tmp/made/store", "/tmp/made/store/socket")
    assert [broker.name for broker in made.brokers] == ["broker-1", "broker-2", "broker-3"]
    for number, broker in enumerate(made.brokers, 1):
        config = broker.config
        assert config.broker_id == number
        assert config.is_clustered
        assert not config.uses_zookeeper
        assert config.store_socket == made.socket
        assert config.log_dirs == [f"/tmp/made/broker-{number}"]
        assert [(each.host, each.port) for each in config.listeners] == [("127.0.0.1", 9091 + number)]
        assert config.get_int("default.replication.factor") == 3
        assert config.get_int("min.insync.replicas") == 2
        assert config.get_int("zookeeper.session.timeout.ms") == 6000
        assert config.get_optional_int("zookeeper.connection.timeout.ms") == 18_000
        assert config.get_int("group.initial.rebalance.delay.ms") == 0


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 3, 2)])
def test_replicas_are_no_more_than_brokers(brokers: int, replicas: int, in_sync: int) -> None:
    config = plan(brokers).brokers[0].config
    for key in ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert config.get_int(f"{key}.replication.factor") == replicas
    assert config.get_int("min.insync.replicas") == config.get_int("transaction.state.log.min.isr") == in_sync
    assert config.get_int("share.coordinator.state.topic.min.isr") == in_sync


@pytest.mark.parametrize("brokers", range(1, 5))
def test_clusters_of_the_kit_have_the_same(brokers: int) -> None:
    # That does without a delay because its brokers are those of `barnabas dev`.
    by_dev = {"group.initial.rebalance.delay.ms": "0"}
    assert kit._defaults(brokers) | by_dev == _defaults({}, Wishes(brokers=brokers))


def test_what_is_said_holds(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=PLAINTEXT://0.0.0.0:7000,INNER://:7100,ANY://:0\n"
        "advertised.listeners=PLAINTEXT://host:7000,INNER://[::1]:7100,ANY://x:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,ANY:PLAINTEXT\n"
        "inter.broker.listener.name=INNER\nlog.dirs=/a, /b\nmin.insync.replicas=1\n"
    )
    made = plan(
        2,
        file=str(file),
        environ={"KAFKA_DEFAULT_REPLICATION_FACTOR": "1", "KAFKA_NUM_PARTITIONS": "5"},
        overrides=["num.partitions=7"],
    )
    second = made.brokers[1].config
    assert [each.port for each in second.listeners] == [7001, 7101, 0]
    assert [str(each.port) for each in second.advertised({"ANY": 5}, "h")] == ["7001", "7101", "5"]
    assert second.advertised({"ANY": 5}, "h")[1].host == "::1"
    assert second.log_dirs == ["/a/broker-2", "/b/broker-2"]
    assert made.store == "/a/store"
    assert second.get_int("min.insync.replicas") == second.get_int("default.replication.factor") == 1
    assert second.get_int("num.partitions") == 7
    assert second.get_int("group.initial.rebalance.delay.ms") == 3000, "with a file it is as for a broker alone"


def test_ports() -> None:
    assert [each.ports for each in plan(2, port=5000).brokers] == [[5000], [5001]]
    first, second = plan(2, port=0).brokers
    assert first.ports[0] + 1 == second.ports[0] > 40000
    assert refused(2, port=65535) == (
        "listeners=PLAINTEXT://127.0.0.1:65536 is refused: the port of PLAINTEXT must be from 0 to 65535 (--set).",
    )


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("broker.id=1", "broker.id=1 is refused: barnabas cluster gives each broker its own."),
        ("node.id=1", "node.id=1 is refused: barnabas cluster gives each broker its own."),
        ("zookeeper.connect=z", "zookeeper.connect=z is refused: barnabas cluster gives each broker its own."),
        (
            "metadata.store.socket=s",
            "metadata.store.socket=s is refused: barnabas cluster gives each broker its own.",
        ),
        ("num.partitions=0", "num.partitions=0 is refused: it must be at least 1 (--set)."),
        (
            "listeners=A://:7000,B://:7001",
            "listeners=A://:7001,B://:7002 is refused: port 7001 is of two brokers; ports of one broker must be at "
            "least as far apart as there are brokers.",
        ),
    ],
)
def test_what_cannot_be(setting: str, problem: str) -> None:
    more = ["listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name=A"]
    assert refused(overrides=[setting, *(more if "A://" in setting else [])]) == (problem,)


def test_what_cannot_be_combined() -> None:
    listeners = "listeners=PLAINTEXT://:7000"
    assert refused(port=1, overrides=[listeners]) == (f"{listeners} is refused: it cannot be combined with --port.",)
    assert refused(data="/d", overrides=["log.dirs=/x"]) == (
        "log.dirs=/x is refused: it cannot be combined with --data.",
    )


def test_the_settings_of_a_command_line_make_the_same_broker() -> None:
    """What a child is given says the same as what was checked."""
    from barnabas.server.config.broker import load

    made = plan(2, overrides=["num.partitions=7"], data="/d")
    for broker in made.brokers:
        config = load(None, environ={}, overrides=["num.partitions=7", *broker.settings])
        assert dict(config.static) == dict(broker.config.static)

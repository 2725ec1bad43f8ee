"""AlterConfigs and IncrementalAlterConfigs: what they share and what they do not."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import AlterConfigsRequest, IncrementalAlterConfigsRequest
from barnabas.server.apis.configs import alter_configs, incremental_alter_configs
from barnabas.server.runtime import logs
from barnabas.server.tests.apis.fakes import World, context, over_the_wire, topic_image

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Resource = tuple[int, str, list[tuple[Any, ...]]]


async def incremental(
    world: World, *resources: Resource, validate_only: bool = False, version: int = 1
) -> list[tuple[int, str | None]]:
    """Resources are (type, name, [(key, operation, value)])."""
    request = IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in configs
                ],
            )
            for kind, name, configs in resources
        ],
    )
    answer = await incremental_alter_configs.handle(world, context(version), over_the_wire(request, version))  # type: ignore[arg-type]
    response = over_the_wire(answer, version)
    assert [(r.resource_type, r.resource_name) for r in response.responses] == [r[:2] for r in resources]
    return [(r.error_code, r.error_message) for r in response.responses]


async def replace(
    world: World, *resources: Resource, validate_only: bool = False, version: int = 2
) -> list[tuple[int, str | None]]:
    """Resources are (type, name, [(key, value)])."""
    request = AlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in resources
        ],
    )
    answer = await alter_configs.handle(world, context(version), over_the_wire(request, version))  # type: ignore[arg-type]
    response = over_the_wire(answer, version)
    assert [(r.resource_type, r.resource_name) for r in response.responses] == [r[:2] for r in resources]
    return [(r.error_code, r.error_message) for r in response.responses]


def stored(world: World) -> dict[str, str]:
    return dict(world.image.topics["orders"].config)


@pytest.mark.parametrize("version", [0, 1])
async def test_incremental_changes_only_what_is_named(version: int) -> None:
    world = World()
    world.image = world.image.with_topics([topic_image("orders", {"retention.ms": "1", "segment.bytes": "99"})])
    changes = [("retention.ms", SET, "5"), ("segment.bytes", DELETE, None), ("cleanup.policy", APPEND, "compact")]
    assert await incremental(world, (TOPIC, "orders", changes), version=version) == [(0, None)]
    assert stored(world) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert await incremental(world, (TOPIC, "orders", [("cleanup.policy", SUBTRACT, "delete")])) == [(0, None)]
    assert stored(world) == {"retention.ms": "5", "cleanup.policy": "compact"}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_replacing_takes_all_else_away(version: int) -> None:
    world = World()
    world.image = world.image.with_topics([topic_image("orders", {"retention.ms": "1", "segment.bytes": "99"})])
    assert await replace(world, (TOPIC, "orders", [("cleanup.policy", "compact")]), version=version) == [(0, None)]
    assert stored(world) == {"cleanup.policy": "compact"}
    assert await replace(world, (TOPIC, "orders", [])) == [(0, None)]
    assert stored(world) == {}


async def test_broker_settings_of_one_and_of_all() -> None:
    world = World()
    assert await incremental(
        world,
        (BROKER, "", [("message.max.bytes", SET, "10"), ("log.retention.ms", SET, "20")]),
        (BROKER, "1", [("message.max.bytes", SET, "30")]),
    ) == [(0, None), (0, None)]
    assert world.config.cluster_defaults == {"message.max.bytes": "10", "log.retention.ms": "20"}
    assert world.config.broker_overrides == {"message.max.bytes": "30"}
    assert world.config.get_int("message.max.bytes") == 30
    assert await incremental(world, (BROKER, "1", [("message.max.bytes", DELETE, None)])) == [(0, None)]
    assert world.config.get_int("message.max.bytes") == 10
    assert await replace(world, (BROKER, "", [("message.max.bytes", "40")])) == [(0, None)]
    assert world.config.cluster_defaults == {"message.max.bytes": "40"}


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
async def test_validate_only_changes_nothing(kind: int) -> None:
    world = World()
    name, key = ("orders", "retention.ms") if kind == TOPIC else ("", "log.retention.ms")
    assert await incremental(world, (kind, name, [(key, SET, "5")]), validate_only=True) == [(0, None)]
    assert await replace(world, (kind, name, [(key, "5")]), validate_only=True) == [(0, None)]
    ((code, message),) = await incremental(world, (kind, name, [(key, SET, "x")]), validate_only=True)
    assert code == (ErrorCode.INVALID_CONFIG if kind == TOPIC else ErrorCode.INVALID_REQUEST)
    assert f"{key}=x" in (message or "")
    assert world.writes == 0


async def test_a_client_metrics_subscription_is_made_changed_and_gone() -> None:
    world = World()
    name = "every client"
    changes = [("metrics", APPEND, "org.apache.kafka.consumer."), ("interval.ms", SET, "100")]
    assert await incremental(world, (CLIENT_METRICS, name, changes)) == [(0, None)]
    more = [("metrics", APPEND, "org.apache.kafka.producer."), ("match", SET, "client_id=a.*,client_source_port=9")]
    assert await incremental(world, (CLIENT_METRICS, name, more)) == [(0, None)]
    assert world.image.client_metrics == {
        name: {
            "metrics": "org.apache.kafka.consumer.,org.apache.kafka.producer.",
            "interval.ms": "100",
            "match": "client_id=a.*,client_source_port=9",
        }
    }
    gone = [(key, DELETE, None) for key in ("metrics", "interval.ms", "match")]
    assert await incremental(world, (CLIENT_METRICS, name, gone), validate_only=True) == [(0, None)]
    assert name in world.image.client_metrics
    assert await incremental(world, (CLIENT_METRICS, name, gone)) == [(0, None)]
    assert world.image.client_metrics == {}
    assert await replace(world, (CLIENT_METRICS, name, [("metrics", "*")])) == [(0, None)]
    assert world.image.client_metrics == {name: {"metrics": "*"}}


BAD = [
    (TOPIC, "nobody", "retention.ms", "5", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "", "retention.ms", "5", ErrorCode.INVALID_REQUEST),
    (TOPIC, "orders", "no.such.key", "5", ErrorCode.INVALID_CONFIG),
    (TOPIC, "orders", "retention.ms", "x", ErrorCode.INVALID_CONFIG),
    (TOPIC, "orders", "remote.storage.enable", "true", ErrorCode.INVALID_CONFIG),
    (TOPIC, "orders", "retention.ms", None, ErrorCode.INVALID_REQUEST),
    (BROKER, "2", "message.max.bytes", "5", ErrorCode.INVALID_REQUEST),
    (BROKER, "one", "message.max.bytes", "5", ErrorCode.INVALID_REQUEST),
    (BROKER, "1", "num.partitions", "5", ErrorCode.INVALID_REQUEST),
    (BROKER, "", "message.max.bytes", "x", ErrorCode.INVALID_REQUEST),
    (CLIENT_METRICS, "", "interval.ms", "5000", ErrorCode.INVALID_REQUEST),
    (CLIENT_METRICS, "x", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
    (CLIENT_METRICS, "x", "interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
    (CLIENT_METRICS, "x", "interval.ms", "often", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "x", "push.interval.ms", "5000", ErrorCode.INVALID_REQUEST),
    (CLIENT_METRICS, "x", "match", "client_id", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "x", "match", "client_id=", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "x", "match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "x", "match", "client_name=a", ErrorCode.INVALID_CONFIG),
    (CLIENT_METRICS, "x", "match", "client_id=(a", ErrorCode.INVALID_CONFIG),
    (GROUP, "", "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
    (GROUP, "x", "consumer.session.timeout.ms", "5", ErrorCode.INVALID_CONFIG),
    (GROUP, "x", "consumer.session.timeout.ms", "60001", ErrorCode.INVALID_CONFIG),
    (GROUP, "x", "consumer.session.timeout.ms", "x", ErrorCode.INVALID_CONFIG),
    (GROUP, "x", "consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
    (GROUP, "x", "share.auto.offset.reset", "by_guess", ErrorCode.INVALID_CONFIG),
    (GROUP, "x", "streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG),
    (GROUP, "x", "session.timeout.ms", "50000", ErrorCode.INVALID_CONFIG),
    (99, "x", "a", "b", ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("kind", "name", "key", "value", "code"), BAD)
async def test_refused_and_nothing_written(kind: int, name: str, key: str, value: str | None, code: ErrorCode) -> None:
    world = World()
    ((told, message),) = await incremental(world, (kind, name, [(key, SET, value)]))
    assert told == code
    assert message
    ((told, message),) = await replace(world, (kind, name, [(key, value)]))
    assert told == code
    assert message
    assert world.writes == 0


async def test_a_resource_changes_as_a_whole_or_not() -> None:
    world = World()
    changes = [("retention.ms", SET, "5"), ("segment.bytes", SET, "x")]
    ((code, _),) = await incremental(world, (TOPIC, "orders", changes))
    assert code == ErrorCode.INVALID_CONFIG
    assert stored(world) == {}


async def test_other_resources_go_on() -> None:
    world = World()
    answers = await incremental(
        world, (TOPIC, "nobody", [("retention.ms", SET, "5")]), (TOPIC, "orders", [("retention.ms", SET, "5")])
    )
    assert [code for code, _ in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert stored(world) == {"retention.ms": "5"}


async def test_a_resource_stands_once_and_so_does_a_key() -> None:
    world = World()
    once = (TOPIC, "orders", [("retention.ms", SET, "5")])
    answers = await incremental(world, once, once, (BROKER, "", [("log.retention.ms", SET, "5")]))
    assert [code for code, _ in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    ((code, message),) = await incremental(
        world, (TOPIC, "orders", [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)])
    )
    assert code == ErrorCode.INVALID_REQUEST
    assert "retention.ms" in (message or "")
    assert stored(world) == {}
    legacy = (TOPIC, "orders", [("retention.ms", "5")])
    assert [code for code, _ in await replace(world, legacy, legacy)] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("operation", [4, -1, 100])
async def test_unknown_operations(operation: int) -> None:
    ((code, _),) = await incremental(World(), (TOPIC, "orders", [("retention.ms", operation, "5")]))
    assert code == ErrorCode.INVALID_REQUEST


# -- log levels
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("barnabas.test.levels")
    root = logging.root.level
    yield made
    made.setLevel(logging.NOTSET)
    logging.root.setLevel(root)


async def test_levels_change_at_once(logger: logging.Logger) -> None:
    world = World()
    one = (BROKER_LOGGER, "1", [(logger.name, SET, "DEBUG")])
    assert await incremental(world, one, validate_only=True) == [(0, None)]
    assert logger.level == logging.NOTSET
    assert await incremental(world, one) == [(0, None)]
    assert logger.level == logging.DEBUG
    assert await incremental(world, (BROKER_LOGGER, "1", [(logger.name, DELETE, None)])) == [(0, None)]
    assert logger.level == logging.NOTSET
    assert await incremental(world, (BROKER_LOGGER, "1", [("root", SET, "ERROR")])) == [(0, None)]
    assert logging.root.level == logging.ERROR
    assert world.writes == 0


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("1", ("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("barnabas.test.levels", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("barnabas.test.levels", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", ("barnabas.test.levels", 9, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", ("barnabas.test.levels", SET, None), ErrorCode.INVALID_REQUEST),
        ("2", ("barnabas.test.levels", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", ("barnabas.test.levels", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_levels_refused(logger: logging.Logger, name: str, change: tuple[Any, ...], code: ErrorCode) -> None:
    before = logs.current_levels()
    ((told, message),) = await incremental(World(), (BROKER_LOGGER, name, [("root", SET, "FATAL"), change][-1:]))
    assert told == code
    assert message
    assert logs.current_levels() == before


async def test_a_wrong_level_changes_no_other(logger: logging.Logger) -> None:
    before = logging.root.level
    ((code, _),) = await incremental(
        World(), (BROKER_LOGGER, "1", [("root", SET, "FATAL"), (logger.name, SET, "LOUD")])
    )
    assert code == ErrorCode.INVALID_CONFIG
    assert logging.root.level == before


async def test_the_older_api_knows_no_log_levels() -> None:
    ((code, _),) = await replace(World(), (BROKER_LOGGER, "1", [("root", "INFO")]))
    assert code == ErrorCode.INVALID_REQUEST

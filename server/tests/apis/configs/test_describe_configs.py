"""DescribeConfigs: resources, sources, versions."""

from typing import Any

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.server.apis.configs import describe_configs
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime import logs
from barnabas.server.settings import TOPIC, Type
from barnabas.server.tests.apis.fakes import World, at_once, context, over_the_wire, topic_image

TOPIC_TYPE, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
VERSIONS = range(5)


def ask(
    world: World, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **flags: bool
) -> DescribeConfigsResponse.DescribeConfigsResult:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = over_the_wire(DescribeConfigsRequest(resources=[resource], **flags), version)
    response = over_the_wire(at_once(describe_configs.handle(world, context(version), request)), version)  # type: ignore[arg-type]
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: Any) -> dict[str, Any]:
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", VERSIONS)
def test_topic(version: int) -> None:
    world = World()
    world.image = world.image.with_topics([topic_image("orders", {"retention.ms": "5", "cleanup.policy": "compact"})])
    result = ask(world, TOPIC_TYPE, "orders", version=version)
    assert (result.error_code, result.error_message) == (0, None)
    configs = by_name(result)
    assert set(configs) == set(TOPIC)
    assert configs["retention.ms"].value == "5"
    assert configs["segment.bytes"].value == "1073741824"
    assert not configs["retention.ms"].read_only
    assert not configs["retention.ms"].is_sensitive
    if version == 0:
        assert (configs["retention.ms"].is_default, configs["segment.bytes"].is_default) == (False, True)
        assert configs["retention.ms"].config_source == -1
    else:
        assert (configs["retention.ms"].config_source, configs["segment.bytes"].config_source) == (1, 5)
    assert configs["retention.ms"].config_type == (Type.LONG if version >= 3 else 0)
    assert configs["cleanup.policy"].config_type == (Type.LIST if version >= 3 else 0)


def test_version_0_calls_what_a_topic_inherits_default() -> None:
    world = World(config=BrokerConfig.from_values({"log.segment.bytes": "500"}))
    assert by_name(ask(world, TOPIC_TYPE, "orders", version=0))["segment.bytes"].is_default
    assert not by_name(ask(world, BROKER, "1", version=0))["log.segment.bytes"].is_default
    assert by_name(ask(world, BROKER, "1", version=0))["num.partitions"].is_default


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_synonyms_if_asked(version: int) -> None:
    world = World()
    assert by_name(ask(world, TOPIC_TYPE, "orders", version=version))["segment.bytes"].synonyms == []
    configs = by_name(ask(world, TOPIC_TYPE, "orders", version=version, include_synonyms=True))
    (synonym,) = configs["segment.bytes"].synonyms
    assert (synonym.name, synonym.value, synonym.source) == ("log.segment.bytes", "1073741824", 5)


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_if_asked(version: int) -> None:
    world = World()
    assert by_name(ask(world, TOPIC_TYPE, "orders", version=version))["segment.bytes"].documentation is None
    configs = by_name(ask(world, TOPIC_TYPE, "orders", version=version, include_documentation=True))
    assert configs["segment.bytes"].documentation == TOPIC["segment.bytes"].setting.doc


@pytest.mark.parametrize("keys", [["retention.ms"], ["retention.ms", "no.such"]])
def test_some_keys(keys: list[str]) -> None:
    assert list(by_name(ask(World(), TOPIC_TYPE, "orders", keys))) == ["retention.ms"]


def test_no_keys_means_all() -> None:
    assert len(ask(World(), TOPIC_TYPE, "orders", []).configs) == len(TOPIC)


def test_broker_layers() -> None:
    world = World(config=BrokerConfig.from_values({"message.max.bytes": "1", "broker.rack": "r"}))
    world.config = world.config.with_dynamic(cluster={"log.retention.ms": "7"}, broker={"message.max.bytes": "3"})
    configs = by_name(ask(world, BROKER, "1", include_synonyms=True))
    assert (configs["message.max.bytes"].value, configs["message.max.bytes"].config_source) == ("3", 2)
    assert [s.source for s in configs["message.max.bytes"].synonyms] == [2, 4, 5]
    assert (configs["log.retention.ms"].value, configs["log.retention.ms"].config_source) == ("7", 3)
    assert (configs["broker.rack"].value, configs["broker.rack"].config_source) == ("r", 4)
    assert (configs["num.partitions"].config_source, configs["num.partitions"].read_only) == (5, True)
    assert not configs["message.max.bytes"].read_only
    everywhere = by_name(ask(world, BROKER, ""))
    assert list(everywhere) == ["log.retention.ms"]
    assert everywhere["log.retention.ms"].config_source == 3


def test_secrets_are_null() -> None:
    world = World(config=BrokerConfig.from_values({"password.encoder.secret": "hunter2", "x.y": "hunter2"}))
    result = ask(world, BROKER, "1", include_synonyms=True)
    assert "hunter2" not in repr(result)
    for name in ("password.encoder.secret", "x.y"):
        assert by_name(result)[name].is_sensitive
        assert by_name(result)[name].value is None


def test_loggers() -> None:
    logs.set_level("barnabas.config", "DEBUG")
    try:
        configs = by_name(ask(World(), BROKER_LOGGER, "1"))
    finally:
        logs.set_level("barnabas.config", None)
    assert configs["barnabas.config"].value == "DEBUG"
    assert configs["root"].value in logs.LEVELS
    assert {config.config_source for config in configs.values()} == {6}
    assert list(by_name(ask(World(), BROKER_LOGGER, "1", ["root"]))) == ["root"]


@pytest.mark.parametrize("version", VERSIONS)
def test_client_metrics(version: int) -> None:
    """Set ones come from the subscription and are their own synonyms; a subscription that is not there has defaults."""
    world = World()
    world.image = world.image.with_client_metrics("s", {"interval.ms": "1000", "metrics": "a, b"})
    configs = by_name(
        ask(world, CLIENT_METRICS, "s", version=version, **({"include_synonyms": True} if version else {}))
    )
    assert {name: one.value for name, one in configs.items()} == {"interval.ms": "1000", "match": "", "metrics": "a,b"}
    assert not any(one.read_only or one.is_sensitive for one in configs.values())
    if version:
        assert {name: one.config_source for name, one in configs.items()} == {
            "interval.ms": 7,
            "match": 5,
            "metrics": 7,
        }
        assert [(one.name, one.value, one.source) for one in configs["metrics"].synonyms] == [("metrics", "a,b", 7)]
        assert configs["match"].synonyms == []
    if version >= 3:
        assert (configs["interval.ms"].config_type, configs["match"].config_type) == (Type.INT, Type.LIST)
    nowhere = by_name(ask(world, CLIENT_METRICS, "nowhere", version=version))
    assert {one.value for one in nowhere.values()} == {"300000", ""}
    assert list(by_name(ask(world, CLIENT_METRICS, "s", ["metrics"], version=version))) == ["metrics"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC_TYPE, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_TYPE, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC_TYPE, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_errors_of_single_resources(kind: int, name: str, code: ErrorCode, version: int) -> None:
    result = ask(World(), kind, name, version=version)
    assert result.error_code == code
    assert result.configs == []


def test_one_bad_resource_does_not_spoil_the_others() -> None:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((TOPIC_TYPE, "nobody"), (TOPIC_TYPE, "orders"), (99, "x"), (BROKER, "1"))
    ]
    response = at_once(describe_configs.handle(World(), context(4), DescribeConfigsRequest(resources=resources)))  # type: ignore[arg-type]
    assert [bool(result.configs) for result in response.results] == [False, True, False, True]


def test_long_names_come_back_short_in_messages() -> None:
    assert len(ask(World(), BROKER, "x" * 30000).error_message or "") == 1000

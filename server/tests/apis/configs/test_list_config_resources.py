"""ListConfigResources."""

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ListConfigResourcesRequest
from barnabas.server.apis.configs import list_config_resources
from barnabas.server.tests.apis.fakes import World, at_once, context, over_the_wire, topic_image


def ask(types: list[int], version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    world = World()
    world.image = world.image.with_topics([topic_image("audit")])
    for name in ("slow", "all"):
        world.image = world.image.with_client_metrics(name, {"interval.ms": "60000"})
    request = over_the_wire(ListConfigResourcesRequest(resource_types=types), version)
    response = over_the_wire(at_once(list_config_resources.handle(world, context(version), request)), version)  # type: ignore[arg-type]
    return response.error_code, [(one.resource_type, one.resource_name) for one in response.config_resources]


TOPICS = [(2, "audit"), (2, "orders")]
SUBSCRIPTIONS = [(16, "all"), (16, "slow")]


@pytest.mark.parametrize(
    ("types", "resources"),
    [
        ([], [*TOPICS, (4, "1"), (8, "1"), *SUBSCRIPTIONS]),
        ([2], TOPICS),
        ([4], [(4, "1")]),
        ([8, 2], [*TOPICS, (8, "1")]),
        ([16], SUBSCRIPTIONS),
        ([32], []),
        ([2, 2], TOPICS),
    ],
)
def test_types(types: list[int], resources: list[tuple[int, str]]) -> None:
    assert ask(types) == (0, resources)


@pytest.mark.parametrize("types", [[0], [2, 99]])
def test_unknown_types(types: list[int]) -> None:
    assert ask(types) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_version_0_is_about_client_metrics() -> None:
    assert ask([], version=0) == (0, SUBSCRIPTIONS)

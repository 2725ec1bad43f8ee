"""The container image's environment, alone and under that of examples/compose.yaml: who reaches the broker where."""

from __future__ import annotations

import json
import re
from pathlib import Path

from barnabas.kproto.messages import MetadataRequest
from barnabas.server.broker.first_topics import make_topics, topics_in
from barnabas.server.cli import main as cli
from barnabas.server.cli.health import bootstrap_of
from barnabas.server.config.broker import load
from barnabas.server.testing import connected, embedded_broker

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "examples" / "compose.yaml").read_text(encoding="utf-8")


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"(?:^ENV|^   ) (\w+)=(\S+)", DOCKERFILE, re.MULTILINE))


def composed_environment() -> dict[str, str]:
    """What a container of the file's service has."""
    pairs = re.findall(r"^      (KAFKA_\w+): (.+)$", COMPOSE, re.MULTILINE)
    return {**image_environment(), **{name: value.strip('"') for name, value in pairs}}


def test_the_image_is_open_to_the_host_and_keeps_its_data_in_the_volume() -> None:
    config = load(environ=image_environment())
    assert [str(each) for each in config.listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    assert [str(each) for each in config.advertised({}, "container")] == ["PLAINTEXT://localhost:9092"]
    assert (config.log_dirs, config.notices) == (["/data"], ())
    assert "VOLUME /data" in DOCKERFILE


def test_what_the_image_runs_is_a_command_of_ours() -> None:
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (.+)$", DOCKERFILE, re.MULTILINE)
    for words, command in ((json.loads(entry), "serve"), (json.loads(check), "health")):
        assert words[0] == "barnabas"
        assert cli.parser().parse_args(words[1:]).command == command
    assert bootstrap_of(image_environment()) == bootstrap_of(composed_environment()) == "localhost:9092"


async def test_compose_has_a_listener_for_the_host_and_one_for_containers() -> None:
    environ = composed_environment()
    config = load(environ=environ)
    assert config.notices == ()
    assert {each.port for each in config.listeners} == {9092, 19092}
    settings = {**config.static, "listeners": re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", config.static["listeners"])}
    del settings["log.dirs"]
    async with embedded_broker(**settings) as broker:
        await make_topics(broker, topics_in(environ))
        for listener, address in (("HOST", ("localhost", 9092)), ("CONTAINERS", ("broker", 19092))):
            async with connected(broker, listener) as client:
                answer = await client.ask(MetadataRequest(topics=None), 12)
                assert [(each.host, each.port) for each in answer.brokers] == [address]
                partitions = {topic.name: len(topic.partitions) for topic in answer.topics}
                assert partitions == {"orders": 3, "orders-by-customer": 3}
    assert '"127.0.0.1:9092:9092"' in COMPOSE
    assert "hostname: broker" in COMPOSE

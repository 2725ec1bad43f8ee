"""`barnabas.Broker(security=…)`, `barnabas dev --security` and the fixtures, with stock clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Resource

import barnabas
from barnabas.server.cli import main as cli

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module", params=PROTOCOLS)
def secured(request: pytest.FixtureRequest) -> Iterator[barnabas.Broker]:
    users = {"alice": "alice's secret;".replace(" ", "_"), "bob": "b"}
    with barnabas.Broker(ACLS, security=request.param, users=users, topics=["orders"]) as broker:
        admin = AdminClient(broker.access("admin").librdkafka())
        binding = AclBinding(
            Resource.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for created in admin.create_acls([binding]).values():
            created.result(60)
        yield broker


def produce(options: dict[str, Any]) -> KafkaError | None:
    """The outcome of one record."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({**options, "message.timeout.ms": 60_000})
    producer.produce("orders", b"x", on_delivery=lambda error, message: outcomes.append(error))
    assert producer.flush(90) == 0
    return outcomes[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_have_their_principals(secured: barnabas.Broker, mechanism: str) -> None:
    if secured.access().protocol == "SSL" and mechanism != MECHANISMS[0]:
        pytest.skip("nobody logs in")
    assert produce(secured.access(mechanism=mechanism).librdkafka()) is None
    refused = produce(secured.access("bob", mechanism=mechanism).librdkafka())
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_java_can_read_the_keys(secured: barnabas.Broker) -> None:
    """It reads PKCS#8 alone."""
    if secured.access().protocol != "SASL_PLAINTEXT":
        for name in ("certificate", "authority"):
            texts = Path(getattr(secured.access(), name)).read_text().splitlines()
            begun = [line for line in texts if line.startswith("-----BEGIN")]
            assert begun[:1] == [
                "-----BEGIN PRIVATE KEY-----" if name == "certificate" else "-----BEGIN CERTIFICATE-----"
            ]


def test_the_administrator_is_heard_after_a_restart(secured: barnabas.Broker) -> None:
    before = (secured.data.parent / "security").is_dir() and secured.access().librdkafka()
    secured.restart()
    assert secured.access().librdkafka() == before
    assert produce(secured.access().librdkafka()) is None  # trusts the same authority
    secured.create_topic("more")
    secured.delete_topic("more")


def test_a_wrong_password(secured: barnabas.Broker) -> None:
    if secured.access().protocol == "SSL":
        pytest.skip("nobody logs in")
    client = AdminClient({**secured.access().librdkafka(), "sasl.password": "wrong"})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    assert "wrong" not in secured.log


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_its_health(
    secured: barnabas.Broker, mechanism: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    access = secured.access(mechanism=mechanism)
    if access.protocol == "SSL" and mechanism != MECHANISMS[0]:
        pytest.skip("nobody logs in")
    file = tmp_path / "alice.properties"

    def health(**changes: str) -> int:
        file.write_text("".join(f"{key}={value}\n" for key, value in (access.java() | changes).items()))
        command = ["health", "--bootstrap", secured.bootstrap, "--command-config", str(file), "--timeout", "60"]
        return cli.main(command)

    assert health() == 0
    assert capsys.readouterr().out == f"{secured.bootstrap} answers: 1 broker, controller 1\n"
    if access.protocol.startswith("SASL"):
        wrong = access.java()["sasl.jaas.config"].replace("alice's", "eve's")
        assert health(**{"sasl.jaas.config": wrong}) == 1
        said = capsys.readouterr().err
        assert f"{secured.bootstrap}: it rejects the log-in of alice: " in said
        assert "eve" not in said
    if access.protocol.endswith("SSL"):
        (tmp_path / "other.pem").write_bytes(trustme.CA().cert_pem.bytes())
        assert health(**{"ssl.truststore.location": str(tmp_path / "other.pem")}) == 1
        assert "its certificate is not accepted: " in capsys.readouterr().err


def test_what_has_no_sense() -> None:
    for arguments, text in (
        ({"security": "TLS"}, "one of SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"),
        ({"users": {"a": "b"}}, "no effect without security"),
        ({"security": "SSL", "settings": {"listeners": "SSL://:1"}}, "leave listeners out"),
    ):
        with pytest.raises(ValueError, match=text):
            barnabas.Broker(**arguments)  # type: ignore[arg-type]
    with pytest.raises(barnabas.BrokerError, match="--user must be NAME:PASSWORD"):
        barnabas.Broker(security="SASL_SSL", users={"a": 'quote"'}).start()
    with barnabas.Broker() as broker, pytest.raises(ValueError, match="has no security"):
        broker.access()
    with barnabas.Broker(security="SASL_PLAINTEXT") as broker:
        for call, text in (({"user": "eve"}, "no user 'eve'"), ({"mechanism": "GSSAPI"}, "no mechanism 'GSSAPI'")):
            with pytest.raises(ValueError, match=text):
                broker.access(**call)
    for act in (broker.access, broker.reset):
        with pytest.raises(barnabas.BrokerError, match="is closed"):
            act()


def test_the_command(tmp_path: Path) -> None:
    """Its files are for the commands of Apache Kafka; the directories go with it."""
    command = [sys.executable, "-P", "-m", "barnabas", "dev", "--security", "SASL_SSL", "--user", "carol:c"]
    with subprocess.Popen([*command, "--topic", "orders"], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            bootstrap = process.stdout.readline().strip().removeprefix("bootstrap=")
            files = Path(process.stdout.readline().strip().removeprefix("security="))
            said = dict(line.split("=", 1) for line in (files / "carol.properties").read_text().splitlines())
            assert said["bootstrap.servers"] == bootstrap
            assert said["sasl.jaas.config"].endswith('ScramLoginModule required username="carol" password="c";')
            assert (files / "carol.properties").stat().st_mode & 0o77 == 0
            options = {
                "bootstrap.servers": bootstrap,
                "security.protocol": said["security.protocol"],
                "sasl.mechanism": said["sasl.mechanism"],
                "ssl.ca.location": said["ssl.truststore.location"],
                "sasl.username": "carol",
                "sasl.password": "c",
            }
            assert produce(options) is None
        finally:
            process.terminate()
        assert process.wait(60) == 0
    assert not files.exists()


def test_users_without_security_are_refused() -> None:
    command = [sys.executable, "-P", "-m", "barnabas", "dev", "--user", "carol:c"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "barnabas: --user and --security-files have no effect without --security\n",
    )


def test_the_fixtures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    from importlib.metadata import entry_points

    if not any(point.name == "barnabas" for point in entry_points(group="pytest11")):
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p barnabas.pytest_plugin")
    pytester.makeini("[pytest]\nkafka_broker_security = SASL_PLAINTEXT\n")
    pytester.makepyfile(
        """
        import pytest
        import asyncio
        from aiokafka import AIOKafkaProducer
        from kafka import KafkaProducer

        def test_shared(kafka_broker, kafka_topic):
            KafkaProducer(**kafka_broker.access().kafka_python()).send(kafka_topic, b"x").get(60)

        def test_fresh(kafka_broker_fresh):
            assert kafka_broker_fresh.access().protocol == "SASL_PLAINTEXT"

        @pytest.mark.kafka_security("SASL_SSL", users={"carol": "c"})
        def test_marked(kafka_broker_fresh, kafka_topic):
            access = kafka_broker_fresh.access("carol")
            assert access.protocol == "SASL_SSL"
            KafkaProducer(**access.kafka_python()).send(kafka_topic, b"x").get(60)

            async def send():
                async with AIOKafkaProducer(**access.aiokafka()) as producer:
                    return await producer.send_and_wait(kafka_topic, b"y")

            assert asyncio.run(send()).offset == 1

        @pytest.mark.kafka_security("SASL_SSL")
        def test_no_effect(kafka_broker): pass

        @pytest.mark.kafka_security
        def test_no_protocol(kafka_broker_fresh): pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*kafka_security has no effect without kafka_broker_fresh or *",
            "*kafka_security takes a protocol, and users: *",
        ]
    )

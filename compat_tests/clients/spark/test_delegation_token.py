"""Spark jobs that log in with a delegation token, and know no password: the driver hands the token to the tasks.

In two ways: a token that somebody else made, in `kafka.sasl.jaas.config`; and Spark's own support for Kafka's tokens
(`spark.kafka.clusters.…`), whose provider asks the broker for one and leaves it among the credentials that tasks find.
Spark calls that provider by itself, and sends credentials to its executors, under YARN and Kubernetes with Kerberos
alone; the provider logs in by whatever `spark.kafka.clusters.<name>.kafka.…` says. So the test calls it here, and
driver and tasks share a process. Source: `KafkaTokenUtil.scala`, `KafkaConfigUpdater.scala` (Spark 4).

These tests start a broker of their own (ours, or Apache Kafka with `--peer kafka`), as it must have lists and tokens.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from compat_tests.clients.spark.queries import Store, rows, source
from compat_tests.clients.spark.session import environment
from compat_tests.clients.spark.topics import Topics, numbered, order
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.processes import run
from compat_tests.subjects.security.guarded import Guarded, start

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]
MODULES = "org.apache.kafka.common.security"
FAILURES = (PySparkException, Py4JJavaError)
# A log-in that is refused, or a list that says no, is not tried again for minutes.
QUICK = {"default.api.timeout.ms": 40000, "request.timeout.ms": 30000}


def case(title: str) -> pytest.MarkDecorator:
    return pytest.mark.case("Spark: delegation tokens", title, client="spark")


@pytest.fixture(scope="module")
def guarded(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if pytestconfig.getoption("--bootstrap"):
        pytest.skip("a broker whose listeners are not ours to choose")
    started = start(tmp_path_factory.mktemp("guarded"), peer=pytestconfig.getoption("--peer") == "kafka")
    yield started
    started.broker.stop()


@pytest.fixture
def topics(guarded: Guarded) -> Iterator[Topics]:
    made = Topics(guarded.plaintext)
    yield made
    made.close()


def allow(guarded: Guarded, topic: str, operation: AclOperation) -> None:
    """alice may do this to a topic."""
    who = ("User:alice", "*", operation, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *who)
    admin = AdminClient({"bootstrap.servers": guarded.plaintext})
    for future in admin.create_acls([binding]).values():
        future.result(60)


def token_of_alice(guarded: Guarded, jvms: WarmJvms) -> tuple[str, str]:
    """Id and secret of a new token."""
    words = ("--create", "--max-life-time-period", "-1", "--command-config", guarded.login("alice"))
    said = Tools(guarded.clients, jvms)("kafka-delegation-tokens", *words)
    found = re.search(r"^(\S{22}) (\S{88}) ", said, re.MULTILINE)
    assert found is not None, said
    return found[1], found[2]


def by_token(token_id: str, secret: str) -> dict[str, object]:
    """Kafka's settings of a client that logs in with a token."""
    login = f'{MODULES}.scram.ScramLoginModule required tokenauth="true" username="{token_id}" password="{secret}";'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": login,
        **QUICK,
    }


@case("read and write with a token in kafka.sasl.jaas.config")
def test_a_token_in_the_options(
    spark: SparkSession, guarded: Guarded, topics: Topics, warm_jvms: WarmJvms, store: Store
) -> None:
    start_at, end_at = topics.create("start", 3), topics.create("end")
    sent = sorted(topics.send(start_at, numbered(300, 3)), key=order)
    allow(guarded, start_at, AclOperation.READ)
    login = by_token(*token_of_alice(guarded, warm_jvms))
    frame = source(spark, guarded.clients, subscribe=start_at, kafka=login)
    assert rows(frame) == sent
    with pytest.raises(FAILURES, match=r"(?i)authoriz"):
        rows(source(spark, guarded.clients, subscribe=end_at, kafka=login, **{"fetchOffset.numRetries": 1}))
    allow(guarded, end_at, AclOperation.WRITE)
    options = {f"kafka.{key}": str(value) for key, value in login.items()}
    writer = frame.select("key", "value").write.format("kafka").options(**options)
    writer.option("kafka.bootstrap.servers", guarded.clients).option("topic", end_at).save()
    assert sorted(row.value or b"" for row in topics.read(end_at)) == sorted(row.value or b"" for row in sent)
    stream = source(spark, guarded.clients, stream=True, subscribe=start_at, startingOffsets="earliest", kafka=login)
    query = store.start(stream)
    query.processAllAvailable()
    query.stop()
    assert store.rows(spark) == sent


@case("executors in processes of their own get the token from the driver")
def test_executors_elsewhere(guarded: Guarded, topics: Topics, warm_jvms: WarmJvms, tmp_path: Path) -> None:
    """A driver of its own, in a process of its own, since one has one session."""
    start_at, end_at = topics.create("far", 3), topics.create("back")
    sent = topics.send(start_at, numbered(300, 3))
    allow(guarded, start_at, AclOperation.READ)
    allow(guarded, end_at, AclOperation.WRITE)
    options = {f"kafka.{key}": str(value) for key, value in by_token(*token_of_alice(guarded, warm_jvms)).items()}
    job = json.dumps({"kafka.bootstrap.servers": guarded.clients, **options})
    program = [sys.executable, "-m", "compat_tests.clients.spark.copying", str(tmp_path), start_at, end_at]
    done = run(program, text=job, environment=environment(), timeout=500)
    assert done.stdout.decode().splitlines()[-1] == "1 executor"
    assert sorted(row.value or b"" for row in topics.read(end_at)) == sorted(row.value or b"" for row in sent)


@case("Spark's own provider obtains a token, and its source uses it")
def test_sparks_own_support(spark: SparkSession, guarded: Guarded, topics: Topics) -> None:
    topic = topics.create("own", 3)
    sent = sorted(topics.send(topic, numbered(300, 3)), key=order)
    allow(guarded, topic, AclOperation.READ)
    jvm = spark._jvm
    assert jvm is not None
    cluster = {
        "auth.bootstrap.servers": guarded.clients,
        "target.bootstrap.servers.regex": re.escape(guarded.clients),
        "security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required"
        ' username="alice" password="alice-secret";',
    }
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    for key, value in cluster.items():
        conf.set(f"spark.kafka.clusters.ours.{key}", value)
    try:
        obtained = jvm.org.apache.hadoop.security.Credentials()
        provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
        provider.obtainDelegationTokens(spark._jsc.hadoopConfiguration(), conf, obtained)  # type: ignore[union-attr]
        assert obtained.numberOfTokens() == 1
        users.getCurrentUser().addCredentials(obtained)
        # The source is told of no log-in: it finds the token.
        assert rows(source(spark, guarded.clients, subscribe=topic, kafka=QUICK)) == sent
    finally:
        # The session is everybody's: where a token is left, each query looks for its cluster among the settings.
        users.reset()
        for key in cluster:
            conf.remove(f"spark.kafka.clusters.ours.{key}")

"""Spark through TLS, with `kafka.…` options alone: it logs in, it shows a certificate, it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from compat_tests.clients.spark.queries import Store, rows, source
from compat_tests.harness import secured as brokers
from compat_tests.harness.secured import USER, Access, Secured, java_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(600),
]
Names = Callable[..., str]
ERIN = "CN=erin,OU=jobs"
REFUSALS = {
    "password": "SaslAuthenticationException",
    "authority": "SslAuthenticationException",
    "topic": "TopicAuthorizationException",
}
ROWS = 500
NUMBERS = Counter(b"%d" % number for number in range(ROWS))


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Spark: security", title, client="spark")


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Ours, or Apache Kafka with `--peer kafka`."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("a broker whose listeners are not ours to choose")
    started = brokers.start(tmp_path_factory.mktemp("secured"), peer=request.config.getoption("--peer") == "kafka")
    yield started
    started.broker.stop()


def options(access: Access, *, pkcs12: bool = False) -> dict[str, str]:
    """For the connector, but for the address, which `source` is given."""
    return {key: value for key, value in java_settings(access, pkcs12=pkcs12) if key != "bootstrap.servers"}


def save(spark: SparkSession, access: Access, topic: str, *, pkcs12: bool = False, **more: str) -> None:
    """Write numbers in a batch."""
    settings = {f"kafka.{key}": value for key, value in {**options(access, pkcs12=pkcs12), **more}.items()}
    frame = spark.range(ROWS).select(F.col("id").cast("string").alias("value"))
    frame.write.format("kafka").options(**{"kafka.bootstrap.servers": access.bootstrap}, **settings, topic=topic).save()


@case("SASL_SSL with SCRAM-SHA-512: batch write and read")
def test_scram_through_tls(spark: SparkSession, secured: Secured, unique: Names) -> None:
    topic, access = unique(), secured.login("SECURE", "SCRAM-SHA-512")
    secured.make_topic(topic, only=f"User:{USER}")
    save(spark, access, topic)
    read = source(spark, access.bootstrap, subscribe=topic, kafka=options(access))
    assert Counter(row.value for row in rows(read)) == NUMBERS


@case("SSL with a certificate of its own, in PKCS12: batch write, streaming read")
def test_mutual_tls(spark: SparkSession, secured: Secured, unique: Names, store: Store) -> None:
    topic = unique()
    access = secured.access("MUTUAL", identity=secured.stores.client("erin", ERIN))
    secured.make_topic(topic, only=f"User:{ERIN}")
    save(spark, access, topic, pkcs12=True)
    frame = source(
        spark,
        access.bootstrap,
        stream=True,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=200,
        kafka=options(access, pkcs12=True),
    )
    assert store.drain(frame) == [200, 200, 100]
    assert Counter(row.value for row in store.rows(spark)) == NUMBERS


@case("a wrong password, an unknown authority, another's topic: the job fails and says why")
@pytest.mark.parametrize("what", REFUSALS)
def test_refused(spark: SparkSession, secured: Secured, unique: Names, what: str) -> None:
    topic, access = unique(), secured.login("SECURE", "SCRAM-SHA-256")
    secured.make_topic(topic, only="User:bob" if what == "topic" else "")
    if what == "password":
        access = replace(access, password="another-secret")
    elif what == "authority":
        access = replace(access, authority=secured.stores.other_authority)
    with pytest.raises((PySparkException, Py4JJavaError), match=REFUSALS[what]):
        save(spark, access, topic)

"""Stock clients log in over SASL_PLAINTEXT: who is let in, who is not, and that a session that ends is renewed."""

from __future__ import annotations

import pytest

from compat_tests.subjects.security import logins
from compat_tests.subjects.security.listeners import MECHANISMS, PASSWORD, SESSION_MS, USER, Secured

AREA = "SASL"
CLIENTS = {
    "kafka-python": logins.kafka_python,
    "confluent-kafka": logins.confluent,
    "aiokafka": logins.aiokafka,
    "Java 4.3.1": logins.java_client("4.3.1"),
    "Java 3.9.1": logins.java_client("3.9.1"),
}
WRONG = {"a wrong password": (USER, "another-secret"), "an unknown user": ("mallory", PASSWORD)}
JVM = ("Java 4.3.1", "Java 3.9.1")


def every_client(title: str) -> pytest.MarkDecorator:
    rows = []
    for client in CLIENTS:
        marks = [pytest.mark.case(AREA, title, client=client), pytest.mark.slow]
        if client in JVM:
            marks.append(pytest.mark.jvm)
        rows.append(pytest.param(client, marks=marks))
    return pytest.mark.parametrize("client", rows)


@every_client("log in and produce")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_logs_in(secured: Secured, topic: str, client: str, mechanism: str) -> None:
    assert CLIENTS[client](secured.clients, mechanism, USER, PASSWORD, topic, 0) == "sent 1"


@every_client("refused")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("what", WRONG)
def test_is_refused(secured: Secured, topic: str, client: str, mechanism: str, what: str) -> None:
    user, password = WRONG[what]
    assert CLIENTS[client](secured.clients, mechanism, user, password, topic, 0) == logins.REFUSED


@every_client("a session that ends")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_goes_on_beyond_the_end_of_a_session(secured: Secured, topic: str, client: str, mechanism: str) -> None:
    """For three sessions. Java, librdkafka and kafka-python log in again; aiokafka is cut off and connects anew."""
    outcome = CLIENTS[client](secured.short, mechanism, USER, PASSWORD, topic, 3 * SESSION_MS / 1000)
    assert outcome.startswith("sent ")
    if client in JVM:
        assert outcome.endswith(" and logged in again")

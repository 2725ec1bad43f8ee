"""One way of each client to log in and write a record, to do so for a while, and what it makes of being refused."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from compat_tests.harness.jars import classpath, java

PAUSE_S = 0.25
REFUSED = "refused"
"""What every client's word for a failed log-in becomes."""
JAVA_PROGRAM = Path(__file__).parent / "src" / "Logins.java"

Send = Callable[[str, str, str, str, str, float], str]
"""`(bootstrap, mechanism, user, password, topic, seconds)`: log in, and send a record every quarter of a second for so
long, 0: one. Returns "sent N" or REFUSED; another outcome raises.
"""


def kafka_python(bootstrap: str, mechanism: str, user: str, password: str, topic: str, seconds: float) -> str:
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError

    options = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    try:
        KafkaAdminClient(**options, bootstrap_timeout_ms=2000).close()
    except (SaslAuthenticationFailedError, KafkaTimeoutError):
        # It tries again until its time is over, whatever the broker has said.
        return REFUSED
    producer = KafkaProducer(**options)
    try:
        return _for(seconds, lambda: producer.send(topic, b"kafka-python").get(20))
    finally:
        producer.close()


def confluent(bootstrap: str, mechanism: str, user: str, password: str, topic: str, seconds: float) -> str:
    from confluent_kafka import KafkaError, Producer

    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": errors.append,
        }
    )

    def send() -> None:
        producer.produce(topic, b"confluent")
        deadline = time.monotonic() + 20
        while producer.flush(0.2):
            if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
                raise PermissionError
            assert time.monotonic() < deadline, errors

    try:
        outcome = _for(seconds, send)
    except PermissionError:
        producer.purge()
        return REFUSED
    assert not errors, errors
    return outcome


def aiokafka(bootstrap: str, mechanism: str, user: str, password: str, topic: str, seconds: float) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

    async def run() -> str:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
        except (AuthenticationFailedError, KafkaConnectionError):
            await producer.stop()
            return REFUSED
        try:
            sent, end = 0, time.monotonic() + seconds
            while not sent or time.monotonic() < end:
                await asyncio.wait_for(producer.send_and_wait(topic, b"aiokafka"), 20)
                sent += 1
                await asyncio.sleep(PAUSE_S if seconds else 0)
            return f"sent {sent}"
        finally:
            await producer.stop()

    return asyncio.run(run())


def java_client(version: str) -> Send:
    """Java's clients: the last word of the program is the outcome; beside it, how often it has logged in again."""

    def send(bootstrap: str, mechanism: str, user: str, password: str, topic: str, seconds: float) -> str:
        program = [java(), "-cp", classpath(f"clients-{version}"), str(JAVA_PROGRAM)]
        done = subprocess.run(
            [*program, bootstrap, mechanism, user, password, topic, str(int(seconds * 1000))],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()[-1]

    return send


def _for(seconds: float, send: Callable[[], object]) -> str:
    sent, end = 0, time.monotonic() + seconds
    while not sent or time.monotonic() < end:
        send()
        sent += 1
        time.sleep(PAUSE_S if seconds else 0)
    return f"sent {sent}"

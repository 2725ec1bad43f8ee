"""A broker with users, their limits, and clients that are counted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.ports import free_ports

USERS = ("alice", "bob", "carol")
VALUE_BYTES = 2_000
RECORD_BYTES = VALUE_BYTES + 75
"""Of a record alone in its batch."""
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass
class Limited:
    """HOST:PORT of a listener without a log-in, and of one for `USERS`, whose passwords are `<name>-secret`."""

    broker: Broker
    plaintext: str
    clients: str

    def settings(self, client_id: str, user: str = "") -> dict[str, Any]:
        """Of a client of librdkafka."""
        made: dict[str, Any] = {"bootstrap.servers": self.plaintext, "client.id": client_id}
        if user:
            made |= {
                "bootstrap.servers": self.clients,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": f"{user}-secret",
            }
        return made


def start(directory: Path, *, peer: bool) -> Limited:
    """Start ours, or Apache Kafka."""
    plaintext, clients, controller = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plaintext},CLIENTS://127.0.0.1:{clients}"
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    settings = [
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.clients.plain.sasl.jaas.config={_PLAIN} required {users};",
    ]
    if peer:
        settings += [
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners={listeners}",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
        ]
        broker = start_kafka(directory, settings, wait=False)
        broker.bootstrap = f"127.0.0.1:{plaintext}"
        wait_until_open(broker)
    else:
        broker = start_barnabas(directory, [f"listeners={listeners}", f"log.dirs={directory / 'data'}", *settings])
    return Limited(broker, f"127.0.0.1:{plaintext}", f"127.0.0.1:{clients}")


@dataclass
class Minute:
    """A span that is measured, in seconds of the monotonic clock: bytes on the wire in it, from and to the brokers, as
    librdkafka counts them; and how often a broker said that it throttles, ever. key: `txbytes` or `rxbytes`.
    """

    begin: float
    end: float
    key: str = "txbytes"
    throttled: int = 0
    seen: list[tuple[float, int]] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        """What has librdkafka tell it."""
        return {"statistics.interval.ms": 200, "stats_cb": self._counted, "throttle_cb": self._told}

    def _counted(self, text: str) -> None:
        now = time.monotonic()
        if self.begin <= now < self.end:
            brokers = json.loads(text)["brokers"].values()
            self.seen.append((now, sum(broker[self.key] for broker in brokers)))

    def _told(self, event: Any) -> None:
        self.throttled += event.throttle_time > 0

    @property
    def rate(self) -> float:
        """Bytes per second."""
        (begin, before), (end, after) = self.seen[0], self.seen[-1]
        return (after - before) / (end - begin)


class Pace:
    """Of a client that wants so many bytes a second, and no more at the beginning than later. One that takes all that
    it is given takes ten seconds' worth at once, waits, and then again, for that is how the rate is measured: what it
    gets in a minute depends on the minute.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._size = 0

    def took(self, size: int) -> None:
        """Sleep, if that was early."""
        self._size += size
        time.sleep(max(self._begun + self._size / self._rate - time.monotonic(), 0))
        # What it was kept from is not made up for.
        self._begun = max(self._begun, time.monotonic() - self._size / self._rate)


def produce(settings: dict[str, Any], topic: str, minute: Minute, rate: float) -> None:
    """So many bytes a second, if the broker takes them, until the minute is over."""
    producer = Producer(
        {
            **settings,
            "acks": "1",
            "batch.size": 20_000,
            "queue.buffering.max.messages": 20,
            "max.in.flight": 1,
            **minute.settings,
        }
    )
    value, pace = bytes(VALUE_BYTES), Pace(rate)
    while time.monotonic() < minute.end:
        try:
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            pace.took(VALUE_BYTES)
        except BufferError:
            producer.poll(0.02)
    producer.purge()
    producer.flush(30)


def consume(settings: dict[str, Any], topic: str, minute: Minute, rate: float) -> None:
    """So many bytes a second, if the broker gives them, until the minute is over."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "nobody's",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 20_000,
            # Little is fetched before it is asked for, and that often.
            "queued.max.messages.kbytes": 100,
            "fetch.queue.backoff.ms": 10,
            "fetch.wait.max.ms": 100,
            **minute.settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    pace = Pace(rate)
    try:
        while time.monotonic() < minute.end:
            pace.took(RECORD_BYTES * len(consumer.consume(10, 0.1)))
    finally:
        consumer.close()


def fill(settings: dict[str, Any], topic: str, size: int) -> None:
    """With batches of one record each."""
    producer = Producer({**settings, "batch.num.messages": 1, "linger.ms": 0})
    for _ in range(size // RECORD_BYTES):
        while True:
            try:
                producer.produce(topic, bytes(VALUE_BYTES), partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


@dataclass
class Beside:
    """What somebody else notices, who asks twenty times a second: when each question began, how long its answer took
    and the pause after it, in seconds; and how often it was throttled.
    """

    asked: list[tuple[float, float]] = field(default_factory=list)
    throttled: int = 0

    def most(self, share: float) -> float:
        """So many of the answers, from 0 to 1, were not slower."""
        return sorted(seconds for _, seconds in self.asked)[int(share * (len(self.asked) - 1))]

    def stood_still(self, begin: float, end: float, over: float = 1.0) -> float:
        """Seconds in this span in which the machine stood still: it had no answer to give for longer than *over*."""
        spans = ((max(at, begin), min(at + seconds, end)) for at, seconds in self.asked if seconds > over)
        return sum(max(until - since, 0) for since, until in spans)


def ask_beside(settings: dict[str, Any], topic: str, until: float) -> Beside:
    """One record after the other."""
    minute, found = Minute(0, 0), Beside()
    producer = Producer({**settings, **minute.settings, "linger.ms": 0})
    producer.produce(topic, b"first")
    producer.flush(60)
    begun = time.monotonic()
    while begun < until:
        producer.produce(topic, b"beside")
        assert producer.flush(60) == 0
        time.sleep(0.05)
        now = time.monotonic()
        found.asked.append((begun, now - begun))
        begun = now
    found.throttled = minute.throttled
    return found


def together(acts: list[Callable[[], None]]) -> None:
    """All of them at once; raises what one of them has raised."""
    raised: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]

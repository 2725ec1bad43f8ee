"""Members of share groups with one face: Java's KafkaShareConsumer (a JVM for many), librdkafka's ShareConsumer, and
franz-go's (a process for many).

Refused calls raise `compat_tests.harness.client.Refused` with Kafka's number, whatever the library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka as ck

from compat_tests.harness.checks import DEADLINE_S, wait_until
from compat_tests.harness.client import Refused
from compat_tests.harness.members import Members
from compat_tests.harness.members_jvm import MembersJvm

SOURCE = Path(__file__).parent / "src" / "ShareMembers.java"
JAVA, LIBRDKAFKA, FRANZ = "Java 4.3.1", "librdkafka", "franz-go"
ACCEPT, RELEASE, REJECT, RENEW = "accept", "release", "reject", "renew"


class Got(NamedTuple):
    """A record that a member got. `count`: how often it was delivered; −1: this client does not say it."""

    topic: str
    partition: int
    offset: int
    count: int
    value: str


class ShareMember(Protocol):
    """A consumer of a share group; of records of its last poll it says what becomes of them."""

    def poll(self, wait_s: float = 0.5) -> list[Got]: ...
    def say(self, what: str, records: Sequence[Got]) -> None:
        """Only with explicit acknowledgement."""

    def commit(self) -> set[int]:
        """Sends what was said; the codes of the partitions."""

    def close(self) -> None: ...


class JavaShareMember:
    """A KafkaShareConsumer."""

    def __init__(self, jvm: MembersJvm, config: Mapping[str, str], topics: Sequence[str]) -> None:
        self._jvm = jvm
        self.name = jvm.new_name()
        given = {
            "metadata.max.age.ms": "300",
            "retry.backoff.ms": "50",
            "reconnect.backoff.ms": "50",
            "reconnect.backoff.max.ms": "200",
            "allow.auto.create.topics": "false",
            **config,
        }
        self._is_closed = False
        self._ask("open", *(f"{key}={value}" for key, value in given.items()))
        self._ask("subscribe", *topics)

    def _ask(self, command: str, *given: str) -> list[str]:
        return self._jvm.ask(command, self.name, *given)

    def poll(self, wait_s: float = 0.5) -> list[Got]:
        return [_got(word) for word in self._ask("poll", str(round(wait_s * 1000))) if word]

    def say(self, what: str, records: Sequence[Got]) -> None:
        self._ask("acknowledge", what, *(f"{one.topic}:{one.partition}:{one.offset}" for one in records))

    def commit(self) -> set[int]:
        return {int(word.rpartition(":")[2]) for word in self._ask("commit") if word}

    def acknowledged(self) -> dict[tuple[str, int, int], int]:
        """By topic, partition and offset, what was answered to what was said, the last time."""
        found = {}
        for word in self._ask("acknowledged"):
            if word:
                topic, partition, offset, code = word.rsplit(":", 3)
                found[topic, int(partition), int(offset)] = int(code)
        return found

    def events(self) -> list[tuple[str, Got]]:
        """What has happened to all members of the JVM, in order: `G`, a record was got; `A`, an acknowledgement was
        answered (`count`: the code).
        """
        return [(word[0], _got(word[2:])) for word in self._ask("events") if word]

    def lock_ms(self) -> int:
        """How long it has what it gets."""
        return int(self._ask("lock")[0])

    def run(self) -> None:
        """Poll by itself from now on, and accept everything."""
        self._ask("run")

    def records(self) -> list[Got]:
        """What it got since."""
        return [_got(word) for word in self._ask("records") if word]

    def failure(self) -> str:
        """What ended its polling by itself, empty while it polls."""
        return self._ask("failure")[0]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._ask("close")


def _got(word: str) -> Got:
    topic, partition, offset, count, value = word.rsplit(":", 4)
    return Got(topic, int(partition), int(offset), int(count), value)


_TYPES = {
    ACCEPT: ck.AcknowledgeType.ACCEPT,
    RELEASE: ck.AcknowledgeType.RELEASE,
    REJECT: ck.AcknowledgeType.REJECT,
}


class RdkafkaShareMember:
    """A confluent_kafka.ShareConsumer."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        given = {
            "topic.metadata.refresh.interval.ms": 300,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **config,
        }
        self._inner = ck.ShareConsumer(given)
        self._inner.subscribe(list(topics))
        self._is_closed = False

    def poll(self, wait_s: float = 0.5) -> list[Got]:
        found = []
        for one in self._inner.poll(wait_s):
            error = one.error()
            if error is not None:
                raise Refused(error.code(), error.str())
            count = one.delivery_count() if hasattr(one, "delivery_count") else None
            found.append(Got(one.topic(), one.partition(), one.offset(), count or -1, one.value().decode()))
        return found

    def say(self, what: str, records: Sequence[Got]) -> None:
        for one in records:
            self._inner.acknowledge_offset(one.topic, one.partition, one.offset, _TYPES[what])

    def commit(self) -> set[int]:
        told = self._inner.commit_sync(45.0)
        return {0 if problem is None else problem.args[0].code() for problem in told.values()}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._inner.close()


class FranzShareMember:
    """A client of franz-go with a share group. What was not said of a record of a poll is accepted by the next."""

    def __init__(self, members: Members, config: Mapping[str, str], topics: Sequence[str]) -> None:
        self._members = members
        self._name = members.new_name()
        self._is_closed = False
        settings = {**config, "topics": ",".join(topics)}
        self._ask("open", "share", *(f"{key}={value}" for key, value in settings.items()))

    def _ask(self, command: str, *given: str) -> list[str]:
        return [word for word in self._members.ask(command, self._name, *given) if word]

    def poll(self, wait_s: float = 0.5) -> list[Got]:
        return [_got(word) for word in self._ask("poll", str(round(wait_s * 1000)))]

    def say(self, what: str, records: Sequence[Got]) -> None:
        self._ask("acknowledge", what, *(f"{one.topic}:{one.partition}:{one.offset}" for one in records))

    def commit(self) -> set[int]:
        return {int(word) for word in self._ask("commit")}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._ask("close")


def poll_until(member: ShareMember, count: int, timeout: float = DEADLINE_S) -> list[Got]:
    """What polls bring until there are so many: with implicit acknowledgement, as what is open must be said before."""
    found: list[Got] = []

    def is_enough() -> bool:
        found.extend(member.poll())
        return len(found) >= count

    wait_until(is_enough, f"{count} records", timeout)
    assert len(found) == count, found
    return found


def next_poll(member: ShareMember, timeout: float = DEADLINE_S) -> list[Got]:
    """What the first poll brings that brings something."""
    found: list[Got] = []

    def is_something() -> bool:
        found.extend(member.poll())
        return bool(found)

    wait_until(is_something, "records", timeout)
    return found


def gets_nothing(member: ShareMember, polls: int = 4) -> None:
    """Some polls bring nothing."""
    for _ in range(polls):
        assert member.poll() == []


def offsets(records: Sequence[Got]) -> list[int]:
    return [one.offset for one in records]

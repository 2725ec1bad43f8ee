"""Members of groups that poll by themselves and are asked from outside: Java (a JVM for many), librdkafka and
kafka-python.

All of them have `Member`'s face. Records are (topic, partition, offset, value as text), in the order in which the
member got them. Refused calls raise `compat_tests.harness.client.Refused` with Kafka's number, whatever the library.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import confluent_kafka as ck

from compat_tests.harness.client import Partition, Refused
from compat_tests.harness.members import ANSWER_S
from compat_tests.harness.members_jvm import MembersJvm

SOURCE = Path(__file__).parent / "src" / "Members.java"


class Seen(NamedTuple):
    """A record that a member got."""

    topic: str
    partition: int
    offset: int
    value: str


class Member(Protocol):
    """A consumer of a group, with automatic commits off, that reads from the beginning where nothing is committed, or
    fails there with `auto.offset.reset=none` (not kafka-python's).
    """

    def assignment(self) -> set[Partition]: ...
    def records(self) -> list[Seen]: ...
    def failure(self) -> str:
        """What ended its polling, empty while it polls; it begins with Kafka's number where there is one."""

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None: ...
    def committed(self, partition: Partition) -> int | None: ...
    def seek(self, partition: Partition, offset: int) -> None: ...
    def position(self, partition: Partition) -> int: ...
    def close(self) -> None: ...


# -- Java ------------------------------------------------------------------------------------------------------------


class Jvm(MembersJvm):
    """A JVM with as many members as wanted."""

    def __init__(self, version: str, bootstrap: str, log: Path, *, heap: str = "256m") -> None:
        super().__init__(SOURCE, version, log, heap=heap)
        self.version = version
        self.bootstrap = bootstrap


class JavaMember:
    """A KafkaConsumer in a `Jvm`."""

    def __init__(self, jvm: Jvm, config: Mapping[str, str], how: str, what: Iterable[str]) -> None:
        self.jvm = jvm
        self.name = jvm.new_name()
        given = {
            "bootstrap.servers": jvm.bootstrap,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            # Else asking for the metadata of a topic that was deleted brings it back.
            "allow.auto.create.topics": "false",
            "metadata.max.age.ms": "300",
            "fetch.max.wait.ms": "100",
            "retry.backoff.ms": "50",
            "reconnect.backoff.ms": "50",
            "reconnect.backoff.max.ms": "200",
            **config,
        }
        if given.get("group.protocol") != "consumer":
            given = {"heartbeat.interval.ms": "200", "session.timeout.ms": "45000", **given}
        self.closed = False
        self._last: list[Seen] = []
        self._ask("open", *(f"{key}={value}" for key, value in given.items()))
        self._ask(how, *what)

    def _ask(self, command: str, *given: str) -> list[str]:
        return self.jvm.ask(command, self.name, *given)

    def assignment(self) -> set[Partition]:
        return {_partition(word) for word in self._ask("assignment") if word}

    def records(self) -> list[Seen]:
        return self._last if self.closed else [_seen(word) for word in self._ask("records") if word]

    def failure(self) -> str:
        return "" if self.closed else self._ask("failure")[0]

    def identity(self) -> tuple[str, int]:
        """Its member id and epoch, as the client knows them."""
        member, epoch = self._ask("member")
        return member, int(epoch)

    def lost(self) -> int:
        """How many partitions were taken away without being given up."""
        return int(self._ask("lost")[0])

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        self._ask("commit", *(f"{topic}:{index}:{offset}" for (topic, index), offset in (offsets or {}).items()))

    def committed(self, partition: Partition) -> int | None:
        (found,) = self._ask("committed", "{}:{}".format(*partition))
        return int(found) if found else None

    def seek(self, partition: Partition, offset: int) -> None:
        self._ask("seek", "{}:{}".format(*partition), str(offset))

    def position(self, partition: Partition) -> int:
        return int(self._ask("position", "{}:{}".format(*partition))[0])

    def close(self) -> None:
        if not self.closed:
            self._last = [_seen(word) for word in self._ask("close") if word]
            self.closed = True


def _partition(word: str) -> Partition:
    topic, _, index = word.rpartition(":")
    return topic, int(index)


def _seen(word: str) -> Seen:
    place, offset, value = word.rsplit(":", 2)
    return Seen(*_partition(place), int(offset), value)


# -- in this process -------------------------------------------------------------------------------------------------


class _Polling:
    """Calls `poll_once` for ever in a thread, and between two of them what it is asked."""

    def __init__(self) -> None:
        self._asked: queue.Queue[tuple[Callable[[], Any], queue.Queue[Any]]] = queue.Queue()
        self._records: list[Seen] = []
        self._failure = ""
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def poll_once(self) -> list[Seen]:
        raise NotImplementedError

    def _run(self) -> None:
        while not self._ends:
            try:
                call, answers = self._asked.get_nowait()
            except queue.Empty:
                self._poll()
                continue
            try:
                answers.put((call(), None))
            except BaseException as problem:
                answers.put((None, problem))

    def _poll(self) -> None:
        if self._failure:
            time.sleep(0.01)
            return
        try:
            self._records += self.poll_once()
        except Refused as refusal:
            self._failure = f"{refusal.code} {refusal}"
        except Exception as problem:
            self._failure = f"-1 {problem!r}"

    def ask(self, call: Callable[[], Any]) -> Any:
        """Do it in the polling thread."""
        answers: queue.Queue[Any] = queue.Queue()
        self._asked.put((call, answers))
        result, problem = answers.get(timeout=ANSWER_S)
        if problem is not None:
            raise problem
        return result

    def records(self) -> list[Seen]:
        return list(self._records)

    def failure(self) -> str:
        return self._failure


class RdkafkaMember(_Polling):
    """A confluent_kafka.Consumer."""

    def __init__(self, bootstrap: str, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        given = {
            "bootstrap.servers": bootstrap,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 300,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **config,
        }
        if given.get("group.protocol") != "consumer":
            given = {"heartbeat.interval.ms": 200, "session.timeout.ms": 45_000, **given}
        if given["auto.offset.reset"] == "none":
            given["auto.offset.reset"] = "error"
        self.inner = ck.Consumer(given)
        self.inner.subscribe(list(topics))
        self.closed = False
        super().__init__()

    def poll_once(self) -> list[Seen]:
        first = self.inner.poll(0.05)
        found = [] if first is None else [first, *self.inner.consume(1000, 0)]
        seen = []
        for one in found:
            error = one.error()
            if error is None:
                seen.append(Seen(one.topic(), one.partition(), one.offset(), one.value().decode()))
            elif error.code() == ck.KafkaError._AUTO_OFFSET_RESET:
                raise Refused(-1, error.str())
            elif error.code() == ck.KafkaError._FATAL:
                raise Refused(_number_of(error.str()), error.str())
            elif error.code() > 0 and error.code() not in _PASSING:
                raise Refused(error.code(), error.str())
        return seen

    def assignment(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self.ask(self.inner.assignment)}

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        def commit() -> None:
            try:
                if offsets is None:
                    done = self.inner.commit(asynchronous=False)
                else:
                    given = [ck.TopicPartition(*one, offset) for one, offset in offsets.items()]
                    done = self.inner.commit(offsets=given, asynchronous=False)
            except ck.KafkaException as problem:
                raise Refused(problem.args[0].code(), problem.args[0].str()) from None
            for one in done:
                if one.error is not None:
                    raise Refused(one.error.code(), one.error.str())

        self.ask(commit)

    def committed(self, partition: Partition) -> int | None:
        (found,) = self.ask(lambda: self.inner.committed([ck.TopicPartition(*partition)], timeout=60))
        return None if found.offset < 0 else int(found.offset)

    def seek(self, partition: Partition, offset: int) -> None:
        self.ask(lambda: self.inner.seek(ck.TopicPartition(*partition, offset)))

    def position(self, partition: Partition) -> int:
        return int(self.ask(lambda: self.inner.position([ck.TopicPartition(*partition)])[0].offset))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.ask(self.inner.close)
            self._ends = True
            self._thread.join(60)


def _number_of(text: str) -> int:
    """Kafka's number of a fatal error: librdkafka gives only its description, somewhere in the text."""
    known = {ck.KafkaError(number).str(): number for number in range(1, 140)}
    named = [description for description in known if description in text]
    return known[max(named, key=len)] if named else -1


_PASSING = (3, 5, 6, 14, 15, 16)
"""Errors that librdkafka tells and gets over: a topic or leader it does not know yet, another coordinator."""


class KafkaPythonMember(_Polling):
    """A kafka.KafkaConsumer; it knows the classic protocol only."""

    def __init__(self, bootstrap: str, config: Mapping[str, Any], topics: Sequence[str]) -> None:
        from kafka import KafkaConsumer

        self.inner = KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=45_000,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=300,
            retry_backoff_ms=50,
            **config,
        )
        self.closed = False
        super().__init__()

    def poll_once(self) -> list[Seen]:
        # It loses an assignment that arrives between two polls (3.0.12), so there shall be few gaps between them; and
        # where one was there all the same, it does not know that it has to go on joining.
        if self.inner._coordinator.rejoining:
            self.inner._coordinator.request_rejoin()
        found = self.inner.poll(timeout_ms=1000)
        return [
            Seen(one.topic, one.partition, one.offset, (one.value or b"").decode())
            for records in found.values()
            for one in records
        ]

    def assignment(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self.ask(self.inner.assignment)}

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        assert offsets is None
        self.ask(self.inner.commit)

    def committed(self, partition: Partition) -> int | None:
        from kafka import TopicPartition

        found = self.ask(lambda: self.inner.committed(TopicPartition(*partition)))
        return None if found is None else int(found)

    def seek(self, partition: Partition, offset: int) -> None:
        from kafka import TopicPartition

        self.ask(lambda: self.inner.seek(TopicPartition(*partition), offset))

    def position(self, partition: Partition) -> int:
        from kafka import TopicPartition

        return int(self.ask(lambda: self.inner.position(TopicPartition(*partition))))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.ask(self.inner.close)
            self._ends = True
            self._thread.join(60)

"""Faults on a real broker: `broker.faults`.

    with broker.faults.produce(topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        producer.send("orders", b"x").get()  # the client tries again
    assert fault.hits == 2

Every kind takes: what it is for, `topic`, `partition` (of a topic), `client_id`, and where it makes sense `group` and
`transactional_id`, anything if left out; `nth`, the first request that is struck, counted from 1; `times`, how many
are, all if left out; and what happens, one of

- `error`: the name of an error, as Apache Kafka writes it. It stands in the answer where Apache Kafka puts it; what
  was to fail is not done, the other partitions of the request are served;
- `drop`: True, the connection is closed and nothing is done; "answer": it is done, and the answer is lost;
- `half`: it is done, half of the answer is sent, and the connection is closed;
- `delay_s`: it is done so much later; beside one of the others, or alone.

A fault begins when it is made, for requests that arrive from then on, and ends with its `with` block, with `end()`, or
with `broker.faults.clear()`. The kit's own requests (`create_topic`, `records`, …) are spared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Self

from barnabas.control import Control

__all__ = ["Fault", "Faults"]

GROUP_APIS = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "TxnOffsetCommit",
    "DescribeGroups",
    "DeleteGroups",
    "OffsetDelete",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
)
TRANSACTION_APIS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions")
Drop = bool | Literal["request", "answer"]


class Fault:
    """One fault. `hits`: requests that it has struck; `seen`: requests that it was for, `nth` and `times` aside."""

    def __init__(self, control: Control, described: dict[str, Any]) -> None:
        self._control = control
        self._described = described
        self._ended = False

    def __repr__(self) -> str:
        said = {key: value for key, value in self._described.items() if value is not None and key != "over"}
        return f"<barnabas fault {said}>"

    @property
    def hits(self) -> int:
        """How many requests it has struck until now, or until its end."""
        return int(self._now()["hits"])

    @property
    def seen(self) -> int:
        """How many requests it was for until now, or until its end."""
        return int(self._now()["seen"])

    def end(self) -> None:
        """End it. Nothing happens if it has ended, or the broker was started again, which ends all."""
        if not self._ended:
            self._ended = True
            try:
                self._described = self._control.ask("DELETE", self._path)
            except ValueError:  # cleared before
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def _path(self) -> str:
        return f"/v1/faults/{self._described['id']}"

    def _now(self) -> dict[str, Any]:
        if not self._ended:
            try:
                self._described = self._control.ask("GET", self._path)
            except ValueError:  # cleared
                self._ended = True
        return self._described


class Faults:
    """What goes wrong on purpose with one broker; see the module. `in_use`: some fault was made since `clear`."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.in_use = False

    def produce(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        transactional_id: str | None = None,
        error: str | None = None,
        delay_s: float | None = None,
        drop: Drop = False,
        half: bool = False,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """What producers send. With acks=0 an error closes the connection, as Apache Kafka does. Raises ValueError."""
        return self.any(
            api="Produce",
            topic=topic,
            partition=partition,
            client_id=client_id,
            transactional_id=transactional_id,
            error=error,
            delay_s=delay_s,
            drop=drop,
            half=half,
            nth=nth,
            times=times,
        )

    def fetch(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        error: str | None = None,
        delay_s: float | None = None,
        drop: Drop = False,
        half: bool = False,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """What consumers read; a Fetch that waits already is answered as usual. Raises ValueError."""
        return self.any(
            api="Fetch",
            topic=topic,
            partition=partition,
            client_id=client_id,
            error=error,
            delay_s=delay_s,
            drop=drop,
            half=half,
            nth=nth,
            times=times,
        )

    def metadata(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        stale: bool = False,
        error: str | None = None,
        delay_s: float | None = None,
        drop: Drop = False,
        half: bool = False,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """Where clients learn of topics and leaders. stale: the answer is what it was when the fault was made, for all,
        or for one topic. Raises ValueError.
        """
        return self.any(
            api=("Metadata", "DescribeTopicPartitions") if partition is None else "Metadata",
            topic=topic,
            partition=partition,
            client_id=client_id,
            stale=stale,
            error=error,
            delay_s=delay_s,
            drop=drop,
            half=half,
            nth=nth,
            times=times,
        )

    def coordinator_moved(
        self,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """NOT_COORDINATOR from whoever coordinates a group, or transactions, as when it has moved to another broker.
        Without either of them: of all groups. Raises ValueError.
        """
        return self.any(
            api=GROUP_APIS if transactional_id is None else TRANSACTION_APIS,
            group=group,
            transactional_id=transactional_id,
            client_id=client_id,
            error="NOT_COORDINATOR",
            nth=nth,
            times=times,
        )

    def disk_full(
        self, *, topic: str | None = None, partition: int | None = None, nth: int = 1, times: int | None = None
    ) -> Fault:
        """KAFKA_STORAGE_ERROR to who writes, as from a broker that cannot write to the log directory any more. (One
        without another log directory stops then: `broker.kill()`.) Raises ValueError.
        """
        return self.produce(topic=topic, partition=partition, error="KAFKA_STORAGE_ERROR", nth=nth, times=times)

    def any(
        self,
        *,
        api: str | Iterable[str] | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
        error: str | None = None,
        stale: bool = False,
        delay_s: float | None = None,
        drop: Drop = False,
        half: bool = False,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """Requests of an API, or of several, by Apache Kafka's names such as "JoinGroup"; None: all. Raises ValueError.

        A fault for a topic, group or transactional id strikes what names it; in requests that name no such thing
        nothing is struck.
        """
        asked = {
            "api": api if api is None or isinstance(api, str) else list(api),
            "topic": topic,
            "partition": partition,
            "group": group,
            "transactional_id": transactional_id,
            "client_id": client_id,
            "error": error,
            "stale": stale or None,
            "delay_ms": None if delay_s is None else round(delay_s * 1000),
            "drop": ("request" if drop is True else drop) or None,
            "half": half or None,
            "nth": nth,
            "times": times,
        }
        fault = Fault(self._control, self._control.ask("POST", "/v1/faults", asked))
        self.in_use = True
        return fault

    def clear(self) -> None:
        """End all faults."""
        self._control.ask("DELETE", "/v1/faults")
        self.in_use = False

    def __iter__(self) -> Iterator[Fault]:
        """Those that have not ended."""
        for described in self._control.ask("GET", "/v1/faults")["faults"]:
            yield Fault(self._control, described)

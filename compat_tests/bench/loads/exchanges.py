"""What `Exchange.java` sends: frames for many connections, made and tried out once before the clock starts.

A frame is sent by hand until its answer has no error (a coordinator loads, a topic's leader is chosen), which also
tells how long the answer is. The answer's error codes stand at places that are counted from its end or its beginning;
how is said at each request.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compat_tests.bench.loads import frames
from compat_tests.harness.processes import Failed

TIMEOUT_S = 60.0
RETRIABLE = {3, 5, 6, 14, 15, 16, 100}
"""Unknown topic or partition, no leader (yet), not the leader (yet); the coordinator loads, is unknown, has moved;
unknown topic id.
"""


@dataclass(frozen=True)
class Exchange:
    """A frame to send to a port, its answer's length in bytes with the four of the length itself, and where the answer
    has error codes.
    """

    port: int
    frame: bytes
    answer_bytes: int
    errors: tuple[int, ...]


class Broker:
    """A connection to find out what a broker answers. `address`: host and port."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._port = address[1]
        self._connection = socket.create_connection(address, timeout=TIMEOUT_S)

    def close(self) -> None:
        """End it."""
        self._connection.close()

    def ask(self, frame: bytes) -> bytes:
        """Return the answer with its length."""
        self._connection.sendall(frame)
        return frames.receive_frame(self._connection)

    def settled(self, frame: bytes, errors: Callable[[bytes], tuple[int, ...]]) -> Exchange:
        """Ask until there is no error; `errors` says where an answer has error codes. Raises Failed."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self.ask(frame)
            places = errors(answer)
            if not (found := _errors(frame, answer, places)):
                return Exchange(self._port, frame, len(answer), places)
            if time.monotonic() > deadline:
                raise Failed(f"errors {found} in the answer to {frame[:40]!r}")
            time.sleep(0.1)

    def leads(self, topic: str, partitions: Sequence[int]) -> bool:
        """Whether it says now where the partitions end. Raises Failed."""
        frame = frames.log_ends(topic, partitions)
        # From the end, for each partition: its index, the error code, a timestamp and an offset.
        places = tuple(-22 * left + 4 for left in range(len(partitions), 0, -1))
        return not _errors(frame, self.ask(frame), places)

    def coordinators(self, name: str) -> None:
        """Return when groups and transactions have coordinators."""
        for kind in (0, 1):
            self.settled(frames.find_coordinator(name, kind), lambda _: (12,))

    def produce(self, topic: str, value: bytes, partition: int = 0, *, by_id: bool) -> Exchange:
        """Produce v13 or v7 of one record."""
        batch = frames.one_record_batch(value)
        if by_id:
            frame = frames.produce_by_id(self._topic_id(topic), partition, batch)
            # Header v1 of answers, one topic with its id, one partition with its index; then the error code.
            place = 4 + 5 + 1 + 16 + 1 + 4
        else:
            frame = frames.produce_by_name(topic, partition, batch)
            place = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        return self.settled(frame, lambda _: (place,))

    def commit(self, group: str, topic: str, partitions: int) -> Exchange:
        """OffsetCommit v9."""
        self.settled(frames.find_coordinator(group, 0), lambda _: (12,))
        frame = frames.offset_commit(group, topic, partitions, 7)
        # From the end: tags of the topic and of the whole; for each partition its index, the error code, tags.
        return self.settled(
            frame, lambda answer: tuple(len(answer) - 2 - 7 * left + 4 for left in range(partitions, 0, -1))
        )

    def fetch_last(self, topic: str, value: bytes) -> Exchange:
        """Fetch v16 of the last batch of partition 0, which this writes."""
        offset = self._write(topic, value)
        frame = frames.fetch_by_id(self._topic_id(topic), 0, offset)
        # Throttle time, error code, session, one topic with its id, one partition with its index; then the error code.
        found = self.settled(frame, lambda _: (4 + 5 + 4, 4 + 5 + 4 + 2 + 4 + 1 + 16 + 1 + 4))
        if found.answer_bytes < len(value):
            raise Failed(f"the fetch of the last record has {found.answer_bytes} bytes")
        return found

    def _write(self, topic: str, value: bytes) -> int:
        """Write one record; its offset."""
        produced = self.produce(topic, value, by_id=False)
        (offset,) = struct.unpack_from(">q", self.ask(produced.frame), produced.errors[0] + 2)
        return int(offset)

    def _topic_id(self, topic: str) -> bytes:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = frames.topic_id(self.ask(frames.metadata(topic)), topic)
            if any(found):
                return found
            if time.monotonic() > deadline:
                raise Failed(f"{topic} has no id")
            time.sleep(0.1)


def _errors(frame: bytes, answer: bytes, places: Iterable[int]) -> set[int]:
    """The error codes at these places, if asking again may help. Raises Failed."""
    found = {struct.unpack_from(">h", answer, place)[0] for place in places} - {0}
    if not found <= RETRIABLE:
        raise Failed(f"errors {found} in the answer to {frame[:40]!r}")
    return found


@contextmanager
def trying(address: tuple[str, int]) -> Iterator[Broker]:
    """A connection to find out."""
    broker = Broker(address)
    try:
        yield broker
    finally:
        broker.close()


def write(path: Path, exchanges: list[Exchange]) -> None:
    """Write the file that `Exchange.java` reads: one of them for each connection."""
    parts = [struct.pack(">i", len(exchanges))]
    for one in exchanges:
        parts += [struct.pack(">ii", one.port, len(one.frame)), one.frame]
        parts.append(struct.pack(f">{2 + len(one.errors)}i", one.answer_bytes, len(one.errors), *one.errors))
    path.write_bytes(b"".join(parts))

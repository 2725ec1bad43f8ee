"""Loads shards: replays partitions of an internal topic, from the log's start to its *end*, in slices between which the
loop runs.

Records beyond the high watermark may have been acknowledged by the former leader, whose high watermark was ahead of
ours: no answer may leave them out. They are committed as soon as the followers have fetched once; the shard waits for
that, without limit or for `Subject.open_s`, and is loaded again if the log has grown meanwhile. Unreadable batches are
logged and skipped: one bad sector must not make the whole partition unavailable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.coordinators.coordinated_shard import CoordinatedShard, S, Subject
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.loading import replay_slice
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.wakeup import Wakeup

LOAD_BYTES = 64 * 1024
"""One slice of loading: some hundred records, a few milliseconds of the loop."""
LOAD_RETRY_S = 5.0


class Loader(Generic[S]):
    """See the module. activate: called with a loaded shard; the records that it appends are written afterwards."""

    def __init__(
        self, ground: CoordinatorGround, subject: Subject[S], activate: Callable[[CoordinatedShard[S]], None]
    ) -> None:
        self._subject = subject
        self._log = subject.log
        self._activate = activate
        self._partitions = ground.partitions
        self._timers = ground.timers
        self._clock = ground.now
        self._to_load: deque[CoordinatedShard[S]] = deque()
        self._wanted = Wakeup()

    def add(self, led: CoordinatedShard[S]) -> None:
        """Load this shard, after those that wait for it already."""
        self._to_load.append(led)
        self._wanted.set()

    async def run(self) -> None:
        """Load one after the other, until cancelled."""
        while True:
            while self._to_load:
                led = self._to_load.popleft()
                try:
                    is_done = await self._load(led)
                except Exception as error:
                    is_done = False
                    contain(self._log, f"loading {led!r}", error)
                if not is_done:
                    self._timers.after(LOAD_RETRY_S, partial(self._load_again, led))
            await self._wanted.wait()

    def _load_again(self, led: CoordinatedShard[S]) -> None:
        if not led.is_closed:
            self.add(led)

    async def _load(self, led: CoordinatedShard[S]) -> bool:
        """Replay the whole log of `led`. False: the log could not be read; to be tried again."""
        partition = led.partition
        started = self._clock()
        led.suspend()
        led.shard = self._subject.new_shard(partition)
        replayed = self._subject.replayed(led.shard)
        offset = partition.log_start_offset
        try:
            while not led.is_closed and offset < partition.log_end_offset:
                end_offset = partition.log_end_offset
                found = partition.read(offset, LOAD_BYTES, upper_offset=end_offset, min_one_batch=True)
                if found is None:
                    break
                next_offset = replay_slice(replayed, found.read(), offset, end_offset, end_offset, self._subject.topic)
                offset = max(next_offset, offset + 1)
                await trio.lowlevel.checkpoint()
        except (KafkaError, OSError) as error:
            if led.is_closed:
                return True  # another broker leads the partition now
            self._log.error("loading %r stopped at offset %d: %s", led, offset, error)
            return False
        if not led.is_closed:
            led.loaded_to = partition.log_end_offset
            size, seconds = self._subject.size(led.shard), self._clock() - started
            self._log.info("loaded %d entries from %r, %d offsets long, in %.3f s", size, led, offset, seconds)
            if partition.high_watermark >= led.loaded_to:
                self._serve(led)
            else:
                if self._subject.open_s is not None:
                    self._timers.after(self._subject.open_s, partial(self._open, led))
                partition.when_committed(led.loaded_to, partial(self._committed, led))
        return True

    def _committed(self, led: CoordinatedShard[S], code: ErrorCode) -> None:
        """The followers have what was loaded, or leadership is lost; then `resign` follows."""
        self._timers.after(0, partial(self._open, led))

    def _open(self, led: CoordinatedShard[S]) -> None:
        """Serve what was loaded, unless the log has grown meanwhile."""
        if led.is_active or led.is_closed:
            return
        if led.partition.log_end_offset == led.loaded_to:
            self._serve(led)
        else:
            self._load_again(led)

    def _serve(self, led: CoordinatedShard[S]) -> None:
        self._activate(led)
        self._partitions.write_staged()

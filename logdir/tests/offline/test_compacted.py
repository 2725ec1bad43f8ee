"""Compacted logs, read and verified offline after every round of cleaning, against the log itself. Prints its seeds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.offline import open_log
from barnabas.logdir.offline.verify import verify
from barnabas.logdir.tests.compaction.compaction_kit import Compacted, committed, final_values
from barnabas.logdir.tests.kit import PATH


def export(disk: MemoryDisk, source: str, target: Path) -> None:
    """The files as they are now, on the real disk."""
    target.mkdir(parents=True)
    for entry in disk.list(source):
        if entry.is_dir:
            export(disk, f"{source}/{entry.name}", target / entry.name)
        else:
            (target / entry.name).write_bytes(bytes(disk.node(f"{source}/{entry.name}").data))


@pytest.mark.parametrize("seed", range(6))
def test_compacted_logs(seed: int, tmp_path: Path) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    log = Compacted(segment_bytes=rng.choice((400, 900, 3000)))
    sequences = {1: 0, 2: 0, 3: 0}
    open_txns: set[int] = set()
    for turn in range(4):
        for _ in range(rng.randrange(4, 25)):
            log.clock.now_ms += rng.randrange(200)
            records = [
                (b"k%d" % rng.randrange(8), None if rng.random() < 0.2 else rng.randbytes(rng.randrange(30)))
                for _ in range(rng.randrange(1, 5))
            ]
            time = log.clock.now_ms - rng.randrange(300)
            kind = rng.random()
            if kind < 0.3:
                log.put(*records, codec=rng.randrange(5), timestamp=time)
            elif kind < 0.75:
                who = rng.choice((1, 2, 3))
                transactional = who != 3
                log.put(
                    *records,
                    producer_id=who,
                    producer_epoch=0,
                    base_sequence=sequences[who],
                    transactional=transactional,
                    timestamp=time,
                )
                sequences[who] += len(records)
                if transactional:
                    open_txns.add(who)
            elif open_txns:
                who = rng.choice(sorted(open_txns))
                open_txns.discard(who)
                log.end_transaction(who, commit=rng.random() < 0.5)
        log.roll()
        log.clean()
        log.log.flush()
        place = tmp_path / str(turn)
        export(log.disk, PATH, place)
        found = [str(problem) for problem in verify(str(place)) if problem.kind != "leftover"]
        assert found == []
        reader = open_log(place / "t-0")
        stable = log.log.last_stable_offset(log.log.log_end_offset)
        assert reader.end_offset() == log.log.log_end_offset
        assert reader.last_stable_offset() == stable
        read = [(record.offset, record.key, record.value) for record in reader.records(isolation="read_committed")]
        assert read == [record for record in committed(log.log) if record[0] < stable]
        values: dict[bytes | None, bytes] = {}
        for _, key, value in read:
            values.pop(key, None)
            if value is not None:
                values[key] = value
        if not open_txns:
            assert values == final_values(log.log)

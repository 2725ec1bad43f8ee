"""The files against Apache Kafka itself: its tool reads ours, we open its directories, and it opens them again after
us.

Needs a JVM and the jars of Apache Kafka 4.3.1: BARNABAS_KAFKA_CLASSPATH names them, else Maven fetches them into the
project's cache (compat_tests/harness/jars.py).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from barnabas.kproto.records import Record, build_batch, build_control_batch, iter_records
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, PartitionLog
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, Clock, batch, open_dir, stored
from compat_tests.harness.brokers import KAFKA_JARS, Broker, start_kafka
from compat_tests.harness.jars import classpath, java

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]

PATIENCE_S = 60
NOT_YET = (
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
)
COMPLAINTS = re.compile(r"Exception|ERROR|WARN|[Mm]ismatch|corrupt|not found|is followed by|Found timestamp")


def dump(files: list[Path], *options: str) -> str:
    """Run DumpLogSegments; its complaints fail the test."""
    jars = os.environ.get("BARNABAS_KAFKA_CLASSPATH") or classpath(KAFKA_JARS)
    command = [*java(), "-XX:TieredStopAtLevel=1", "-cp", jars, "org.apache.kafka.tools.DumpLogSegments", *options]
    done = subprocess.run(
        [*command, "--files", ",".join(map(str, files))], capture_output=True, text=True, timeout=400, check=False
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-3000:]
    # The tool of 4.3.1 says of every segment but the first that its first offset follows -1.
    bad = [line for line in printed.splitlines() if COMPLAINTS.search(line) and "  -1 is" not in line]
    assert [line for line in bad if "StaticLogger" not in line and "payload" not in line] == []
    return printed


def fill(log: PartitionLog, rng: random.Random) -> int:
    """Batches of every kind over several segments, two open transactions at a time; how many records."""
    count = 0
    sequences = {1: 0, 2: 0}
    open_txns: set[int] = set()
    for number in range(120):
        values = [Record(timestamp=NOW + number * 10 + rng.randint(0, 30), value=rng.randbytes(rng.randint(0, 300)))]
        values *= rng.randint(1, 5)
        kind = rng.random()
        if kind < 0.3:
            producer = rng.choice((1, 2))
            buf = build_batch(
                values, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer], transactional=True
            )
            sequences[producer] += len(values)
            open_txns.add(producer)
            origin = AppendOrigin.CLIENT
        elif kind < 0.4 and open_txns:
            producer = open_txns.pop()
            buf = build_control_batch(
                producer_id=producer,
                producer_epoch=0,
                commit=rng.random() < 0.4,
                coordinator_epoch=3,
                timestamp=NOW + number * 10,
            )
            values = values[:1]
            origin = AppendOrigin.COORDINATOR
        else:
            buf = build_batch(values, codec=rng.randint(0, 4), producer_id=9, producer_epoch=1, base_sequence=count)
            if log.producers.entries.get(9) is not None:
                buf = build_batch(values, codec=rng.randint(0, 4))
            origin = AppendOrigin.CLIENT
        log.append(buf, leader_epoch=number // 40, now_ms=NOW + number * 10, origin=origin)
        log.write()
        count += len(values)
    return count


@pytest.mark.parametrize("stopped", ["cleanly", "not at all", "and recovered"])
def test_its_tool_reads_our_files(tmp_path: Path, stopped: str) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    log_dir = open_dir(None, f"{tmp_path}/logs")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, config)
    count = fill(log, random.Random(5))
    assert log.segment_count > 2
    assert log.log_end_offset == count
    aborted = len(log.aborted_transactions(0, count))
    assert aborted > 3
    if stopped == "cleanly":
        log_dir.close()
    else:
        log.flush()
        if stopped == "and recovered":
            log_dir.unlock()
            log_dir = open_dir(None, f"{tmp_path}/logs", config=config)
            assert not log_dir.was_clean
            assert len(log_dir.logs["t", 0].aborted_transactions(0, count)) == aborted
            log_dir.close()
    home = tmp_path / "logs" / "t-0"
    printed = dump(sorted(home.glob("*.log")), "--deep-iteration", "--print-data-log")
    assert len(re.findall(r"^\| offset: ", printed, re.MULTILINE)) == count
    indexes = sorted([*home.glob("*.index"), *home.glob("*.timeindex")])
    dump(indexes, "--index-sanity-check")
    dump(indexes, "--verify-index-only")
    printed = dump(sorted(home.glob("*.txnindex")))
    assert len(re.findall(r"producerId: ", printed)) == aborted
    snapshots = sorted(home.glob("*.snapshot"))
    assert snapshots
    printed = dump(snapshots)
    assert "producerId: 9 producerEpoch: 1" in printed


# ---- with a running Apache Kafka


def produce(kafka: Broker) -> None:
    """Plain, compressed, idempotent and transactional records into topic `t`, and some into `u`. They are old, and
    stay all the same: retention runs half a minute after the start.
    """
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    stay = {"retention.ms": "-1"}
    topics = [
        confluent_kafka.admin.NewTopic("t", 1, 1, config={"segment.bytes": "1048576", **stay}),
        confluent_kafka.admin.NewTopic("u", 3, 1, config=stay),
    ]
    for future in admin.create_topics(topics).values():
        future.result(60)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
    for name, count in (("t", 1), ("u", 3)):
        consumer.list_topics(name, timeout=PATIENCE_S)
        for index in range(count):  # a leader that is named may not lead yet
            log_end(consumer, confluent_kafka.TopicPartition(name, index))
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "enable.idempotence": number % 2 == 0}
        )
        for record in range(600):
            time_ms = NOW + number * 100_000 + record * 10
            producer.produce("t", random.Random(record).randbytes(1000), b"%d" % record, partition=0, timestamp=time_ms)
            producer.produce("u", b"u%d" % record, partition=record % 3, timestamp=time_ms)
        assert producer.flush(60) == 0
    transactional = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "x"})
    transactional.init_transactions(60)
    for number in range(6):
        transactional.begin_transaction()
        for record in range(5):
            transactional.produce("t", b"txn %d %d" % (number, record), partition=0)
        transactional.flush(60)
        if number % 2:
            transactional.abort_transaction(60)
        else:
            transactional.commit_transaction(60)
    # The last marker is written a moment later; then the last stable offset is the end.
    committed = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
    everything = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "none", "isolation.level": "read_uncommitted"}
    )
    place = confluent_kafka.TopicPartition("t", 0)
    deadline = time.monotonic() + PATIENCE_S
    while log_end(committed, place) < log_end(everything, place):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.05)
    for one in (consumer, committed, everything):
        one.close()


def log_end(consumer: confluent_kafka.Consumer, partition: confluent_kafka.TopicPartition) -> int:
    """Its end, as soon as its leader answers: a broker takes connections before it knows what it leads."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)[1])
        except confluent_kafka.KafkaException as refusal:
            if refusal.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def consume(kafka: Broker, topic: str, partition: int, isolation: str) -> list[tuple[int, int, bytes, bytes]]:
    """Everything: (offset, timestamp, key, value)."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "none", "isolation.level": isolation}
    )
    try:
        assigned = confluent_kafka.TopicPartition(topic, partition, 0)
        end = log_end(consumer, assigned)
        consumer.assign([assigned])
        found = []
        while consumer.position([assigned])[0].offset < end:
            for message in consumer.consume(500, 5.0):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.timestamp()[1], message.key() or b"", message.value() or b""))
        return found
    finally:
        consumer.close()


def records(log: PartitionLog) -> list[tuple[int, int, bytes, bytes]]:
    """What `consume` gives: everything but control records."""
    found = []
    for header, data in stored(log):
        if not header.is_control:
            for record in iter_records(data):
                found.append((record.offset, record.timestamp, record.key or b"", record.value or b""))
    return found


def committed(log: PartitionLog) -> list[tuple[int, int, bytes, bytes]]:
    """What a consumer of committed records makes of ours: the records without those of aborted transactions."""
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    found = []
    for header, data in stored(log):
        in_aborted = header.is_transactional and any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        )
        if not header.is_control and not in_aborted:
            for record in iter_records(data):
                found.append((record.offset, record.timestamp, record.key or b"", record.value or b""))
    return found


@pytest.mark.parametrize("stopped", ["cleanly", "by kill -9"])
def test_its_directory_opens_in_ours_and_in_its_again(tmp_path: Path, stopped: str) -> None:
    settings = ("offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2")
    # A broker that stood still and was let in again would lead in another epoch.
    kafka = start_kafka(tmp_path, (*settings, "broker.session.timeout.ms=120000"))
    try:
        produce(kafka)
        everything = {("t", 0): consume(kafka, "t", 0, "read_uncommitted")}
        for partition in range(3):
            everything["u", partition] = consume(kafka, "u", partition, "read_uncommitted")
        only_committed = consume(kafka, "t", 0, "read_committed")
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
        times = [NOW, NOW + 1, NOW + 3005, NOW + 105_995, NOW + 200_000, NOW + 405_990, NOW + 300_000]
        by_time = {}
        for time_ms in times:
            asked = [confluent_kafka.TopicPartition("t", 0, time_ms)]
            by_time[time_ms] = consumer.offsets_for_times(asked, timeout=60)[0].offset
        consumer.close()
    finally:
        if stopped == "cleanly":
            kafka.stop()
        else:
            assert kafka.process is not None
            kafka.process.kill()
            kafka.process.wait()
    assert len(everything["t", 0]) == 3030
    assert len(only_committed) == 3015

    data = tmp_path / "data"
    config = LogConfig(segment_bytes=1 << 20)
    log_dir = LogDir(str(data), wall_ms=Clock())
    log_dir.open()
    assert log_dir.meta is not None
    assert (log_dir.meta.version, log_dir.meta.node_id) == (1, 1)
    log_dir.check_identity(cluster_id=log_dir.meta.cluster_id or "", node_id=1)
    log_dir.load(lambda topic: config)
    assert log_dir.was_clean == (stopped == "cleanly")
    assert ("__cluster_metadata", 0) not in log_dir.logs
    for key, expected in everything.items():
        assert records(log_dir.logs[key]) == expected, key
    log = log_dir.logs["t", 0]
    assert log.segment_count > 2
    assert log.topic_id is not None
    assert log.epochs.entries == ((0, 0),)
    assert committed(log) == only_committed
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 3
    assert log.first_unstable_offset is None
    for time_ms, offset in by_time.items():
        found = log.offset_for_timestamp(time_ms)
        assert found is not None
        assert found[1] == offset, time_ms - NOW
    # Four producers: three idempotent ones and the transactional one.
    assert log.producer_count == 4
    end = log.log_end_offset
    for number in range(50):
        log.append(batch(b"ours" * 100, producer=(777, 0, number)), leader_epoch=0, now_ms=NOW)
        log.write()
    log.roll(NOW)
    log.append(batch(b"last"), leader_epoch=0, now_ms=NOW)
    log.write()
    log_dir.close()

    kafka = start_kafka(tmp_path, settings)
    try:
        again = consume(kafka, "t", 0, "read_committed")
        assert again[: len(only_committed)] == only_committed
        assert [record[0] for record in again[len(only_committed) :]] == list(range(end, end + 51))
        assert again[-1][3] == b"last"
        for partition in range(3):
            assert consume(kafka, "u", partition, "read_committed") == everything["u", partition]
    finally:
        kafka.stop()
    said = kafka.log_tail(1 << 20).splitlines()
    complaints = [line for line in said if re.search("[Cc]orrupt|rebuil|[Rr]ecover", line)]
    assert [line for line in complaints if "__cluster_metadata" not in line] == []

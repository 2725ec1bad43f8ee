"""A broker alone on a directory that was filled elsewhere: topics, settings, epochs and producer ids go on."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from barnabas.kproto.records import Record, build_batch
from barnabas.kproto.stored import TransactionLogKey, TransactionLogValue, encode_versioned
from barnabas.logdir import LogConfig, LogDir, MetaProperties
from barnabas.logdir.tests.dirs.test_survey import RED, batch, config, partition, producer_ids, topic
from barnabas.logdir.tests.kit import stored
from barnabas.server.testing import embedded_broker

NOW = 1_750_000_000_000
IDS = {"red": RED, "blue": bytes([2]) * 16, "gone": bytes([3]) * 16, "__consumer_offsets": bytes([4]) * 16}


def records(*values: bytes, producer_id: int = -1, key: bytes | None = None) -> bytearray:
    sequence = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    return build_batch([Record(timestamp=NOW, key=key, value=value) for value in values], **sequence)  # type: ignore[arg-type]


def fill(directory: Path, contents: dict[tuple[str, int], bytearray | None], meta: MetaProperties) -> None:
    """A directory as another broker leaves it: logs whose last leader epoch is 7, and no metadata of ours."""
    log_dir = LogDir(str(directory), wall_ms=lambda: NOW)
    log_dir.open()
    log_dir.load(lambda name: LogConfig())
    for (name, index), data in contents.items():
        opened = log_dir.open_or_create(name, index, IDS.get(name), LogConfig())
        if data is not None:
            opened.append(data, leader_epoch=7, now_ms=NOW)
            opened.write()
    log_dir.identity.write(meta)
    log_dir.close({key: opened.log_end_offset for key, opened in log_dir.logs.items()})


def write_metadata(directory: Path, *values: bytes) -> None:
    (directory / "__cluster_metadata-0").mkdir()
    (directory / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(batch(0, *values))


async def test_without_its_metadata(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ZooKeeper's directories: nothing but what the partitions' directories say."""
    state = encode_versioned(TransactionLogValue(producer_id=5000, transaction_partitions=None), 0)
    key = encode_versioned(TransactionLogKey(transactional_id="x"), 0)
    fill(
        tmp_path,
        {
            ("red", 0): records(b"a", b"b", producer_id=4000),
            ("red", 2): None,
            ("no-id", 0): records(b"c"),
            ("__consumer_offsets", 0): None,
            ("__consumer_offsets", 1): None,
            ("__consumer_offsets", 2): None,
            ("__transaction_state", 1): records(state, key=key),
            ("__share_group_state", 7): None,
        },
        MetaProperties(0, "the-old-cluster", 3),
    )
    with caplog.at_level(logging.WARNING):
        async with embedded_broker(tmp_path, offsets_topic_num_partitions="50", broker_id="3") as broker:
            image = broker.services.current_image()
            assert image.cluster_id == "the-old-cluster"
            assert broker.config.broker_id == 3
            red = image.topics["red"]
            assert (red.topic_id, dict(red.config)) == (RED, {"retention.ms": "-1", "retention.bytes": "-1"})
            assert [(p.leader, p.leader_epoch, p.isr) for p in red.partitions] == [
                (3, 8, (3,)),
                (3, 0, (3,)),
                (3, 0, (3,)),
            ]
            log = broker.services.partitions.get("red", 0).log
            assert (log.log_start_offset, log.log_end_offset, log.config.retention_ms) == (0, 2, -1)
            assert broker.services.partitions.get("red", 0).high_watermark == 2
            assert any(image.topics["no-id"].topic_id)
            # As many partitions as there are (groups are found by that number); with one missing, as the settings say.
            offsets, transactions = image.topics["__consumer_offsets"], image.topics["__transaction_state"]
            assert (len(offsets.partitions), len(transactions.partitions)) == (3, 50)
            assert offsets.config["cleanup.policy"] == transactions.config["cleanup.policy"] == "compact"
            shares = image.topics["__share_group_state"]
            assert len(shares.partitions) == 50
            assert (shares.config["cleanup.policy"], shares.config["retention.ms"]) == ("delete", "-1")
            # 4000 stands in a log, 5000 among the transactional ids.
            assert await broker.services.producer_ids.next_id() == 5001
    assert "retention is off" in caplog.text
    assert "partitions 1 of red are not on this disk" in caplog.text


async def test_gaps_of_compaction_are_kept(tmp_path: Path) -> None:
    """A follower of a compacted topic, copied without its cleaner's checkpoint: nothing shows that it is compacted."""
    (tmp_path / "users-0").mkdir()
    for base in (0, 50, 120):
        data = b"".join(
            build_batch([Record(0, NOW, b"k%d" % at, b"v%d" % at)], base_offset=at, leader_epoch=0)
            for at in range(base, base + 10)
        )
        (tmp_path / "users-0" / f"{base:020d}.log").write_bytes(data)
    (tmp_path / "users-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    async with embedded_broker(tmp_path, broker_id="1") as broker:
        log = broker.services.partitions.get("users", 0).log
        assert log.segment_bases == [0, 50, 120]
        assert log.log_end_offset == 130
        assert [header.base_offset for header, _ in stored(log)] == [*range(10), *range(50, 60), *range(120, 130)]


async def test_with_krafts_metadata(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(
        tmp_path,
        {("red", 0): records(b"a"), ("gone", 0): records(b"x"), ("blue", 0): None},
        MetaProperties(1, "kraft", 1, "AQEBAQEBAQEBAQEBAQEBAQ"),
    )
    write_metadata(
        tmp_path,
        topic("red", RED),
        partition(0, RED),
        partition(1, RED),
        config("red", "cleanup.policy", "compact"),
        topic("blue", bytes([9]) * 16),  # deleted and made again elsewhere
        topic("elsewhere", bytes([8]) * 16),
        producer_ids(7000),
    )
    with caplog.at_level(logging.WARNING):
        async with embedded_broker(tmp_path) as broker:
            topics = broker.services.current_image().topics
            assert set(topics) == {"red"}
            assert (len(topics["red"].partitions), dict(topics["red"].config)) == (2, {"cleanup.policy": "compact"})
            assert await broker.services.producer_ids.next_id() == 7000
    assert "ignored, because Apache Kafka's metadata had deleted them: blue, gone" in caplog.text
    assert (tmp_path / "gone-0").is_dir()


async def test_folders_that_are_no_partitions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, {("red", 0): records(b"a"), ("red", 999): None}, MetaProperties(0, "c", 1))
    shutil.copytree(tmp_path / "red-0", tmp_path / "red-20240101")
    shutil.copytree(tmp_path / "red-0", tmp_path / "old-20240101")
    for name in ("backup-20240101", "huge-9999999999", "empty-3"):
        (tmp_path / name).mkdir()
    with caplog.at_level(logging.WARNING):
        async with embedded_broker(tmp_path) as broker:
            topics = broker.services.current_image().topics
            assert {name: len(topic.partitions) for name, topic in topics.items()} == {"red": 1000}
    assert "will not have more than 1000: red-20240101" in caplog.text
    assert "will not have more than 1000: old-20240101" in caplog.text
    assert f"{tmp_path}/backup-20240101 holds no segment" in caplog.text


async def test_only_a_new_store_takes_topics_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, {("red", 0): records(b"a")}, MetaProperties(0, "c", 1))
    async with embedded_broker(tmp_path) as broker:
        epoch = broker.services.current_image().topics["red"].partitions[0].leader_epoch
    fill(tmp_path, {("late", 0): records(b"a")}, MetaProperties(0, "c", 1))
    with caplog.at_level(logging.WARNING):
        async with embedded_broker(tmp_path) as broker:
            topics = broker.services.current_image().topics
            assert set(topics) == {"red"}
            assert topics["red"].partitions[0].leader_epoch >= epoch
    assert "not served, because the metadata has no such partitions: late" in caplog.text


async def test_metadata_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    fill(tmp_path, {("red", 0): records(b"a")}, MetaProperties(1, "kraft", 1))
    write_metadata(tmp_path, b"\x01\x02")
    with pytest.raises(BaseExceptionGroup) as failed:
        async with embedded_broker(tmp_path):
            pass
    assert failed.group_contains(Exception, match="Apache Kafka's metadata cannot be read")

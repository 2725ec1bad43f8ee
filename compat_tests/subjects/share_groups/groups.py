"""Settings of the broker for groups that move fast, and of single groups."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

LOCK_S = 30.0
"""On a busy machine a while may pass between a poll and what is said of its records."""
LONG_LOCK = {"share_record_lock_duration_ms": str(round(LOCK_S * 1000))}
SHORT_LOCK_S = 4.0
"""Of groups whose locks run out."""
SHORT_LOCK = {"share_record_lock_duration_ms": str(round(SHORT_LOCK_S * 1000))}
SETTINGS = (
    "group.share.min.heartbeat.interval.ms=100",
    "group.share.heartbeat.interval.ms=200",
    "group.share.min.session.timeout.ms=1000",
    "group.share.session.timeout.ms=45000",
    "group.share.assignment.interval.ms=0",
    "group.share.min.record.lock.duration.ms=1000",
    f"group.share.record.lock.duration.ms={round(LOCK_S * 1000)}",
    "share.coordinator.state.topic.num.partitions=4",
    "offsets.topic.num.partitions=4",
)


def configure(bootstrap: str, group: str, **settings: str) -> None:
    """Give a group settings of its own, as `share_<name>`; it begins at the start of logs."""
    changes = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in {"share_auto_offset_reset": "earliest", **settings}.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)

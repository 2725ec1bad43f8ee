"""A setting that is said to work is read somewhere: no proof that it works, but that it was not forgotten."""

import re
from pathlib import Path

import pytest

from barnabas.server.config.topics import NOT_OF_THE_LOG
from barnabas.server.settings import BROKER, GROUP, TOPIC, Support

ROOT = Path(__file__).resolve().parents[3]

# Topic settings that the log asks for through a property of LogConfig.
BY_PROPERTY = {
    "cleanup.policy": "compact",
    "compression.type": "codec",
    "compression.gzip.level": "compression_level",
    "compression.lz4.level": "compression_level",
    "compression.zstd.level": "compression_level",
    "message.timestamp.type": "log_append_time",
    "segment.ms": "max_segment_ms",
}


# What bounds the settings of single groups, looked up by `barnabas.server.config.groups` under the names of those.
BOUND_OF_GROUPS = re.compile(r"group\.(?:consumer|share|streams)\.(min|max)\.")

# Topic settings that the controller looks up by name.
BY_NAME = {"unclean.leader.election.enable"}


def source(*folders: str, leave_out: tuple[str, ...] = ()) -> str:
    texts = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT)
            if "tests" not in place.parts and "settings" not in place.parts and place.as_posix() not in leave_out:
                texts.append(path.read_text(encoding="utf-8"))
    return "\n".join(texts)


SERVER = source("server")
LOG = source("server", "logdir", leave_out=("logdir/files/config.py",))
BEHIND_TOPICS = {key.name for row in TOPIC.values() for key in row.broker_keys}
BEHIND_GROUPS = {row.broker_key for row in GROUP.values()}


@pytest.mark.parametrize(
    "name",
    [name for name, row in BROKER.items() if row.support is Support.WORKS and name not in BEHIND_TOPICS],
)
def test_broker_settings_that_work_are_read(name: str) -> None:
    bound = BOUND_OF_GROUPS.match(name)
    if bound:
        assert f'f"group.{{kind}}.{bound[1]}.{{rest}}"' in SERVER
        return
    if name in BEHIND_GROUPS and f'"{name}"' not in SERVER:
        assert "config.get_value(row.broker_key)" in SERVER
        assert f'"{name.removeprefix("group.")}"' in SERVER
        return
    assert f'"{name}"' in SERVER


@pytest.mark.parametrize(
    "name",
    [n for n, row in TOPIC.items() if row.setting.support is Support.WORKS and n not in NOT_OF_THE_LOG],
)
def test_topic_settings_that_work_are_read(name: str) -> None:
    if name in BY_NAME:
        assert f'.get("{name}")' in SERVER
        return
    attribute = BY_PROPERTY.get(name, name.replace(".", "_"))
    assert f".{attribute}" in LOG

"""docs/settings.md, printed from the table: `barnabas config --markdown > docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.server.settings import CLIENT_METRICS, GROUP, SUBJECTS, TOPIC, Scope, Setting, Support

_HEAD = """\
# Settings

Printed from the table in `server/settings/` by `barnabas config --markdown`; do not edit.

Settings have Apache Kafka's own names. They come from the command line (`--set key=value`), the environment
(`KAFKA_NUM_PARTITIONS=3` for `num.partitions=3`: `_` for `.`, `__` for `-`, `___` for `_`), and a properties file, in
this order of precedence. `barnabas config` shows what is in force, `barnabas config --check FILE` what would be said
about a file.

Every setting of Apache Kafka is known, and belongs to one of three kinds:

- it **works**: the tables below;
- only **one value** is what this broker does, any other is refused at start by name;
- it has **no effect** here, since the part that it tunes is not there: it is accepted, and one warning says so.

A setting that Apache Kafka does not know either is ignored with a warning.

Settings of TLS and SASL can be set for one listener: `listener.name.<name in lower case>.<key>` beats `<key>`. Logins
are set for one mechanism of a listener: `listener.name.<name>.<mechanism in lower case>.sasl.jaas.config`.

*Dynamic* settings can be changed while the broker runs, with `kafka-configs` or any admin client, for this broker or
for all.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    for title, rows in SUBJECTS:
        working = [row for row in rows if row.support is Support.WORKS]
        if working:
            yield f"## {title}\n"
            yield from _table(working, broker=True)
    yield "## Topics\n"
    yield "Set on a topic when it is made or later; the default is the broker setting named last.\n"
    yield from _table(
        [row.setting for row in TOPIC.values() if row.setting.support is Support.WORKS],
        broker=False,
    )
    yield "## Groups\n"
    yield (
        "Set on one KIP-848 group, which need not exist yet (`kafka-configs --entity-type groups`); the default is the "
        "broker\nsetting named last, and its least and most value bound this one.\n"
    )
    yield from _table(
        [row.setting for row in GROUP.values() if row.setting.support is Support.WORKS],
        broker=False,
    )
    yield "## Client metrics\n"
    yield (
        "Set on a subscription, which any name makes (`kafka-client-metrics.sh`, or `kafka-configs --entity-type "
        "client-metrics`);\n[metrics.md](metrics.md) shows how.\n"
    )
    yield from _table(CLIENT_METRICS.values(), broker=False)
    yield "## One value only\n"
    yield "| setting | allowed | why |\n| --- | --- | --- |"
    for row in _unique(Support.ONLY):
        yield f"| `{row.name}` | {_code_or_text(row)} | {row.note} |"
    yield "\n## No effect here\n"
    yield "| why | settings |\n| --- | --- |"
    reasons: dict[str, list[str]] = {}
    for row in _unique(Support.NO_EFFECT):
        reasons.setdefault(row.note, []).append(f"`{row.name}`")
    for reason, names in sorted(reasons.items()):
        yield f"| {reason} | {' '.join(names)} |"


def _unique(support: Support) -> list[Setting]:
    """Broker and topic rows of one kind, each name once."""
    rows = [row for _, rows in SUBJECTS for row in rows]
    rows += [row.setting for row in TOPIC.values()] + [row.setting for row in GROUP.values()]
    return list({row.name: row for row in sorted(rows, key=lambda row: row.name) if row.support is support}.values())


def _table(rows: Iterable[Setting], *, broker: bool) -> Iterator[str]:
    yield f"| setting | type | default | {'dynamic' if broker else 'broker setting'} | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for row in sorted(rows, key=lambda row: row.name):
        if broker:
            fourth = "" if row.scope is Scope.READ_ONLY else row.scope.value
        else:
            fourth = " ".join(f"`{key}`" for key in _behind(row.name))
        yield f"| `{row.name}` | {row.type.name.lower()} | {_default(row)} | {fourth} | {_meaning(row)} |"
    yield ""


def _behind(name: str) -> list[str]:
    """The broker settings that give a setting of a topic or a group its default."""
    if name in GROUP:
        return [GROUP[name].broker_key]
    return [key.name for key in TOPIC[name].broker_keys] if name in TOPIC else []


def _default(row: Setting) -> str:
    text = row.default_text
    shown = "" if text is None else f"`{text}`" if text else "(empty)"
    if row.kafka_default is not None:
        shown += f" (Apache Kafka: `{row.kafka_default}`)"
    return shown


def _meaning(row: Setting) -> str:
    parts = [row.doc]
    if row.check is not None:
        parts.append(f"Must be {row.check.text}.")
    if row.note:
        parts.append(f"Here: {row.note}.")
    return " ".join(parts)


def _code_or_text(row: Setting) -> str:
    if row.allowed is None and row.default not in (None, "", ()):
        return f"`{row.default_text}`"
    return row.allowed_text

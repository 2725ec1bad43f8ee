"""`/new-topic`: create one. `check` asks the brokers whether they would, and changes nothing."""

from __future__ import annotations

import re
from typing import Any

from barnabas.server.client.failures import Failed
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.topics import THE_BROKERS_CHOICE, NewTopic, create_topics
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, View, status_of
from barnabas.server.console.web.visit import Visit

_SETTING = re.compile(r"\s*([A-Za-z0-9._-]+)\s*[=:]\s*(.*?)\s*")


async def show(visit: Visit) -> View:
    return _view(Fields())


def _view(form: Fields, problems: list[str] | None = None, status: int = 200, *, is_well: bool = False) -> View:
    data: dict[str, Any] = {
        "name": form.text("name"),
        "partitions": form.text("partitions"),
        "replicas": form.text("replicas"),
        "settings": form.raw("settings"),
        "problems": problems or [],
        "is_well": is_well,
    }
    return View("new_topic", "New topic", data, status)


async def change(visit: Visit) -> Done | View:
    form = visit.form
    try:
        topic = _topic(form)
    except Unclear as error:
        return _view(form, [str(error)], 422)
    only_check = form.has("check")
    result = (await create_topics(visit.client, [topic], only_check=only_check))[topic.name]
    if isinstance(result, Failed):
        return _view(form, [str(result)], status_of(result.code))
    if only_check:
        return _view(form, is_well=True)
    count = result if result > 0 else topic.partitions
    many = counted(count, "partition") if count > 0 else "the brokers' number of partitions"
    what = f"created topic {topic.name}, {many}"
    return Done(what, "created", f"/topics/{segment(topic.name)}/partitions", {"topic": topic.name})


def _topic(form: Fields) -> NewTopic:
    name = form.text("name")
    if not name:
        raise Unclear("name", "name: the topic needs one")
    return NewTopic(
        name,
        form.number("partitions", THE_BROKERS_CHOICE, least=1, most=100_000),
        form.number("replicas", THE_BROKERS_CHOICE, least=1, most=1000),
        parse_settings(form.raw("settings")),
    )


def parse_settings(text: str) -> dict[str, str]:
    """Lines of `key=value`. Raises Unclear."""
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _SETTING.fullmatch(line)
        if match is None:
            raise Unclear("settings", f"settings: lines of key=value are expected, not {line[:60]!r}")
        found[match[1]] = match[2]
    return found

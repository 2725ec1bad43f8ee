"""Settings of a topic or a broker, as two pages have them: value, where it comes from, what it means; set one, or
take it back to the default.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.configs import Resource, Setting, Source, alter_configs, describe_configs
from barnabas.server.client.failures import Failed
from barnabas.server.console.web.view import Done, View, refused
from barnabas.server.console.web.visit import Visit

SOURCES: Final = {
    Source.TOPIC: "topic",
    Source.DYNAMIC_BROKER: "this broker",
    Source.DYNAMIC_DEFAULT_BROKER: "all brokers",
    Source.STATIC_BROKER: "broker's file",
    Source.DEFAULT: "default",
    Source.BROKER_LOGGER: "logger",
    Source.CLIENT_METRICS: "client metrics",
    Source.GROUP: "group",
    Source.UNKNOWN: "unknown",
}


async def view(
    visit: Visit,
    resource: Resource,
    what: str,
    template: str,
    names: dict[str, Any],
    problems: list[str] | None = None,
    status: int = 200,
) -> View:
    """what: `topic orders`. names: what the template shows of whose settings they are. Raises Refusal, ClientError."""
    found = (await describe_configs(visit.client, [resource]))[resource]
    if isinstance(found, Failed):
        raise refused(what, found)
    text = visit.query.text("q").lower()
    only_set = visit.query.has("set")
    edited = visit.form.text("name") if problems else visit.query.text("edit")
    rows = [
        setting_row(each)
        for each in found.values()
        if (not only_set or each.is_set) and (text in each.name.lower() or text in (each.doc or "").lower())
    ]
    data = {
        **names,
        "q": visit.query.text("q"),
        "only_set": only_set,
        "edit": edited if edited in found and not found[edited].is_read_only else "",
        "typed": visit.form.raw("value") if problems else None,
        "settings": rows,
        "all": len(found),
        "set": sum(each.is_set for each in found.values()),
        "problems": problems or [],
    }
    return View(template, f"{what}: settings", data, status)


def setting_row(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": SOURCES[setting.source],
        "is_set": setting.is_set,
        "is_sensitive": setting.is_sensitive,
        "is_read_only": setting.is_read_only,
        "doc": setting.doc,
        "synonyms": [
            {"name": name, "value": value, "source": SOURCES[source]} for name, value, source in setting.synonyms
        ],
    }


async def changed(
    visit: Visit, resource: Resource, what: str, location: str, names: dict[str, Any]
) -> Done | list[str]:
    """What the form says, done; or why the value cannot be. Raises Refusal, ClientError."""
    name = visit.form.text("name")
    back = visit.form.has("default")
    if not name:
        return ["name: which setting?"]
    value = None if back else visit.form.raw("value").strip("\n")
    failed = (await alter_configs(visit.client, {resource: {name: value}}))[resource]
    if failed is not None:
        refusal = refused(name, failed)
        if refusal.status != 422:
            raise refusal
        return [str(failed)]
    # Values may be secrets, so the audit has the name only.
    said = f"{what}: {name} is back to its default" if back else f"{what}: set {name}"
    return Done(said, "unset" if back else "set", location, {**names, "name": name, "value": value})

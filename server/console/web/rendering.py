"""Templates: Jinja2, everything escaped, a name that a template misspells is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from barnabas.server.client.texts.amounts import counted, size
from barnabas.server.client.texts.when import duration, time_utc
from barnabas.server.console.web.segments import segment

TEMPLATES: Final = Path(__file__).parent.parent / "templates"
NOTHING: Final = "–"


class Templates:
    """The pages' templates, loaded when they are used first."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            amount=amount, bytes=bytes_, counted=counted, curve=curve, duration=duration, seg=segment, time=time
        )
        self._environment.globals.update(link=link)

    def render(self, name: str, values: Mapping[str, Any]) -> bytes:
        """Raises jinja2.TemplateError: a bug."""
        return self._environment.get_template(f"{name}.html").render(values).encode("utf-8", "backslashreplace")


def link(path: str, **query: object) -> str:
    """A path with a query, of which what is None or empty is left out. `from_`: for names that are words of Python."""
    pairs = [
        (name.rstrip("_"), "1" if value is True else str(value))
        for name, value in query.items()
        if value is not None and value is not False and value != ""
    ]
    return f"{path}?{urlencode(pairs, errors='surrogateescape')}" if pairs else path


def amount(number: float | None) -> str:
    """`1,234`."""
    return NOTHING if number is None else f"{number:,}"


def bytes_(number: int | None) -> str:
    """`1.2 kB`."""
    return NOTHING if number is None or number < 0 else size(number)


def curve(samples: Sequence[Mapping[str, Any]], width: int, height: int) -> str:
    """The points of a line in SVG, of samples with `time_ms` and `lag`: the greatest at the top."""
    first, last = samples[0]["time_ms"], samples[-1]["time_ms"]
    most = max(1, *(each["lag"] for each in samples))
    return " ".join(
        f"{(each['time_ms'] - first) * width / max(1, last - first):.1f},{height - each['lag'] * height / most:.1f}"
        for each in samples
    )


def time(ms: int | None) -> str:
    """A moment in UTC, which a script shows in the reader's zone when asked."""
    text = None if ms is None else time_utc(ms)
    if text is None:
        return NOTHING if ms is None or ms < 0 else f"{ms} ms"
    seen = text.removesuffix("Z").replace("T", " ")
    return Markup('<time datetime="{}">{}</time>').format(text, seen)

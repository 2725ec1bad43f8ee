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
            amount=amount,
            bytes=bytes_,
            bytes_rate=bytes_rate,
            counted=counted,
            curves=curves,
            duration=duration,
            rate=rate,
            seg=segment,
            time=time,
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
    """`1,234`, `1,234.5`."""
    return NOTHING if number is None else f"{int(number) if number == int(number) else number:,}"


def bytes_(number: int | None) -> str:
    """`1.2 kB`."""
    return NOTHING if number is None or number < 0 else size(number)


def curves(samples: Sequence[Mapping[str, Any]], what: str, width: int, height: int) -> list[list[str]]:
    """The points of lines in SVG, of samples with `time_ms` and `what`: the greatest at the top. A line ends where it
    is not known; one point alone is drawn as long as a pixel.
    """
    first, last = samples[0]["time_ms"], samples[-1]["time_ms"]
    most = max([1, *(each[what] for each in samples if each[what] is not None)])
    lines: list[list[str]] = [[]]
    for each in samples:
        if each[what] is not None:
            x = (each["time_ms"] - first) * width / max(1, last - first)
            lines[-1].append(f"{x:.1f},{height - each[what] * height / most:.1f}")
        elif lines[-1]:
            lines.append([])
    return [line if len(line) > 1 else [*line, _beside(line[0])] for line in lines if line]


def _beside(point: str) -> str:
    x, _, y = point.partition(",")
    return f"{float(x) + 1:.1f},{y}"


def rate(per_s: float | None) -> str:
    """`1,234`, `1.5`, `0.02`: with as many digits as say something."""
    if per_s is None:
        return NOTHING
    return f"{per_s:,.0f}" if abs(per_s) >= 10 or not per_s else f"{per_s:,.1f}" if abs(per_s) >= 1 else f"{per_s:.2g}"


def bytes_rate(per_s: float | None) -> str:
    """`1.2 kB`, `-3 B`."""
    return NOTHING if per_s is None else f"{'−' if per_s < -0.5 else ''}{size(abs(round(per_s)))}"


def time(ms: int | None) -> str:
    """A moment in UTC, which a script shows in the reader's zone when asked."""
    text = None if ms is None else time_utc(ms)
    if text is None:
        return NOTHING if ms is None or ms < 0 else f"{ms} ms"
    seen = text.removesuffix("Z").replace("T", " ")
    return Markup('<time datetime="{}">{}</time>').format(text, seen)

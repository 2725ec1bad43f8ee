"""Logging: a line that a person can read, or a JSON object per line for machines; floods are cut short.

All loggers of the project are called `barnabas.<part>`. Text lines:

    2026-11-21 06:32:01.123 INFO  broker: ready, bootstrap=127.0.0.1:9092

JSON lines have `time` (UTC), `level`, `logger`, `message`, and `exception` where there is one. Where several processes
share a log, each has a name: in text lines before the part (`INFO  broker-1 broker: …`), in JSON as `process`. In both,
control characters that came in with a client's input are escaped, so no client can forge a line. A message that repeats
(same logger, same template) more than 50 times in 10 s is dropped for the rest of that time; the next one says how
many.

Levels have Kafka's names (TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF); Python's are understood too. Levels belong to
the process, as in a JVM: several brokers in one process share them. Not here: log files and their rotation (systemd's
and the container's business).
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TextIO

ROOT = "root"
PROJECT = "barnabas"
TRACE = 5
OFF = 100

LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": OFF,
}
_ALIASES = {"WARNING": "WARN", "CRITICAL": "FATAL", "ALL": "TRACE"}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LONGEST = 8192


def parse_level(name: str) -> int:
    """A level's number. Raises ValueError naming the levels."""
    upper = name.strip().upper()
    try:
        return LEVELS[_ALIASES.get(upper, upper)]
    except KeyError:
        raise ValueError(f"{name!r} is not a level; one of {', '.join(LEVELS)}") from None


def level_name(number: int) -> str:
    """Kafka's name of a level (the next lower one for numbers in between)."""
    best = "TRACE"
    for name, value in LEVELS.items():
        if number >= value:
            best = name
    return best


def _plain(text: str) -> str:
    """`text` on one line, control characters escaped, cut at 8 KiB."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text)} characters)"
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


class RepeatFilter(logging.Filter):
    """Lets `burst` records of one template through per `interval_s` seconds. DEBUG and below has no limit."""

    def __init__(self, burst: int = 50, interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._burst = burst
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str], list[float]] = {}  # → [start of the interval, count in it]

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        key = (record.name, record.levelno, str(record.msg))
        now = self._clock()
        with self._lock:
            entry = self._seen.get(key)
            if entry is None:
                if len(self._seen) >= 1000:  # templates are few; messages built by hand must not fill the memory
                    self._seen.clear()
                self._seen[key] = [now, 1]
                return True
            if now - entry[0] >= self._interval_s:
                dropped = int(entry[1]) - self._burst
                entry[:] = now, 1
                if dropped > 0:
                    record.dropped = dropped
                return True
            entry[1] += 1
            return entry[1] <= self._burst


def _message(record: logging.LogRecord) -> str:
    text = _plain(record.getMessage())
    dropped = getattr(record, "dropped", 0)
    return f"{text} ({dropped} more like this were not shown)" if dropped else text


class TextFormatter(logging.Formatter):
    """Local time, level, part, message; before the part the name of the process, if it has one."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = f"{process} " if process else ""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        part = record.name.removeprefix(PROJECT + ".")
        line = (
            f"{clock}.{int(record.msecs):03d} {level_name(record.levelno):<5} {self._process}{part}: {_message(record)}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        import json

        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{clock}.{int(record.msecs):03d}Z",
            "level": level_name(record.levelno),
            **({"process": self._process} if self._process else {}),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def set_up(
    level: str = "INFO",
    style: str = "text",
    levels: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
    process: str = "",
) -> None:
    """Send the log of this process to `stream` (standard error if None), replacing what was set up before.

    `style`: text or json. `process`: its name in each line, if it has one. `levels`: levels of single loggers, by full
    name or by part (`network` for `barnabas.network`). Raises ValueError for a level that does not exist, and changes
    nothing then.
    """
    numbers = {full_name(name): parse_level(text) for name, text in (levels or {}).items()}
    root_level = parse_level(level)
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process) if style == "json" else TextFormatter(process))
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(root_level)
    logging.getLogger(PROJECT)
    for name, number in numbers.items():
        logging.getLogger(None if name == ROOT else name).setLevel(number)


def current_style() -> str:
    """How this process logs: `json` or `text`; for processes that log beside it."""
    return "json" if any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers) else "text"


def full_name(name: str) -> str:
    """`network` → `barnabas.network`; full names and `root` stay."""
    if name in (ROOT, PROJECT) or name.startswith(PROJECT + "."):
        return name
    known = logging.root.manager.loggerDict
    return name if isinstance(known.get(name), logging.Logger) else f"{PROJECT}.{name}"


def current_levels() -> dict[str, str]:
    """Level in force of every logger that exists, `root` included (BROKER_LOGGER resources of the config APIs)."""
    loggers = {
        name: logger for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)
    }
    levels = {name: level_name(logger.getEffectiveLevel()) for name, logger in sorted(loggers.items())}
    return {ROOT: level_name(logging.root.level), **levels}


def has_logger(name: str) -> bool:
    return name == ROOT or isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)


def set_level(name: str, level: str | None) -> None:
    """Change one logger at once; None gives it its parent's level back. Raises ValueError for an unknown level."""
    number = logging.NOTSET if level is None else parse_level(level)
    logging.getLogger(None if name == ROOT else name).setLevel(number)

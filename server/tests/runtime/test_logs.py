"""Log lines, levels and the flood gate."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from barnabas.server.runtime import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The process's log as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    manager = logging.root.manager.loggerDict
    levels = {name: one.level for name, one in manager.items() if isinstance(one, logging.Logger)}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, one in manager.items():
        if isinstance(one, logging.Logger):
            one.setLevel(levels.get(name, logging.NOTSET))


def written(style: str = "text", **options: object) -> io.StringIO:
    stream = io.StringIO()
    logs.set_up(style=style, stream=stream, **options)  # type: ignore[arg-type]
    return stream


def test_text_line() -> None:
    stream = written()
    logging.getLogger("barnabas.broker").warning("data in %s", "/data")
    line = stream.getvalue()
    assert line.endswith(" WARN  broker: data in /data\n")
    assert len(line.split(" WARN")[0]) == len("2026-11-21 06:32:01.123")


def test_json_line() -> None:
    stream = written("json")
    logging.getLogger("barnabas.broker").error("grüße %d", 5)
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("other").exception("it failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first == {"time": first["time"], "level": "ERROR", "logger": "barnabas.broker", "message": "grüße 5"}
    assert first["time"].endswith("Z")
    assert second["message"] == "it failed"
    assert second["exception"].endswith("ValueError: no")


def test_processes_that_share_a_log_have_names() -> None:
    stream = written(process="broker-1")
    logging.getLogger("barnabas.broker").warning("ready")
    assert stream.getvalue().endswith(" WARN  broker-1 broker: ready\n")
    stream = written("json", process="broker-1")
    logging.getLogger("barnabas.broker").warning("ready")
    assert json.loads(stream.getvalue())["process"] == "broker-1"


@pytest.mark.parametrize("style", ["text", "json"])
def test_no_client_can_forge_a_line(style: str) -> None:
    stream = written(style)
    logging.getLogger("barnabas.requests").warning("client %s", "x\n2026-01-01 INFO  broker: all is well\x1b[2J\u2028")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert "\\n2026" in lines[0]
    assert "\\x1b" in lines[0].replace("\\\\", "\\")


def test_long_messages_are_cut() -> None:
    stream = written()
    logging.getLogger("barnabas.requests").warning("client %s", "x" * 100_000)
    assert len(stream.getvalue()) < 9000
    assert "(100007 characters)" in stream.getvalue()


def test_levels() -> None:
    stream = written(level="warn", levels={"network": "DEBUG", "barnabas.groups": "OFF"})
    logging.getLogger("barnabas.broker").info("hidden")
    logging.getLogger("barnabas.network").debug("shown")
    logging.getLogger("barnabas.groups").critical("hidden")
    assert stream.getvalue().count("\n") == 1
    assert "shown" in stream.getvalue()


@pytest.mark.parametrize(("name", "number"), [("info", 20), ("WARNING", 30), ("Fatal", 50), ("trace", 5), ("off", 100)])
def test_level_names(name: str, number: int) -> None:
    assert logs.parse_level(name) == number


def test_unknown_levels_change_nothing() -> None:
    stream = written()
    with pytest.raises(ValueError, match="TRACE, DEBUG"):
        logs.set_up(level="loud", stream=io.StringIO())
    with pytest.raises(ValueError, match="loud"):
        logs.set_up(levels={"network": "loud"}, stream=io.StringIO())
    logging.getLogger("barnabas.broker").info("still here")
    assert "still here" in stream.getvalue()


@pytest.mark.parametrize("number", [*range(0, 60, 5), 100])
def test_every_number_has_a_name(number: int) -> None:
    assert logs.LEVELS[logs.level_name(number)] <= max(number, logs.TRACE)


def test_change_while_running() -> None:
    stream = written()
    network = logging.getLogger("barnabas.network")
    logs.set_level("barnabas.network", "DEBUG")
    network.debug("first")
    assert logs.current_levels()["barnabas.network"] == "DEBUG"
    logs.set_level("barnabas.network", None)
    network.debug("second")
    assert logs.current_levels()["barnabas.network"] == "INFO"
    logs.set_level("root", "ERROR")
    assert logs.current_levels()["root"] == "ERROR"
    assert logs.current_levels()["barnabas.network"] == "ERROR"
    assert "first" in stream.getvalue()
    assert "second" not in stream.getvalue()
    assert logs.has_logger("root")
    assert logs.has_logger("barnabas.network")
    assert not logs.has_logger("barnabas.no.such")


def test_floods_are_cut_short_and_counted() -> None:
    now = 0.0
    gate = logs.RepeatFilter(burst=3, interval_s=10, clock=lambda: now)

    def passes(message: str, level: int = logging.WARNING) -> logging.LogRecord | None:
        record = logging.LogRecord("barnabas.network", level, "", 0, message, (), None)
        return record if gate.filter(record) else None

    assert [passes("closing %s") is not None for _ in range(5)] == [True, True, True, False, False]
    assert passes("another %s") is not None
    assert all(passes("closing %s", logging.DEBUG) for _ in range(10))
    now = 9.9
    assert passes("closing %s") is None
    now = 10.0
    record = passes("closing %s")
    assert record is not None
    assert logs._message(record) == "closing %s (3 more like this were not shown)"
    record = passes("closing %s")
    assert record is not None
    assert logs._message(record) == "closing %s"


def test_the_flood_gate_has_a_bounded_memory() -> None:
    gate = logs.RepeatFilter(clock=lambda: 0.0)
    for number in range(5000):
        gate.filter(logging.LogRecord("x", logging.INFO, "", 0, f"built by hand {number}", (), None))
    assert len(gate._seen) <= 1000


def test_a_second_set_up_replaces_the_first() -> None:
    first = written()
    second = written()
    logging.getLogger("barnabas.broker").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1

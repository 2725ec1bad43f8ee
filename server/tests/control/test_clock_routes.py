"""The routes of clock and snapshots, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.server.control.durations import seconds_of
from barnabas.server.control.fields import WrongField
from barnabas.server.runtime.virtual_clock import VirtualClock
from barnabas.server.tests.control.kit import controlled_broker

DAY_S = 86400


@pytest.fixture
def clock() -> VirtualClock:
    """Of the test's loop."""
    return VirtualClock()


@pytest.mark.parametrize(
    ("by", "seconds"),
    [
        (0, 0),
        (1.5, 1.5),
        ("7d", 7 * DAY_S),
        ("2w", 14 * DAY_S),
        ("90m", 5400),
        ("1d12h", 1.5 * DAY_S),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("1m1s", 61),
    ],
)
def test_how_long_it_is(by: Any, seconds: float) -> None:
    assert seconds_of(by) == pytest.approx(seconds)


@pytest.mark.parametrize("by", ["", "d", "7", "7 d", "-7d", "7y", "1.d", "7d!", None, True, [], {}, "9" * 16 + "d"])
def test_what_is_no_length_of_time(by: Any) -> None:
    with pytest.raises(WrongField, match='by must be a number of seconds, or a text such as "7d"'):
        seconds_of(by)


async def test_the_clock(clock: VirtualClock) -> None:
    async with controlled_broker(clock) as channel:
        before_ms = (await channel.ask("GET", "/v1/clock")).value["now_ms"]
        said = await channel.ask("POST", "/v1/clock/advance", {"by": "7d"})
        assert said.status == 200
        assert said.value["now_ms"] - before_ms >= 7 * DAY_S * 1000
        assert (await channel.ask("GET", "/v1/clock")).value["now_ms"] >= said.value["now_ms"]


@pytest.mark.parametrize("body", [{}, {"by": -1}, {"by": "x"}, {"by": 1e300}, {"by": 10**400}, {"by": 1, "unit": "d"}])
async def test_what_is_refused(body: Any, clock: VirtualClock) -> None:
    async with controlled_broker(clock) as channel:
        said = await channel.ask("POST", "/v1/clock/advance", body)
        assert said.status == 400
        assert not clock.ahead_of_wall_s


async def test_snapshots(clock: VirtualClock) -> None:
    async with controlled_broker(clock) as channel:
        name = (await channel.ask("POST", "/v1/snapshots")).value["id"]
        assert (await channel.ask("GET", "/v1/snapshots")).value == {"snapshots": [name]}
        await channel.ask("POST", "/v1/clock/advance", {"by": "7d"})
        said = await channel.ask("POST", f"/v1/snapshots/{name}/restore")
        assert (said.status, said.value) == (200, {"id": name})
        assert channel.broker.is_abandoned
        assert abs(clock.ahead_of_wall_s) < 60
        assert (await channel.ask("GET", "/v1/broker")).value["bootstrap"] == channel.broker.bootstrap
        assert (await channel.ask("DELETE", f"/v1/snapshots/{name}")).status == 200
        for method, path in (
            ("POST", f"/v1/snapshots/{name}/restore"),
            ("DELETE", f"/v1/snapshots/{name}"),
            ("DELETE", "/v1/snapshots/%2e%2e"),
        ):
            said = await channel.ask(method, path)
            assert (said.status, said.value["error"].partition(" '")[0]) == (404, "there is no snapshot")
        assert (await channel.ask("GET", "/v1/snapshots")).value == {"snapshots": []}


async def test_faults_stay_when_it_is_restored(clock: VirtualClock) -> None:
    async with controlled_broker(clock) as channel:
        fault = (await channel.ask("POST", "/v1/faults", {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS"})).value
        name = (await channel.ask("POST", "/v1/snapshots")).value["id"]
        await channel.ask("POST", f"/v1/snapshots/{name}/restore")
        assert (await channel.ask("GET", "/v1/faults")).value == {"faults": [fault]}
        assert (await channel.ask("DELETE", f"/v1/faults/{fault['id']}")).status == 200


async def test_step_by_step(clock: VirtualClock) -> None:
    async with controlled_broker(clock) as channel:
        for path, body in (("release", None), ("step", {"by": 1})):
            said = await channel.ask("POST", f"/v1/clock/{path}", body)
            assert (said.status, said.value["error"]) == (409, "the clock is not held")
        begin_ms = (await channel.ask("POST", "/v1/clock/hold")).value["now_ms"]
        for path, body in (("hold", None), ("advance", {"by": 1})):
            said = await channel.ask("POST", f"/v1/clock/{path}", body)
            assert (said.status, said.value["error"]) == (409, "the clock is held")
        name = (await channel.ask("POST", "/v1/snapshots")).value["id"]
        assert (await channel.ask("POST", f"/v1/snapshots/{name}/restore")).status == 409
        for by in ("x", None, -1, 1e300):
            assert (await channel.ask("POST", "/v1/clock/step", {"by": by})).status == 400
        assert (await channel.ask("POST", "/v1/clock/step", {"by": "1h", "to": 1})).status == 400
        said = await channel.ask("POST", "/v1/clock/step", {"by": "1h"})
        assert said.value["at_rest"] is False  # something was due
        while not said.value["at_rest"]:
            said = await channel.ask("POST", "/v1/clock/step", {"by": 0})
        assert said.value["next_s"] > 0
        assert (await channel.ask("GET", "/v1/clock")).value["now_ms"] == begin_ms + 3_600_000
        assert (await channel.ask("POST", "/v1/clock/release")).value["now_ms"] >= begin_ms + 3_600_000
        assert clock.ahead_of_wall_s == 3600

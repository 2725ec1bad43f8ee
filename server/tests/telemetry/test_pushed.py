"""The last values that clients have pushed: names, sums, bounds, and when they go."""

from __future__ import annotations

import pytest

from barnabas.server.telemetry.otlp import Point, Pushed
from barnabas.server.telemetry.pushed import ENDED_MS, PushedSeries, label, ready, sample_name

ONE, TWO = b"1" * 16, b"2" * 16
NAME = "org.apache.kafka.x"


def gauge(value: float, name: str = NAME, **attributes: str) -> Point:
    return Point(name, attributes, value, False, False)


def more(value: float, name: str = NAME) -> Point:
    return Point(name, {}, value, True, True)


def total(value: float, name: str = NAME) -> Point:
    return Point(name, {}, value, True, False)


class Rig:
    def __init__(self, series_max: int = 100, client_series_max: int = 100) -> None:
        self.series = PushedSeries()
        self.maxima = {"series_max": series_max, "client_series_max": client_series_max}

    def push(self, *points: Point, who: bytes = ONE, now_ms: float = 0, **resource: str) -> None:
        pushed = ready(Pushed(resource, list(points), 0))
        self.series.take(who, {"client_id": "c"}, pushed, now_ms, kept_ms=1000, **self.maxima)

    def seen(self, now_ms: float = 0, who: bytes = ONE) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        client = dict(self.series.clients(now_ms))[who]
        return {(key.name, key.labels): held.value for key, held in client.values.items()}


def test_gauges_are_replaced_and_differences_added_up() -> None:
    rig = Rig()
    rig.push(gauge(1, topic="t"), more(2), total(5, "org.apache.kafka.all"))
    rig.push(gauge(7, topic="t"), more(3), total(6, "org.apache.kafka.all"))
    assert rig.seen() == {
        ("org_apache_kafka_x", (("topic", "t"),)): 7,
        ("org_apache_kafka_x_total", ()): 5,
        ("org_apache_kafka_all_total", ()): 6,
    }
    assert len(rig.series) == 3


def test_counters_take_no_nonsense() -> None:
    rig = Rig()
    rig.push(more(2), more(-1), more(float("nan")), more(float("inf")), gauge(float("nan"), NAME + ".g"))
    assert rig.seen()["org_apache_kafka_x_total", ()] == 2
    assert ("org_apache_kafka_x_g", ()) in rig.seen()
    assert rig.series.dropped == 3


def test_a_gauge_that_is_pushed_no_more_goes() -> None:
    rig = Rig()
    rig.push(gauge(1, partition="0"), gauge(1, partition="1"), more(1))
    for left in (3, 3, 2):
        rig.push(gauge(1, partition="1"))
        assert len(rig.series) == len(rig.seen()) == left
    assert ("org_apache_kafka_x_total", ()) in rig.seen()


def test_how_many() -> None:
    rig = Rig(series_max=5, client_series_max=3)
    rig.push(*(gauge(n, n=str(n)) for n in range(4)))
    assert (len(rig.series), rig.series.dropped) == (3, 1)
    rig.push(*(gauge(n, n=str(n)) for n in range(4)), who=TWO)
    assert (len(rig.series), rig.series.dropped) == (5, 3)
    rig.push(*(gauge(9, n=str(n)) for n in range(3)))  # what there is, is updated
    assert set(rig.seen().values()) == {9}
    assert rig.series.dropped == 3


def test_a_client_without_series_is_not_kept() -> None:
    rig = Rig(series_max=1)
    rig.push(more(-1), group_id="g")
    assert rig.series.clients(0) == []
    rig.push(gauge(1))
    rig.push(gauge(1), who=TWO)
    assert [who for who, _ in rig.series.clients(0)] == [ONE]


def test_silent_clients_go() -> None:
    rig = Rig()
    rig.push(gauge(1))
    rig.push(gauge(1), who=TWO, now_ms=500)
    assert [who for who, _ in rig.series.clients(999)] == [ONE, TWO]
    assert [who for who, _ in rig.series.clients(1000)] == [TWO]
    assert len(rig.series) == 1
    assert rig.series.clients(1500) == []
    assert len(rig.series) == 0


def test_clients_that_end_stay_for_a_scrape_or_two() -> None:
    series = PushedSeries()
    pushed = ready(Pushed({}, [gauge(1)], 0))
    series.take(ONE, {}, pushed, 0, kept_ms=900_000, series_max=9, client_series_max=9)
    series.ended(ONE, 10)
    series.ended(TWO, 10)
    assert len(series.clients(ENDED_MS + 9)) == 1
    assert series.clients(ENDED_MS + 10) == []


def test_what_the_broker_knows_beats_what_the_client_says() -> None:
    rig = Rig()
    rig.push(gauge(1, client_id="forged", client_instance_id="forged", le="1"), client_id="forged", group_id="g")
    (client,) = [each for _, each in rig.series.clients(0)]
    assert client.info == {"client_id": "c", "group_id": "g"}
    assert rig.seen() == {("org_apache_kafka_x", (("le", "1"),)): 1}


@pytest.mark.parametrize(
    ("name", "is_counter", "sample"),
    [
        ("org.apache.kafka.producer.record.send.total", True, "org_apache_kafka_producer_record_send_total"),
        ("org.apache.kafka.producer.rtt-avg", False, "org_apache_kafka_producer_rtt_avg"),
        (
            "kafka_server_brokertopicmetrics_bytesin",
            True,
            "client_pushed_kafka_server_brokertopicmetrics_bytesin_total",
        ),
        ("barnabas_build_info", False, "client_pushed_barnabas_build_info"),
        ("org_apache_kafka_x", False, "client_pushed_org_apache_kafka_x"),
        ('x{a="b"} 1\n# TYPE evil gauge', False, "client_pushed_x_a_b_1_TYPE_evil_gauge"),
        ("", False, "client_pushed_unnamed"),
        ("ß", True, "client_pushed_unnamed_total"),
    ],
)
def test_names(name: str, is_counter: bool, sample: str) -> None:
    assert sample_name(name, is_counter) == sample


def test_labels() -> None:
    names = ["node.id", "__name__", "0x", "", 'a="', "ß"]
    assert [label(name) for name in names] == ["node_id", "name", "_0x", "unnamed", "a", "unnamed"]

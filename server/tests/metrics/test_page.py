"""The text formats, read by Prometheus' own parsers."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from barnabas.server.metrics.histogram import Histogram
from barnabas.server.metrics.page import OPEN_METRICS, TEXT, Page, escaped, labels

NASTY = 'a\\b"c\nd{e}=f,é\ud800'


def filled() -> Page:
    page = Page()
    page.gauge("g", 'Explained with "quotes" and \\ and\na second line.', 1.5, labels(name=NASTY, other="x"))
    page.counter("c", "Counts.", 3)
    page.counter("c", "Counts.", 4, labels(topic="t"))
    histogram = Histogram()
    histogram.add(1_000_000)
    histogram.add(3_000_000_000, 2)
    page.histogram("h_seconds", "Times.", 'api="x"', histogram)
    page.histogram("bare_seconds", "Times.", "", histogram)
    page.summary_ms("s", "Times.", 'request="x"', histogram, histogram.counts)
    page.gauges("empty", "Without samples: not shown.")
    return page


@pytest.mark.parametrize(("content_type", "parse"), [(TEXT, parse_text), (OPEN_METRICS, parse_open_metrics)])
def test_both_formats_are_read(content_type: str, parse: object) -> None:
    text = b"".join(piece for piece, _ in filled().render(content_type)).decode()
    families = {family.name: family for family in parse(text)}  # type: ignore[operator]
    assert list(families) == ["g", "c", "h_seconds", "bare_seconds", "s"]
    assert [family.type for family in families.values()] == ["gauge", "counter", "histogram", "histogram", "summary"]
    assert "empty" not in text
    (gauge,) = families["g"].samples
    assert gauge.labels["name"] == NASTY.encode(errors="replace").decode()
    assert gauge.value == 1.5
    assert [(sample.name, sample.labels, sample.value) for sample in families["c"].samples] == [
        ("c_total", {}, 3.0),
        ("c_total", {"topic": "t"}, 4.0),
    ]
    buckets = [sample for sample in families["h_seconds"].samples if sample.name == "h_seconds_bucket"]
    assert [sample.value for sample in buckets] == sorted(sample.value for sample in buckets)
    assert buckets[-1].labels == {"api": "x", "le": "+Inf"}
    assert buckets[-1].value == 3
    assert text.endswith("# EOF\n") is (content_type == OPEN_METRICS)


def test_the_order_is_that_of_their_beginning() -> None:
    first, second = ([piece for piece, _ in filled().render(TEXT)] for _ in range(2))
    assert first == second


def test_a_family_has_one_kind() -> None:
    page = Page()
    page.gauge("x", "A gauge.", 1)
    with pytest.raises(AssertionError):
        page.counter("x", "A counter.", 1)


def test_escaping() -> None:
    assert escaped("plain") == "plain"
    assert escaped('q"\\\n') == 'q\\"\\\\\\n'

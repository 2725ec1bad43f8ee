"""The figures of docs/performance.md are what docs/data says, and plots are SVG that anything can read."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from compat_tests.bench import page
from compat_tests.bench.brokers import KAFKA, OURS
from compat_tests.bench.plots import plots
from compat_tests.bench.results import Results, Round
from compat_tests.bench.rows import ROWS
from compat_tests.bench.test_parts import results

SVG = "{http://www.w3.org/2000/svg}"
NOISY = "others had 31% of the machine"


def whole_run(native: str, seed: int) -> Results:
    """Three rounds of every row; the first row was measured while others worked."""
    rng = random.Random(seed)
    found = results(native=native)
    for row in ROWS:
        for _ in range(3):
            values = {
                side: {one.name: rng.uniform(50, 150) for one in row.headline} | {"cpu_us": 9.5, "resident_mb": 47.0}
                for side in (KAFKA, OURS)
            }
            found.add(row.name, Round(values, {KAFKA: 0.01, OURS: 0.02}, [], NOISY if row is ROWS[0] else ""))
    return found


def test_the_page_is_what_the_results_say() -> None:
    assert page.main(["--check"]) == 0, "python -m compat_tests.bench.page"


def test_lines_of_the_page_are_short() -> None:
    """As everywhere in documents, whatever the figures are."""
    text = page.figures([whole_run("0.1.0", 1), whole_run("", 2)])
    assert [line for line in text.splitlines() if len(line) > page.WIDTH] == []


def test_every_row_is_on_the_page() -> None:
    text = page.figures([whole_run("", 1)])
    lines = text.splitlines()
    for row in ROWS:
        for quantity in row.headline:
            assert [line for line in lines if line.startswith(f"| {row.name}, {quantity.unit} |")], row.name
    first = next(line for line in lines if line.startswith(f"| {ROWS[0].name}, "))
    assert first.endswith("| | | too noisy | | |")
    said = text.replace("\n  ", " ")
    assert f"- Too noisy. {ROWS[0].name}: 0 of 3 rounds count: {NOISY}." in said


def test_only_what_is_between_the_marks_is_replaced() -> None:
    before = f"# Title\n{page.BEGIN}old\n{page.END}rest\n"
    assert page.replaced(before, "new\n") == f"# Title\n{page.BEGIN}new\n{page.END}rest\n"
    with pytest.raises(ValueError, match="no place"):
        page.replaced("# Title\n", "new\n")


def test_plots_have_a_dot_for_each_line_that_has_a_ratio() -> None:
    native, pure = whole_run("0.1.0", 1), whole_run("", 2)
    drawn = plots([native, pure], ["native", "pure <Python>"])
    assert set(drawn) == {"rates.svg", "times.svg", "cpu.svg"}
    for text in drawn.values():
        root = ElementTree.fromstring(text)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        dots = root.findall(f"{SVG}circle")
        assert all(0 < float(dot.attrib["cx"]) < width and 0 < float(dot.attrib["cy"]) < height for dot in dots)
        assert any("pure <Python>" in (one.text or "") for one in root.findall(f"{SVG}text"))
        assert "prefers-color-scheme: dark" in text
    rates = ElementTree.fromstring(drawn["rates.svg"])
    better = [row for row in ROWS if row.headline[0].more_is_better]
    assert len(rates.findall(f"{SVG}circle")) == 2 * (len(better) - 1)
    labels = [one.text for one in rates.findall(f"{SVG}text")]
    assert f"{ROWS[0].name}, MB/s" in labels, "it is named, without a dot"


def test_each_run_is_told_from_the_others() -> None:
    names = ["native", "pure", "elsewhere", "anywhere"]
    for text in plots([whole_run("", seed) for seed in range(4)], names).values():
        root = ElementTree.fromstring(text)
        said = {one.text: float(one.attrib["y"]) for one in root.findall(f"{SVG}text") if ": " in (one.text or "")}
        kinds = ("filled: native", "hollow: pure", "small: elsewhere", "small: anywhere")
        assert len({said[kind] for kind in kinds}) == 4, "a line each"
        top = min(float(one.attrib["y1"]) for one in root.findall(f"{SVG}line"))
        assert max(said[kind] for kind in kinds) < top
        looks = {(one.attrib["class"].partition(" ")[2], one.attrib["r"]) for one in root.findall(f"{SVG}circle")}
        assert looks == {("", "4"), ("hollow", "4"), ("hollow", "2.5")}


def test_right_is_better() -> None:
    found = results(rounds=1)
    values = {KAFKA: {"p50_ms": 4.0, "p99_ms": 1.0}, OURS: {"p50_ms": 1.0, "p99_ms": 4.0}}
    found.add("end to end, 1,000 records/s", Round(values))
    root = ElementTree.fromstring(plots([found], ["one"])["times.svg"])
    first, second = root.findall(f"{SVG}circle")
    assert float(first.attrib["cx"]) > float(second.attrib["cx"])
    assert (first.attrib["class"], second.attrib["class"]) == ("won", "lost")

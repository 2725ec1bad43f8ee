"""The tour: why does `billing` lag, what are its records, tail, produce, reset; and how each page looks to tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("hypercorn")
pytest.importorskip("playwright")

from compat_tests.subjects.console.place import broker, console
from compat_tests.subjects.console.tour import (
    FIRST_PAINT_MS,
    PAGE_BYTES,
    PAGES,
    PHONE,
    WIDE,
    browser,
    chromium,
    watched,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason="no Chromium")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(Path(tmp_path_factory.mktemp("broker"))) as address:
        yield address


@pytest.fixture(scope="module")
def url(cluster: str) -> Iterator[str]:
    with console(cluster) as address:
        yield address


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as made:
        yield made


def test_somebody_with_an_incident(opened: Any, url: str) -> None:
    page = watched(opened, url)
    page.goto("/")
    page.get_by_role("link", name="billing").click()  # most lag
    page.get_by_role("cell", name="120", exact=True).get_by_role("link").click()  # what it has not read of partition 0
    page.get_by_text("50 records").wait_for()
    page.get_by_role("link", name="Later records").click()
    page.wait_for_url("**go=0**")
    page.goto("/topics/orders/records")
    page.keyboard.press("/")
    page.keyboard.type("Grace")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=Grace**")
    assert page.locator("td.key").first.inner_text() == "Grace"
    page.locator("table.records tbody th a").first.click()
    page.locator("pre.whole").last.filter(has_text='"customer": "Grace"').wait_for()
    assert page.wrong == []


def test_the_tail_moves(opened: Any, url: str) -> None:
    page, writer = watched(opened, url), watched(opened, url)
    page.goto("/topics/clicks/live")
    page.get_by_text("Live", exact=True).last.wait_for()
    writer.goto("/topics/clicks/produce")
    writer.get_by_label("Value", exact=True).fill("<b>a click</b>")
    writer.get_by_role("button", name="Write").click()
    writer.get_by_text("The record was written.").wait_for()
    page.get_by_text("<b>a click</b>").wait_for()
    page.get_by_role("button", name="Pause").click()
    writer.goto("/topics/clicks/produce")
    writer.get_by_label("Value", exact=True).fill("another")
    writer.get_by_role("button", name="Write").click()
    page.get_by_text("Paused, 1 new").wait_for()
    assert page.get_by_text("another").count() == 0
    page.get_by_role("button", name="Go on").click()
    page.get_by_text("another").wait_for()
    assert page.wrong == writer.wrong == []


def test_a_reset(opened: Any, url: str) -> None:
    page = watched(opened, url)
    page.goto("/groups/mail/reset")
    page.get_by_label("Go on reading").select_option("earliest")
    page.get_by_role("button", name="Show what changes").click()
    page.get_by_role("heading", name="What would be set").wait_for()
    page.get_by_role("button", name="Set these offsets").click()
    page.get_by_text("The offsets were set.").wait_for()
    assert page.wrong == []


def test_what_is_denied(opened: Any, cluster: str) -> None:
    with console(cluster, "--read-only") as url:
        page = watched(opened, url)
        page.goto("/topics/orders/partitions")
        assert page.get_by_text("read-only").is_visible()
        assert page.get_by_role("button").count() == page.get_by_role("button", name="Show mine").count()
        page.goto("/topics/orders/delete")
        assert page.get_by_label("Type").count() == 0


@pytest.mark.parametrize("path", PAGES)
def test_each_page(opened: Any, url: str, path: str) -> None:
    """No serious fault of accessibility, light and dark; no error, nothing from elsewhere; small, and soon there; on a
    phone nothing sticks out.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme, size in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        page = watched(opened, url, scheme, size)
        answer = page.goto(path)
        faults = [
            (each["id"], each["nodes"][0]["html"][:200])
            for each in axe.run(page).response["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert faults == [], (scheme, faults)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), size
        assert len(answer.body()) < PAGE_BYTES
        if path != "/nowhere":
            assert page.wrong == [], page.wrong
        page.context.close()


_PAINT = """() => new Promise((done) => {
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") done(entry.startTime);
  });
  observer.observe({ type: "paint", buffered: true });
})"""


def test_the_first_paint(opened: Any, url: str) -> None:
    page = watched(opened, url)
    page.goto("/topics")  # templates are loaded
    found = []
    for _ in range(5):
        page.goto("/topics")
        found.append(round(page.evaluate(_PAINT)))
    print(f"first contentful paint, ms: {sorted(found)}; it should be under {FIRST_PAINT_MS}")  # machines differ
    assert all(each > 0 for each in found)


def test_without_scripts(opened: Any, url: str) -> None:
    page = watched(opened, url, java_script_enabled=False)
    for path in PAGES:
        page.goto(path)
        assert page.get_by_role("heading", level=1).is_visible()
    page.goto("/topics/orders/live")
    assert page.get_by_text("Following needs JavaScript").is_visible()

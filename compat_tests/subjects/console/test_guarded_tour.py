"""A tour where access is controlled: an administrator lets a user in, who sees and does what she may; her token;
records in Avro; and how those pages, filled, look to tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("hypercorn")
pytest.importorskip("fastavro")
pytest.importorskip("playwright")

from compat_tests.subjects.console.place import console, guarded_broker
from compat_tests.subjects.console.tour import (
    GUARDED_PAGES,
    PHONE,
    WIDE,
    admit_dora,
    browser,
    chromium,
    give_schema,
    log_in,
    watched,
)
from compat_tests.subjects.security.guarded import Guarded

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason="no Chromium")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(Path(tmp_path_factory.mktemp("broker")) / "guarded") as started:
        yield started


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def admin(opened: Any, guarded: Guarded) -> Iterator[str]:
    """The console of who may do everything, after it has let dora in."""
    with console(guarded.plaintext) as url:
        page = watched(opened, url)
        admit_dora(page)
        give_schema(page)
        assert page.wrong == []
        yield url


@pytest.fixture(scope="module")
def users(guarded: Guarded, admin: str) -> Iterator[str]:
    """The console of who logs in."""
    with console(guarded.clients, "--login", "SCRAM-SHA-512") as url:
        yield url


def test_what_an_administrator_sees_then(opened: Any, admin: str) -> None:
    page = watched(opened, admin)
    page.goto("/acls")
    assert page.get_by_role("row").filter(has_text="User:dora").count() == 2
    page.goto("/users")
    assert "SCRAM-SHA-512" in page.get_by_role("row").filter(has_text="dora").inner_text()
    page.goto("/quotas")
    assert "1,000,000" in page.get_by_role("row").filter(has_text="dora").inner_text()
    assert page.wrong == []


def test_what_is_denied_is_denied(opened: Any, users: str) -> None:
    page = watched(opened, users)
    log_in(page, "dora", "dora-secret")
    page.goto("/topics")
    assert page.locator("tbody th").all_inner_texts() == ["orders"]
    page.goto("/topics/orders/records")
    assert page.get_by_text("50 records").is_visible()
    page.goto("/topics/orders/delete")
    page.get_by_label("Type").fill("orders")
    page.get_by_role("button", name="Delete", exact=False).first.click()
    page.get_by_text("TOPIC_AUTHORIZATION_FAILED").wait_for()
    page.goto("/topics/payments/records")
    assert page.locator("table.records").count() == 0
    page.goto("/acls")
    assert page.get_by_text("CLUSTER_AUTHORIZATION_FAILED").is_visible()


def test_a_token_of_hers(opened: Any, users: str) -> None:
    page = watched(opened, users)
    log_in(page, "dora", "dora-secret")
    page.goto("/tokens")
    page.get_by_text("Make a token").click()
    page.get_by_label("Lasts at most").fill("30m")
    page.get_by_role("button", name="Make", exact=True).click()
    page.get_by_text("The secret is shown this once.").wait_for()
    token = page.locator("dl.facts code").first.inner_text()
    _well_made(page)
    page.goto("/tokens")
    row = page.get_by_role("row").filter(has_text=token)
    row.get_by_role("button", name="Renew").click()
    page.get_by_text("The token was renewed.").wait_for()
    _well_made(page)
    page.get_by_role("row").filter(has_text=token).get_by_role("link", name="End…").click()
    page.get_by_label("Type").wait_for()
    _well_made(page)
    page.get_by_label("Type").fill("dora")
    page.get_by_role("button", name="End it").click()
    page.get_by_text("The token was ended.").wait_for()
    assert page.wrong == []


def test_records_in_avro(opened: Any, admin: str) -> None:
    page = watched(opened, admin)
    page.goto("/topics/stock/records?json=%24.item+%3D%3D+rug")
    assert page.locator("td.value").first.inner_text().startswith('{"id": 1029, "item": "rug"')
    page.locator("table.records tbody th a").first.click()
    page.get_by_text("behind the id 17").wait_for()
    assert page.wrong == []


@pytest.mark.parametrize("path", GUARDED_PAGES)
def test_each_page_with_something_on_it(opened: Any, admin: str, path: str) -> None:
    for scheme, size in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        page = watched(opened, admin, scheme, size)
        assert page.goto(path).status == 200
        _well_made(page)
        assert page.wrong == [], page.wrong
        page.context.close()


def _well_made(page: Any) -> None:
    """No serious fault of accessibility; nothing sticks out."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.wait_for_load_state()
    faults = [
        (each["id"], each["nodes"][0]["html"][:200])
        for each in axe.run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert faults == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

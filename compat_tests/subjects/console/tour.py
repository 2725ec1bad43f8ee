"""A tour through the console in headless Chromium, as somebody with an incident would take it.

    python -m compat_tests.subjects.console.tour --shots docs/console     takes the pictures of docs/console.md

Wants Debian's `chromium`, and from PyPI `playwright` and `axe-playwright-python` (the group `tour` of pyproject.toml).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from compat_tests.subjects.console.place import STOCK, broker, console, guarded_broker

WIDE: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 390, "height": 844}
FIRST_PAINT_MS: Final = 300
PAGE_BYTES: Final = 200_000
LIMIT_MS: Final = 90_000
"""For a page, and for something to come up on it; more than a console waits for the broker."""
PAGES: Final = (
    "/",
    "/topics",
    "/topics?internal=1&sort=size",
    "/new-topic",
    "/topics/orders/partitions",
    "/topics/orders/records",
    "/topics/orders/record?partition=0&offset=3",
    "/topics/orders/live",
    "/topics/orders/avro",
    "/topics/orders/groups",
    "/topics/orders/transactions",
    "/topics/orders/settings",
    "/topics/orders/settings?edit=retention.ms",
    "/topics/orders/produce?partition=0&offset=3",
    "/topics/orders/delete",
    "/topics/orders/move?brokers=1&replicas=1",
    "/moves",
    "/leaders",
    "/groups",
    "/groups/billing/lag",
    "/groups/billing/reset?to=earliest",
    "/groups/billing/delete",
    "/transactions",
    "/acls",
    "/users",
    "/quotas",
    "/tokens",
    "/end-token?id=none",
    "/delete-acl",
    "/delete-user?user=ada",
    "/delete-quota?user=ada",
    "/brokers/1/directories",
    "/brokers/1/settings?q=log.retention",
    "/nowhere",
)
GUARDED_PAGES: Final = (
    "/acls",
    "/users",
    "/quotas",
    "/delete-acl?principal=User:dora&host=*&permission=Allow&operation=Read&resource=Topic&name=orders&pattern=Literal",
    "/delete-user?user=dora",
    "/delete-quota?user=dora",
    "/topics/stock/records",
    "/topics/stock/record?partition=0&offset=3&as=avro",
    "/topics/stock/avro",
)
"""With something on them, after `admit_dora` and `give_schema`."""
SHOTS: Final = (
    ("overview", "/", "light", WIDE),
    ("records", "/topics/orders/records?json=%24.total+%3E+80", "light", WIDE),
    ("group", "/groups/billing/lag", "dark", WIDE),
    ("topics-phone", "/topics", "light", PHONE),
)


GUARDED_SHOTS: Final = (
    ("access", "/acls", "light", WIDE),
    ("avro", "/topics/stock/records?json=%24.count+%3E+20", "light", WIDE),
)


def admit_dora(page: Any, password: str = "dora-secret") -> None:
    """As somebody who administers access: a user with a password, an ACL, a limit."""
    page.goto("/users")
    page.get_by_text("Give a user a password").click()
    page.get_by_label("User", exact=True).fill("dora")
    page.get_by_label("Mechanism").select_option("SCRAM-SHA-512")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Give").click()
    page.get_by_text("The user has this password now.").wait_for()
    for operation in ("Describe", "Read"):
        page.goto("/acls")
        page.locator("details.card summary").click()
        page.locator("#principal").fill("User:dora")
        page.locator("#operation").select_option(operation)
        page.locator("#name").fill("orders")
        page.locator("details.card button").click()
        page.get_by_text("The ACL was created.").wait_for()
    page.goto("/quotas")
    page.get_by_text("Set a limit").click()
    page.locator("#user").fill("dora")
    page.locator("#limit").select_option("producer_byte_rate")
    page.locator("#value").fill("1000000")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("The limit was set.").wait_for()


def give_schema(page: Any) -> None:
    """Of the values of `stock`."""
    page.goto("/topics/stock/avro")
    page.locator("#schema").fill(STOCK)
    page.get_by_role("button", name="Show records by it").click()
    page.get_by_text("The schema counts now").wait_for()


def log_in(page: Any, name: str, password: str) -> None:
    page.goto("/")
    page.get_by_label("User of the cluster").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"], timeout=2 * LIMIT_MS
        )
        try:
            yield made
        finally:
            made.close()


def watched(opened: Any, url: str, scheme: str = "light", size: dict[str, int] = WIDE, **options: Any) -> Any:
    """A page on which an error of a script, a refusal by the policy or a request elsewhere is a failure."""
    page = opened.new_context(color_scheme=scheme, viewport=size, base_url=url, **options).new_page()
    page.set_default_timeout(LIMIT_MS)
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(url) else page.wrong.append(asked.url))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the pictures of docs/console.md.")
    parser.add_argument("--shots", type=Path, required=True, metavar="DIRECTORY")
    chosen = parser.parse_args()
    chosen.shots.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        broker(Path(directory), is_hostile=False) as bootstrap,
        console(bootstrap) as url,
        browser() as opened,
    ):
        time.sleep(45)  # for some of the lag's history
        _shoot(opened, url, chosen.shots, SHOTS)
    with (
        tempfile.TemporaryDirectory() as directory,
        guarded_broker(Path(directory) / "guarded") as guarded,
        console(guarded.plaintext) as url,
        browser() as opened,
    ):
        page = watched(opened, url)
        admit_dora(page)
        give_schema(page)
        _shoot(opened, url, chosen.shots, GUARDED_SHOTS)


def _shoot(opened: Any, url: str, directory: Path, shots: tuple[tuple[str, str, str, dict[str, int]], ...]) -> None:
    for name, path, scheme, size in shots:
        page = watched(opened, url, scheme, size)
        page.goto(path)
        page.screenshot(path=directory / f"{name}.png", full_page=False)
        assert not page.wrong, page.wrong


if __name__ == "__main__":
    main()

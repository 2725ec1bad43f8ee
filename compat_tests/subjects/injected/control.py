"""The control channel by Python's own HTTP client: what a program in another language does, too."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Fault:
    """One that was made. *hits*: how many requests it has struck; *seen*: how many it was for."""

    def __init__(self, url: str, number: int) -> None:
        self._url = f"{url}/v1/faults/{number}"

    @property
    def hits(self) -> int:
        return int(asked("GET", self._url)["hits"])

    @property
    def seen(self) -> int:
        return int(asked("GET", self._url)["seen"])

    def end(self) -> None:
        asked("DELETE", self._url)


class Control:
    """The channel at *url*."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def fault(self, **said: Any) -> Iterator[Fault]:
        """One fault, while the block lasts."""
        fault = Fault(self.url, asked("POST", f"{self.url}/v1/faults", said)["id"])
        try:
            yield fault
        finally:
            fault.end()

    @contextmanager
    def counted(self, api: str) -> Iterator[Fault]:
        """Count the requests of an API: a fault that strikes none of them."""
        with self.fault(api=api, delay_ms=1, nth=2**31) as fault:
            yield fault


def asked(method: str, url: str, body: Any = None) -> Any:
    """The JSON of an answer; urllib raises for an error."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)

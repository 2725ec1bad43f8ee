"""The control channel of a broker, from the process that runs tests: requests to the address that `barnabas dev
--control` announces. Imports nothing of the broker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.child import BrokerError

__all__ = ["Control"]

TIMEOUT_S = 60.0


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the broker, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


class Control:
    """See the module. url(): where the channel is now: a broker that is started again has another one. Raises
    BrokerError without a broker that runs.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """The answer to a request, a value of JSON. Raises ValueError for what the broker finds wrong with it,
        BrokerError for one that cannot be asked.
        """
        import http.client  # not loaded by suites that do not use it

        address = self._url().removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=timeout_s)
        data = None if body is None else json.dumps({key: each for key, each in body.items() if each is not None})
        try:
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            response = connection.getresponse()
            status, answer = response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BrokerError(f"the broker's control channel does not answer {method} {path}: {error}") from None
        finally:
            connection.close()
        if status == 200:
            return answer
        said = str(answer.get("error"))
        if 400 <= status < 500:
            raise ValueError(said)
        raise BrokerError(f"{method} {path}: {said}")

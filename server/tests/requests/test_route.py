"""One API in one version: what is kept of it, and when that is made."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto.messages import MetadataResponse
from barnabas.server.apis import APIS
from barnabas.server.requests import route
from barnabas.server.requests.route import Route
from barnabas.server.runtime.turns import LARGE_ANSWER_ITEMS


def test_nothing_that_stays_is_made_while_an_answer_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would lie among what goes, and hold its pages."""
    (api,) = (one for one in APIS if one.key == MetadataResponse.__description__.api_key)
    routes = [Route(api, version) for version in range(api.versions[0], api.versions[1] + 1)]

    def made(*_: Any) -> None:
        raise AssertionError("made late")

    monkeypatch.setattr(route, "Arrays", made)
    topics = [MetadataResponse.MetadataResponseTopic()] * (LARGE_ANSWER_ITEMS + 1)
    for one in routes:
        assert one.is_large(MetadataResponse(topics=topics))
        assert not one.is_large(MetadataResponse(topics=topics[:10]))

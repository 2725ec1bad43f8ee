"""APIs that are imported for their first request: the list says what they are."""

from __future__ import annotations

from itertools import product

import pytest

from barnabas.server.apis import APIS, admin_apis, between_brokers_apis, security_apis, share_apis, streams_apis
from barnabas.server.requests.api import LateApi

LATE = [api for api in APIS if isinstance(api, LateApi)]
FILES = (admin_apis, between_brokers_apis, security_apis, share_apis, streams_apis)


@pytest.mark.parametrize("api", LATE, ids=lambda api: api.key.name)
def test_what_is_listed_is_what_is_imported(api: LateApi) -> None:
    loaded = api.load()
    assert (loaded.key, loaded.versions) == (api.key, api.versions)
    for clustered, telemetry in product((False, True), repeat=2):
        served = api.is_served(clustered=clustered, telemetry=telemetry)
        assert served == loaded.is_served(clustered=clustered, telemetry=telemetry)


def test_each_of_the_files_is_listed() -> None:
    assert sorted(api.key for api in LATE) == sorted(key for file in FILES for key in file.APIS)

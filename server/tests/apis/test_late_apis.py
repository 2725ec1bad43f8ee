"""APIs that are imported for their first request: the list says what they are."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.kproto import ApiKey
from barnabas.server.apis import APIS
from barnabas.server.network.connection import ProtocolViolation
from barnabas.server.requests.api import LateApi
from barnabas.server.requests.dispatch import Dispatcher

ROOT = Path(__file__).resolve().parents[3]
LATE = [api for api in APIS if isinstance(api, LateApi)]


@pytest.mark.parametrize("api", LATE, ids=lambda api: api.key.name)
def test_what_is_listed_is_what_is_imported(api: LateApi) -> None:
    loaded = api.load()
    assert (loaded.key, loaded.versions) == (api.key, api.versions)
    for clustered, telemetry in product((False, True), repeat=2):
        served = api.is_served(clustered=clustered, telemetry=telemetry)
        assert served == loaded.is_served(clustered=clustered, telemetry=telemetry)


def test_each_of_the_files_is_listed() -> None:
    files = {
        path.stem
        for path in (ROOT / "server" / "apis").glob("*/*.py")
        if re.search("^API = ", path.read_text(), re.MULTILINE)
    }
    assert files == {api.key.name.lower() for api in APIS}


def test_files_may_be_replaced_under_a_broker_that_has_loaded_the_rest() -> None:
    """Of all but the groups that few have; for these a client is told nothing wrong, and the log what to do."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from barnabas.server.apis import APIS, load_rest\n"
        "load_rest()\n"
        "import barnabas; barnabas.__path__ = sys.path = []\n"  # as pip does before it writes the new ones
        "for name in [name for name in sys.modules if name.startswith('barnabas.')]:\n"
        "    vars(sys.modules[name]).pop('__path__', None)\n"
        "for api in APIS:\n"
        "    try:\n"
        "        api.load()\n"
        "    except ImportError:\n"
        "        print(int(api.key))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert {int(line) for line in done.stdout.split()} == {api.key for api in LATE if api.is_rare}


def test_one_that_cannot_be_loaded_closes_the_connection_that_asks() -> None:
    late = LateApi(ApiKey.SHARE_FETCH, (1, 2), "barnabas.server.apis.gone")
    services: Any = SimpleNamespace(authorizer=None)
    nursery: Any = None
    dispatch = Dispatcher([late], services, nursery)
    with pytest.raises(ProtocolViolation, match=r"^SHARE_FETCH cannot be loaded .*restart the broker"):
        dispatch.route(ApiKey.SHARE_FETCH, 1)

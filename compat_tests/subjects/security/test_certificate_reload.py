"""A listener's certificate is replaced while clients are connected: they go on, and who comes later sees the new one.

The new one is of another authority, so that it shows in whom a client must trust.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from compat_tests.harness.secured import Secured
from compat_tests.subjects.security.clients.choice import LIBRARIES, with_each
from compat_tests.subjects.security.clients.client import BROKERS_CERTIFICATE, Client
from compat_tests.subjects.security.steps import refusal, there_and_back

AREA = "TLS"
LISTENER = "RENEWED"


@pytest.mark.campaign
@with_each(AREA, "the broker's certificate is replaced", LIBRARIES)
def test_another_certificate(secured: Secured, topic: str, unique: Callable[..., str], client: Client) -> None:
    secured.renew(LISTENER, other=False)
    with closing(client.sender(secured.access(LISTENER))) as sender:
        sender.send(topic, b"before")
        secured.renew(LISTENER, other=True)
        for value in (b"after", b"and after"):
            sender.send(topic, value)
        assert sender.connects() in (1, None)
    assert refusal(client, secured.access(LISTENER), topic) == BROKERS_CERTIFICATE
    another = unique("another")
    secured.make_topic(another)
    there_and_back(client, secured.access(LISTENER, authority=secured.stores.other_authority), another)

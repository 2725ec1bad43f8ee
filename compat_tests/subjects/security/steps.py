"""What the cases do with a client."""

from __future__ import annotations

from contextlib import closing

import pytest

from compat_tests.harness.secured import Access
from compat_tests.subjects.security.clients.client import Client, Refused


def there_and_back(client: Client, access: Access, topic: str) -> None:
    """Small and large records, written and read by the client."""
    values = [b"small", b"l" * 150_000, b"small again"]
    with closing(client.sender(access)) as sender:
        for value in values:
            sender.send(topic, value)
    found: list[bytes] = []
    with closing(client.reader(access, topic)) as reader:
        while len(found) < len(values):
            found += reader.read()
    assert found == values


def refusal(client: Client, access: Access, topic: str) -> str:
    """Why the client may not send."""
    with closing(client.sender(access)) as sender, pytest.raises(Refused) as refused:
        sender.send(topic, b"in vain")
    return refused.value.kind

"""What the cases ask of a client: to send and to read in a given way, and to say why it may not.

An adapter does everything by its library's ordinary calls. What a library raises, or only writes into its log, becomes
`Refused` with one of the kinds below; a client that gives no reason fails its case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from compat_tests.harness.secured import Access

LOGIN = "the broker refuses the log-in"
BROKERS_CERTIFICATE = "the client refuses the broker's certificate"
OWN_CERTIFICATE = "the broker refuses the client's certificate"
TOPIC = "the user may not use the topic"
UNSAID = "the broker closes the connection, and the client throws away what it has said"

_KINDS = {
    LOGIN: r"SaslAuthentication|SASL authentication error:|invalid_token",
    BROKERS_CERTIFICATE: r"certificate verify failed|CERTIFICATE_VERIFY_FAILED|PKIX path|No subject alternative|"
    r"No name matching",
    # The broker's word for it comes as an alert of TLS.
    OWN_CERTIFICATE: r"[Aa]lert",
    TOPIC: r"TopicAuthorization|TOPIC_AUTHORIZATION_FAILED|Topic authorization failed",
}
WITHIN_S = 60
"""What hangs ends then."""


class Refused(Exception):
    """kind: one of the above. The text holds the client's own words."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(f"{kind}: {words}")
        self.kind = kind


def kind_of(words: Iterable[object]) -> str | None:
    """What a client's words mean, those of exceptions or lines of its log; None: they give none of the reasons."""
    said = _joined(words)
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, said)), None)


def refused(words: Iterable[object]) -> Refused:
    """What to raise for a client's words. Fails where they give no reason, so that no case passes on a time-out."""
    words = list(words)
    kind = kind_of(words)
    assert kind is not None, f"the client gives no reason: {_joined(words)}"
    return Refused(kind, _joined(words))


def _joined(words: Iterable[object]) -> str:
    return " | ".join(str(each) for each in words)


class Sender(Protocol):
    """A producer; connects when it first sends."""

    def send(self, topic: str, value: bytes) -> None:
        """Send to partition 0, and wait for the answer. Raises Refused."""

    def connects(self) -> int | None:
        """How often it has connected to the broker, but for asking where brokers are; None: it does not say."""

    def logins_again(self) -> int | None:
        """How often it has logged in on a connection on which it had before; None: it does not say."""

    def close(self) -> None: ...


class Reader(Protocol):
    """Reads partition 0 of a topic from its beginning, without a group."""

    def read(self) -> list[bytes]:
        """What has come since the last call; waits for a moment if there is nothing. Raises Refused."""

    def connects(self) -> int | None:
        """As of a sender."""

    def logins_again(self) -> int | None:
        """As of a sender."""

    def close(self) -> None: ...


class Client(Protocol):
    """A library or program."""

    def sender(self, access: Access) -> Sender: ...

    def reader(self, access: Access, topic: str) -> Reader: ...

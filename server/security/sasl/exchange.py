"""What the mechanisms have in common: a few tokens from the client, each answered, until it is known who that is.

An `Exchange` is for one log-in. It is given each token in turn and returns a `Challenge` or a `LoggedIn`, or raises
`Refused`; after that, and after `LoggedIn`, it is not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Refused(Exception):
    """The log-in is rejected. The message is the reason, for the broker's log: it holds no secret. `said`: the message
    to the client; None: only that its credentials are invalid.
    """

    def __init__(self, reason: str, *, said: str | None = None) -> None:
        super().__init__(reason)
        self.said = said


@dataclass(frozen=True, slots=True, repr=False)
class Challenge:
    """Not done: the client is sent `answer` and says something to that."""

    answer: bytes


@dataclass(frozen=True, slots=True, repr=False)
class LoggedIn:
    """The log-in has succeeded. `user`: the client's user. `answer`: the last bytes for the client. `expires_ms`: when
    its credentials end (wall clock, ms since the epoch); None: never. `by_token`: it used a delegation token.
    """

    user: str
    answer: bytes = b""
    expires_ms: int | None = None
    by_token: bool = False


class Exchange(Protocol):
    """One log-in by one mechanism, seen from the server."""

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | LoggedIn:
        """What to say to the client's next token. `now_ms`: wall clock. Raises Refused."""
        ...


NewExchange = Callable[[], Exchange]
"""Begins a log-in by one mechanism."""

ANOTHER_AUTHZID = "Authentication failed: the authorization id is not the one of who logs in"

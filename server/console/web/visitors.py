"""Who visits: cookies, the tokens of forms, log-ins.

A visitor is a random id in a cookie that is signed with a key of this process, so nobody can choose one for somebody
else (session fixation), and it takes no memory. Where visitors log in, ids that have are kept, `LOGINS_MAX` of them; a
log-in makes a new id. The token in each form is another signature of the id.

Guessing: `TRIES` wrong passwords from one address, then one each `PAUSE_S`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple

LOGINS_MAX: Final = 1000
LOGIN_S: Final = 12 * 3600
"""How long a log-in lasts without a visit."""
TRIES: Final = 5
PAUSE_S: Final = 10.0
_ADDRESSES_MAX: Final = 10_000


class Visitor(NamedTuple):
    """`is_new`: has no cookie yet. `is_in`: may see pages. `who`: for the audit."""

    id: str
    token: str
    is_new: bool
    is_in: bool
    who: str = "anonymous"


class _Entry(NamedTuple):
    who: str
    held: object
    last: float
    until: float


class Visitors:
    """See the module. random(n): n bytes. now(): seconds. name: of the cookie. must_log_in: else everybody is in."""

    def __init__(
        self, random: Callable[[int], bytes], now: Callable[[], float], name: str, *, must_log_in: bool = False
    ) -> None:
        self._random = random
        self._now = now
        self._name = name
        self._key = random(32)
        self._must_log_in = must_log_in
        self._in: dict[str, _Entry] = {}
        self._gone: list[object] = []
        self._tries: dict[str, tuple[int, float]] = {}

    def of(self, cookie_header: str) -> Visitor:
        """Whoever sends this header Cookie; a new one, if it is not one that we have given."""
        given = self._given(cookie_header)
        name = given or self._new_id()
        if not self._must_log_in:
            return Visitor(name, self._token(name), given is None, True)
        entry = self._entry(name)
        if entry is None:
            return Visitor(name, self._token(name), given is None, False)
        return Visitor(name, self._token(name), False, True, entry.who)

    def is_token(self, visitor: Visitor, token: str) -> bool:
        """Whether a form came from a page of this visitor."""
        return not visitor.is_new and hmac.compare_digest(visitor.token.encode(), token.encode("utf-8", "replace"))

    def cookie(self, visitor: Visitor) -> str:
        """A header Set-Cookie."""
        value = f"{visitor.id}.{self._signed('visitor', visitor.id)}"
        return f"{self._name}={value}; Path=/; HttpOnly; SameSite=Strict"

    def must_wait(self, address: str) -> bool:
        """Too many wrong passwords came from there."""
        tries, last = self._tries.get(address, (0, 0.0))
        return tries >= TRIES and self._now() - last < PAUSE_S

    def may_try(self, address: str) -> bool:
        """Whether a password from there is looked at; then it counts as wrong until `admit`, so that many at a time do
        not come in between.
        """
        if self.must_wait(address):
            return False
        if len(self._tries) >= _ADDRESSES_MAX:
            self._tries.clear()
        self._tries[address] = (self._tries.get(address, (0, 0.0))[0] + 1, self._now())
        return True

    def admit(
        self, visitor: Visitor, address: str, who: str, held: object = None, lasts_s: float | None = None
    ) -> Visitor:
        """The visitor, who has logged in, under a new id. held: kept for this log-in (`held`, `take_gone`).
        lasts_s: however often he visits; None: without such an end.
        """
        self._tries.pop(address, None)
        self.log_out(visitor)
        name = self._new_id()
        while len(self._in) >= LOGINS_MAX:
            self._forget(next(iter(self._in)))  # who was here longest ago
        until = float("inf") if lasts_s is None else self._now() + lasts_s
        self._in[name] = _Entry(who, held, self._now(), until)
        return Visitor(name, self._token(name), True, True, who)

    def held(self, visitor: Visitor) -> object:
        """What was given to `admit`; None for who is not logged in."""
        entry = self._in.get(visitor.id)
        return None if entry is None else entry.held

    def log_out(self, visitor: Visitor) -> None:
        if visitor.id in self._in:
            self._forget(visitor.id)

    def take_gone(self) -> list[object]:
        """What was held for log-ins that have ended since the last call."""
        for name, entry in list(self._in.items()):
            if self._is_over(entry):
                self._forget(name)
        gone, self._gone = self._gone, []
        return gone

    def _entry(self, name: str) -> _Entry | None:
        """Of a log-in that lasts, which begins to count anew."""
        entry = self._in.pop(name, None)
        if entry is None:
            return None
        if self._is_over(entry):
            self._in[name] = entry
            self._forget(name)
            return None
        self._in[name] = entry._replace(last=self._now())
        return entry

    def _is_over(self, entry: _Entry) -> bool:
        return self._now() - entry.last > LOGIN_S or self._now() >= entry.until

    def _forget(self, name: str) -> None:
        held = self._in.pop(name).held
        if held is not None:
            self._gone.append(held)

    def _given(self, cookie_header: str) -> str | None:
        try:
            cookies: SimpleCookie = SimpleCookie(cookie_header)
        except CookieError:
            return None
        morsel = cookies.get(self._name)
        if morsel is None:
            return None
        name, _, signature = morsel.value.partition(".")
        expected = self._signed("visitor", name)
        return name if hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()) else None

    def _new_id(self) -> str:
        return _text(self._random(18))

    def _token(self, name: str) -> str:
        return self._signed("form", name)

    def _signed(self, what: str, text: str) -> str:
        return _text(self._digest(what, text)[:24])

    def _digest(self, what: str, text: str) -> bytes:
        return hmac.digest(self._key, f"{what}:{text}".encode("utf-8", "surrogateescape"), hashlib.sha256)


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()

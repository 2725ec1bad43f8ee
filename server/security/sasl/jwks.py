"""The public keys that tokens may be signed with (JWKS, RFC 7517), and when to fetch them again. Fetching is done
above: nothing here waits.

    jwks = Jwks(rules)
    jwks.next_fetch          # when (seconds of the caller's clock); at once in the beginning
    jwks.fetched(text, now)  # or jwks.failed(now): tried again after a pause that grows
    jwks.keys(kid, kty)      # those that may have signed
    jwks.miss(kid, now)      # there was none: fetch sooner, but at most once a minute for the same name

Keys stay in use while new ones cannot be had. Numbers are Apache Kafka's (`RefreshingHttpsJwks.java`, 4.3). Not taken:
secret keys (`oct`), with which a verifier could sign as well; keys for encryption; RSA below 2048 bits.
"""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey

NAMES_KEPT: Final = 16
NAME_LENGTH_MAX: Final = 1000
MISS_EVERY_S: Final = 60.0
RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 100

PublicKey = RSAKey | ECKey | OKPKey


class BadKeySet(ValueError):
    """A text is no set of keys, or none in it can be used."""


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """In seconds: how long keys are used before they are fetched again; the first and the longest pause after a
    failure.
    """

    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class Jwks:
    """See the module."""

    def __init__(self, rules: RefreshRules) -> None:
        self._rules = rules
        self._keys: list[PublicKey] = []
        self._failures = 0
        self._missed: OrderedDict[str, float] = OrderedDict()
        self.next_fetch = float("-inf")

    @property
    def has_keys(self) -> bool:
        """They were fetched at least once."""
        return bool(self._keys)

    def keys(self, kid: str | None, kty: str) -> list[PublicKey]:
        """Keys of a type (RSA, EC, OKP) with this name; without a name all of the type."""
        return [key for key in self._keys if key.key_type == kty and (kid is None or key.kid == kid)]

    def fetched(self, text: str | bytes, now: float) -> None:
        """What the fetch has brought. Raises BadKeySet: what was there stays, and it counts as a failure."""
        try:
            self._keys = parse_keys(text)
        except BadKeySet:
            self.failed(now)
            raise
        self._failures = 0
        self.next_fetch = now + self._rules.refresh_s
        for key in self._keys:
            self._missed.pop(key.kid or "", None)

    def failed(self, now: float) -> None:
        """The fetch has brought nothing."""
        rules = self._rules
        pause_s = min(rules.backoff_max_s, rules.backoff_s * 2 ** min(self._failures, 30))
        self._failures += 1
        self.next_fetch = now + pause_s

    def miss(self, kid: str | None, now: float) -> bool:
        """A token names a key that there is not. True: `next_fetch` is sooner now."""
        if kid is None or len(kid) > NAME_LENGTH_MAX or now < self._missed.get(kid, float("-inf")):
            return False
        self._missed[kid] = now + MISS_EVERY_S
        self._missed.move_to_end(kid)
        if len(self._missed) > NAMES_KEPT:
            self._missed.popitem(last=False)
        if self._failures or self.next_fetch <= now:
            return False  # it is on its way
        self.next_fetch = now
        return True


def parse_keys(text: str | bytes) -> list[PublicKey]:
    """The keys of a JWKS document that can be used. Raises BadKeySet."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise BadKeySet("it is no JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadKeySet('it has no list "keys"')
    keys = [key for entry in entries[:KEYS_MAX] if (key := _usable(entry)) is not None]
    if not keys:
        raise BadKeySet(f"none of its {len(entries)} keys can be used")
    return keys


def _usable(entry: Any) -> PublicKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)
            key = JWKRegistry.import_key(entry)
            if isinstance(key, RSAKey):
                return key if key.public_key.key_size >= RSA_BITS_MIN else None
            if isinstance(key, (ECKey, OKPKey)):
                return key if key.public_key is not None else None
    except (JoseError, ValueError, TypeError, KeyError):
        pass  # another entry may be usable
    return None

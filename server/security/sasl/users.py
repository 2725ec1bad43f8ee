"""Users with SCRAM credentials, as this broker knows them: what the store says of each, by name.

    users = ScramUsers(secret)
    users.put("alice", {"SCRAM-SHA-256": "salt=…", "producer_byte_rate": "…"})   # the user's whole node; {}: gone

What else stands in a user's node is passed over. `secret`: 32 random bytes, the same for all brokers of a cluster and
at each start, or a stand-in would not be like a user.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Mapping

from barnabas.server.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    BadCredential,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    parse_credential,
)


class ScramUsers:
    """See the module."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._users: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        # How credentials look from outside, length of salt and iterations: a stand-in takes after one of them.
        self._shapes: dict[ScramMechanism, Counter[tuple[int, int]]] = {one: Counter() for one in ScramMechanism}

    def __repr__(self) -> str:
        return f"ScramUsers({len(self._users)} users)"

    def put(self, name: str, config: Mapping[str, str]) -> list[str]:
        """What the store says of a user, in place of what it said before. Returns what is wrong with it, a sentence
        for each credential that cannot be used; there is none of that mechanism then.
        """
        credentials: dict[ScramMechanism, ScramCredential] = {}
        problems: list[str] = []
        for mechanism in ScramMechanism:
            text = config.get(mechanism.value)
            if text is None:
                continue
            try:
                credentials[mechanism] = parse_credential(text)
            except BadCredential as error:
                problems.append(f"the {mechanism.value} credential of user {name!r} cannot be used: {error}")
        for mechanism, credential in self._users.pop(name, {}).items():
            shape = _shape(credential)
            self._shapes[mechanism][shape] -= 1
            if not self._shapes[mechanism][shape]:
                del self._shapes[mechanism][shape]
        if credentials:
            self._users[name] = credentials
            for mechanism, credential in credentials.items():
                self._shapes[mechanism][_shape(credential)] += 1
        return problems

    @property
    def names(self) -> list[str]:
        """All who have a credential."""
        return sorted(self._users)

    def credentials(self, name: str) -> Mapping[ScramMechanism, ScramCredential]:
        """All credentials of a user; none for an unknown one."""
        return self._users.get(name, {})

    def find(self, mechanism: ScramMechanism, name: str) -> ScramLogin | None:
        """The credentials of a name, for one mechanism."""
        credential = self.credentials(name).get(mechanism)
        return None if credential is None else ScramLogin(name, credential)

    def stand_in(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """A credential for an unknown user. It looks like that of some user, and is the same each time, as long as
        there are users with such credentials.
        """
        shapes = [shape for shape in self._shapes[mechanism] if shape[1] >= ITERATIONS_MIN]
        salt_bytes, iterations = max(
            shapes or [(SALT_BYTES, ITERATIONS_MIN)],
            key=lambda shape: self._derive(name, mechanism, f"shape {shape[0]} {shape[1]}", 8),
        )
        salt = self._derive(name, mechanism, "salt", salt_bytes)
        # No password has these keys; checking them takes the same time as a user's.
        stored_key = self._derive(name, mechanism, "stored key", 64 if mechanism is ScramMechanism.SHA_512 else 32)
        return ScramCredential(salt, stored_key, stored_key, iterations)

    def _derive(self, name: str, mechanism: ScramMechanism, what: str, size: int) -> bytes:
        message = f"{mechanism.value}\0{what}\0{name}".encode("utf-8", "replace")
        derived = b""
        while len(derived) < size:
            derived += hmac.digest(self.secret, b"%d\0%b" % (len(derived), message), "sha512")
        return derived[:size]


def _shape(credential: ScramCredential) -> tuple[int, int]:
    return len(credential.salt), credential.iterations

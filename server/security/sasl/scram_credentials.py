"""What a broker keeps of a SCRAM password, and how it is made and written down.

    SaltedPassword = PBKDF2(H, password, salt, iterations)
    ClientKey, ServerKey = HMAC(SaltedPassword, "Client Key" or "Server Key")
    StoredKey = H(ClientKey)

The stored values (salt, StoredKey, ServerKey, iterations) permit no log-in, but passwords can be tried on them: they
are never shown. Passwords are their UTF-8 bytes as they are; Apache Kafka does not normalise them (SASLprep) either.

The store's text is Apache Kafka's: `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<n>`, in any
order. Source: RFC 5802, RFC 7677, `ScramMechanism.java`, `ScramCredentialUtils.java` (4.3).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 26
"""Of salts that are made here: as long as Apache Kafka's."""


class ScramMechanism(Enum):
    """The value is the mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The hash function's name, as hashlib has it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def number(self) -> int:
        """In Describe- and AlterUserScramCredentials."""
        return 1 if self is ScramMechanism.SHA_256 else 2

    @classmethod
    def of_number(cls, number: int) -> ScramMechanism | None:
        """The mechanism with this number, if there is one."""
        return next((one for one in cls if one.number == number), None)

    @classmethod
    def of_name(cls, name: str) -> ScramMechanism | None:
        """The mechanism with this name, if it is one of SCRAM's."""
        return next((one for one in cls if one.value == name), None)


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """See the module; the keys are bytes."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"

    def text(self) -> str:
        """As it stands in the store."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


@dataclass(frozen=True, slots=True)
class ScramLogin:
    """The user behind a name, and the user's credential. A delegation token's user is its owner, and it ends at
    `expires_ms` (wall clock).
    """

    user: str
    credential: ScramCredential
    expires_ms: int | None = None
    by_token: bool = False


class BadCredential(ValueError):
    """A text of the store is no SCRAM credential. The message does not show it."""


def parse_credential(text: str) -> ScramCredential:
    """The value of the store's text. Raises BadCredential."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise BadCredential("it is not written as key=value,…")
        fields[key] = value
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise BadCredential("it must have salt, stored_key, server_key and iterations")
    try:
        salt, stored, server = (
            base64.b64decode(fields[key], validate=True) for key in ("salt", "stored_key", "server_key")
        )
    except binascii.Error:
        raise BadCredential("it has a part that is not base64") from None
    number = fields["iterations"]
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise BadCredential("iterations is no number")
    return ScramCredential(salt, stored, server, int(number))


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: 4096 iterations about 1."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is kept of a password that is salted already, as clients send it."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.digest), iterations)


def make_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """What is kept of a password."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)

"""A SCRAM user as people write him, in the form of Apache Kafka's `kafka-storage format --add-scram`:

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt=<base64>,saltedpassword=<base64>]

Keys: name; password, or salt and saltedpassword; iterations (4096 by default) and salt may be left out. Values may
stand in double quotes, and hold no comma. Source: `ScramParser.java` (4.3).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from barnabas.server.security.sasl.scram_credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of,
    make_credential,
)

_KEYS = ("name", "password", "iterations", "salt", "saltedpassword")
_FORM = "written as SCRAM-SHA-256=[name=…,password=…]"


def parse_user(text: str, random_bytes: Callable[[int], bytes]) -> tuple[str, ScramMechanism, ScramCredential]:
    """Name, mechanism and credential. Raises ValueError with what is wrong, and never with a password in it."""
    named, _, rest = text.strip().partition("=")
    mechanism = ScramMechanism.of_name(named)
    if mechanism is None or not (rest.startswith("[") and rest.endswith("]")):
        raise ValueError(f"a user must be {_FORM}, or with SCRAM-SHA-512")
    values: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in _KEYS:
            raise ValueError(f"a user must be {_FORM}; its keys are {', '.join(_KEYS)}")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        values[key] = value
    name = values.get("name")
    if not name:
        raise ValueError("a user must have a name=")
    try:
        salt = base64.b64decode(values["salt"], validate=True) if "salt" in values else random_bytes(SALT_BYTES)
        salted = base64.b64decode(values.get("saltedpassword", ""), validate=True)
    except binascii.Error:
        raise ValueError(f"salt and saltedpassword of {name} must be base64") from None
    number = values.get("iterations", str(ITERATIONS_MIN))
    if not (number.isascii() and number.isdecimal() and ITERATIONS_MIN <= int(number[:9]) <= ITERATIONS_MAX):
        raise ValueError(f"iterations of {name} must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    iterations = int(number)
    if values.get("password"):
        if salted:
            raise ValueError(f"only one of password and saltedpassword of {name} may be given")
        return name, mechanism, make_credential(mechanism, values["password"], salt, iterations)
    if not salted or "salt" not in values:
        raise ValueError(f"{name} must have a password, or salt and saltedpassword")
    return name, mechanism, credential_of(mechanism, salted, salt, iterations)

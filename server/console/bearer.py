"""Tokens that visitors log in with by OAUTHBEARER: who they say it is, and until when.

What a token says is not believed here: the brokers check it, and only when they have let it in does its name stand in
the audit, and its end count for the log-in. A token that is no JSON Web Token (RFC 7519) has neither.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field
from typing import Any, Final

SOMEBODY: Final = "the holder of a token"
_NAME_MAX: Final = 200


class NoToken(ValueError):
    """The text says what is wrong, and shows nothing of it."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """`who`: its subject. `expires_s`: since the epoch; None: it does not say."""

    token: str = field(repr=False)
    who: str
    expires_s: float | None

    @classmethod
    def of(cls, text: str, now_s: float) -> Bearer:
        """As it was pasted, `Bearer` before it or not. Raises NoToken."""
        words = text.split()
        if words and words[0].lower() == "bearer":
            del words[0]
        token = "".join(words[:1])
        if len(words) != 1 or any(not "!" <= character <= "~" for character in token):
            raise NoToken("This is no token: it must be one word of letters, digits and signs.")
        claims = _claims(token)
        name, end = claims.get("sub"), claims.get("exp")
        expires_s = float(end) if isinstance(end, (int, float)) and abs(end) < 1e12 else None
        if expires_s is not None and expires_s <= now_s:
            raise NoToken("The token has expired.")
        return cls(token, name[:_NAME_MAX] if isinstance(name, str) and name else SOMEBODY, expires_s)


def _claims(token: str) -> dict[str, Any]:
    """Of a JSON Web Token; of others none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

"""Tokens for SASL/OAUTHBEARER, as Apache Kafka's clients get them by their settings; a new one for each log-in.

| settings | token |
| --- | --- |
| `sasl.oauthbearer.token.endpoint.url=file:///…` | the content of the file (KIP-768) |
| the same with `https://…` or `http://…` | of that server, by the grant of client credentials (RFC 6749, 4.4) |
| neither, and `unsecuredLoginStringClaim_sub` in `sasl.jaas.config` | one without a signature, for development |

Client id, secret and scope are `clientId`, `clientSecret` and `scope` of `sasl.jaas.config`, or from Apache Kafka 4.1
on `sasl.oauthbearer.client.credentials.client.id` and `….client.secret`, and `sasl.oauthbearer.scope`.

Not done: assertions signed by the client (KIP-1139), classes of one's own, token endpoints behind private authorities.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from barnabas.server.network.peers import PeerError
from barnabas.server.security.sasl.client import ClientCredentials
from barnabas.server.security.sasl.oauthbearer import MECHANISM

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
SUBJECT: Final = "unsecuredLoginStringClaim_sub"
LIFETIME_S: Final = 3600
"""Of an unsecured token."""
BYTES_MAX: Final = 64 * 1024
TIMEOUT_S: Final = 10.0

Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[bytes]]
"""The answer to a form that is posted to a URL, with headers. Raises OSError."""


class NoTokens(ValueError):
    """The settings do not say where tokens come from; the text says what is missing."""


def token_source(
    values: Mapping[str, str], options: Mapping[str, str], now: Callable[[], float], post: Post | None = None
) -> Callable[[], Awaitable[ClientCredentials]]:
    """values: the settings; options: those of the login module; now(): seconds since the epoch. Raises NoTokens."""
    url = values.get(ENDPOINT, "")
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme == "file":
        return lambda: _of_file(url)
    if scheme in ("http", "https"):
        named = values.get("sasl.oauthbearer.client.credentials.client.id", options.get("clientId"))
        secret = values.get("sasl.oauthbearer.client.credentials.client.secret", options.get("clientSecret"))
        scope = values.get("sasl.oauthbearer.scope", options.get("scope"))
        if not named or secret is None:
            raise NoTokens("sasl.jaas.config must have clientId and clientSecret, to get tokens with")
        return lambda: _of_server(post or _post_in_thread, url, named, secret, scope)
    if url:
        raise NoTokens(f"{ENDPOINT}={url} is refused: it must begin with file:, https: or http:")
    if SUBJECT not in options:
        raise NoTokens(f"{ENDPOINT} is missing: where tokens come from")
    return lambda: _unsecured(options[SUBJECT], int(now()))


async def _of_file(url: str) -> ClientCredentials:
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    try:
        token = (await trio.to_thread.run_sync(Path(path).read_bytes)).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PeerError(f"the token in {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _bearer(token, f"the token in {path}")


async def _of_server(post: Post, url: str, named: str, secret: str, scope: str | None) -> ClientCredentials:
    fields = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    headers = {
        "Authorization": f"Basic {b64encode(f'{named}:{secret}'.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    try:
        answer = await post(url, urllib.parse.urlencode(fields).encode(), headers)
    except OSError as error:
        raise PeerError(f"no token for client id {named} from {url}: {error}") from None
    try:
        document: Any = json.loads(answer)
        token = document["access_token"]
    except (ValueError, TypeError, KeyError):
        raise PeerError(f"no token for client id {named} from {url}: the answer has no access_token") from None
    return _bearer(str(token), f"client id {named}")


async def _unsecured(subject: str, now_s: int) -> ClientCredentials:
    """Source: RFC 7519, section 6."""
    await trio.lowlevel.checkpoint()
    claims = {"sub": subject, "iat": now_s, "exp": now_s + LIFETIME_S}
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return _bearer(b".".join([*parts, b""]).decode(), subject)


def _bearer(token: str, whose: str) -> ClientCredentials:
    if not token or not token.isascii() or any(not "!" <= character <= "~" for character in token):
        raise PeerError(f"{whose} is no token: it must be printable ASCII without blanks")
    return ClientCredentials(MECHANISM, whose, token)


async def _post_in_thread(url: str, form: bytes, headers: Mapping[str, str]) -> bytes:
    return await trio.to_thread.run_sync(_posted, url, form, headers, abandon_on_cancel=True)


def _posted(url: str, form: bytes, headers: Mapping[str, str]) -> bytes:
    request = urllib.request.Request(url, form, dict(headers))
    context = ssl.create_default_context() if url.startswith("https") else None
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            text: bytes = answer.read(BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"the server answered {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(getattr(error.reason, "strerror", None) or str(error.reason)) from None
    except OSError:
        raise
    except Exception as error:  # http.client's, for what is no HTTP
        raise OSError(type(error).__name__) from None
    if len(text) > BYTES_MAX:
        raise OSError(f"more than {BYTES_MAX} bytes")
    return text

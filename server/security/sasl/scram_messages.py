"""SCRAM's four messages (RFC 5802, section 7), as bytes and values.

    client-first   n,[a=authzid],[m=…,]n=user,r=nonce[,key=value]…
    server-first   r=<client's nonce and ours>,s=<salt>,i=<iterations>
    client-final   c=<channel binding>,r=<both nonces>[,key=value]…,p=<proof>
    server-final   v=<signature>

Names are ASCII, as for Apache Kafka; `,` and `=` in them are written `=2C` and `=3D`. No channel binding: the first
message begins with `n`, and `y` and `p` are refused. What is signed are the bytes as they came, not as we would write
them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = rb"[\x01-\x2b\x2d-\x7f]+"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = rb"[a-zA-Z0-9/+]*={0,2}"
_EXTENSIONS = rb"(?:,[A-Za-z]+=" + _VALUE + rb")*"

_CLIENT_FIRST: Final = re.compile(
    rb"(?P<gs2>n,(?:a=(?P<authzid>" + _NAME + rb"))?,)"
    rb"(?P<bare>(?:m=" + _VALUE + rb",)?n=(?P<name>" + _NAME + rb"),r=(?P<nonce>" + _NONCE + rb")"
    rb"(?P<extensions>" + _EXTENSIONS + rb"))"
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<unproved>c=(?P<channel>" + _BASE64 + rb"),r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb")"
    rb",p=(?P<proof>" + _BASE64 + rb")"
)
_SERVER_FIRST: Final = re.compile(
    rb"(?:m=" + _VALUE + rb",)?r=(?P<nonce>" + _NONCE + rb"),s=(?P<salt>" + _BASE64 + rb"),i=(?P<iterations>[0-9]{1,9})"
    rb"" + _EXTENSIONS
)
_SERVER_FINAL: Final = re.compile(
    rb"(?:e=(?P<error>" + _VALUE + rb")|v=(?P<signature>" + _BASE64 + rb"))" + _EXTENSIONS
)


TOKEN_EXTENSION: Final = "tokenauth"
"""Of client-first: `true` where the name is a delegation token's id (KIP-48)."""


class BadMessage(ValueError):
    """Bytes that are not the message that was expected."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientFirst:
    """`gs2`: the header with the authorization id, `bare`: all behind it, both as received; `user` and `authzid`
    without escapes.
    """

    gs2: bytes
    bare: bytes
    user: str
    nonce: bytes
    authzid: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class ServerFirst:
    """`nonce`: the client's followed by the server's."""

    nonce: bytes
    salt: bytes
    iterations: int

    def encode(self) -> bytes:
        return b"r=%b,s=%b,i=%d" % (self.nonce, base64.b64encode(self.salt), self.iterations)


@dataclass(frozen=True, slots=True, repr=False)
class ClientFinal:
    """`unproved`: all before the proof, as received. `channel`: the channel binding, decoded."""

    unproved: bytes
    channel: bytes
    nonce: bytes
    proof: bytes


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises BadMessage."""
    match = _CLIENT_FIRST.fullmatch(message)
    if match is None:
        raise BadMessage("this is no client-first message of SCRAM")
    extensions: dict[str, str] = {}
    for pair in match["extensions"].split(b",")[1:]:
        key, _, value = pair.partition(b"=")
        extensions[key.decode()] = value.decode()
    authzid = unescape(match["authzid"] or b"")
    return ClientFirst(match["gs2"], match["bare"], unescape(match["name"]), match["nonce"], authzid, extensions)


def parse_client_final(message: bytes) -> ClientFinal:
    """Raises BadMessage."""
    match = _CLIENT_FINAL.fullmatch(message)
    if match is None:
        raise BadMessage("this is no client-final message of SCRAM")
    return ClientFinal(match["unproved"], _decoded(match["channel"]), match["nonce"], _decoded(match["proof"]))


def parse_server_first(message: bytes) -> ServerFirst:
    """Raises BadMessage."""
    match = _SERVER_FIRST.fullmatch(message)
    if match is None:
        raise BadMessage("this is no server-first message of SCRAM")
    return ServerFirst(match["nonce"], _decoded(match["salt"]), int(match["iterations"]))


def parse_server_final(message: bytes) -> bytes:
    """The server's signature. Raises BadMessage, also for an error that the server names."""
    match = _SERVER_FINAL.fullmatch(message)
    if match is None or match["signature"] is None:
        raise BadMessage("the server refuses" if match else "this is no server-final message of SCRAM")
    return _decoded(match["signature"])


def escape(name: str) -> bytes:
    """A name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def unescape(name: bytes) -> str:
    """The name again, of bytes that the grammar has let through."""
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise BadMessage("a part is not base64") from None

"""An honest log-in, beside the others: SCRAM over plain TCP or TLS, and one request then."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import ssl
import struct
import time
from typing import Any

from barnabas.kproto import ApiKey, decode, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from compat_tests.fuzz.honest import Wronged
from compat_tests.fuzz.strangers.talk import PASSWORD, SERVER_FIRST, USER

SECONDS = 30.0


def log_in(address: tuple[str, int], client: ssl.SSLContext | None = None, nonce: bytes = b"honest") -> float:
    """How long it took, with the connection and an answer. client: of TLS, if that is spoken. Raises Wronged."""
    begun = time.monotonic()
    try:
        sock: socket.socket = socket.create_connection(address, SECONDS)
        if client is not None:
            sock = client.wrap_socket(sock, server_hostname="localhost")
        with sock:
            _served(sock, nonce)
    except (OSError, EOFError) as error:
        raise Wronged(f"a log-in was not answered within {time.monotonic() - begun:.1f} s: {error!r}") from error
    return time.monotonic() - begun


def _served(sock: socket.socket, nonce: bytes) -> None:
    _ask(sock, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    bare = b"n=%s,r=%s" % (USER.encode(), nonce)
    answer = _ask(sock, SaslAuthenticateRequest(auth_bytes=b"n,," + bare), 2)
    found = SERVER_FIRST.fullmatch(answer.auth_bytes)
    if found is None:
        raise Wronged(f"the first answer of a log-in is {answer}")
    plain = b"c=biws,r=" + found[1]
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(found[2]), int(found[3]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), b",".join((bare, found[0], plain)), "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    answer = _ask(sock, SaslAuthenticateRequest(auth_bytes=plain + b",p=" + base64.b64encode(proof)), 2)
    if answer.error_code or not re.match(rb"v=", answer.auth_bytes):
        raise Wronged(f"a right log-in is answered with {answer}")
    if not _ask(sock, MetadataRequest(topics=[]), 9).brokers:
        raise Wronged("whoever has logged in sees no broker")


def _ask(sock: socket.socket, request: Any, version: int) -> Any:
    key = ApiKey(request.__description__.api_key)
    sock.sendall(request_frame(version, 1, "honest", request))
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    frame = _exactly(sock, size)
    _, offset = parse_response_header(key, version, frame)
    return decode(response_class(key), version, frame, offset)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError("closed by the broker")
        data += piece
    return bytes(data)

"""What strangers say. A visit is a listener and a script: a generator that yields what is sent next and is given what
came back, or nothing after a while.

Scripts know the protocol well enough to get far: mechanisms that are offered, users that there are, proofs of SCRAM
that are right, tokens that are signed. Then something is wrong, or comes twice, or at another time, or for another one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import re
import ssl
import struct
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from compat_tests.fuzz.damage import damaged, damaged_frame

USER, PASSWORD = "alice", "secret-of-alice"
PLAIN, SCRAM_256, SCRAM_512, OAUTH = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512, OAUTH)
STRANGE_MECHANISMS = ("GSSAPI", "", "plain", "PLAIN\0", "ß", "x" * 32_000, "SCRAM-SHA-1", "EXTERNAL", "PLAIN ")
SERVER_FIRST = re.compile(rb"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d+)")
TOKEN_BYTES = (0, 1, 100, 5_000, 70_000, 524_000, 600_000)
REPEATED_MAX = 50

Script = Generator[bytes, bytes, None]


class Visit(NamedTuple):
    """`listener`: by its protocol. `through_tls`: after a handshake that is right."""

    listener: str
    through_tls: bool
    script: Script


class Talker:
    """See the module. `tokens`: of OAUTHBEARER, right and wrong ones. `hello`: how a TLS client begins."""

    def __init__(self, rng: random.Random, tokens: Sequence[bytes]) -> None:
        self._rng = rng
        self._tokens = list(tokens)
        self._hello = client_hello()
        self._overheard: deque[bytes] = deque(maxlen=REPEATED_MAX)
        self._id = 0

    def visit(self) -> Visit:
        """Of the next connection."""
        rng = self._rng
        if rng.random() < 0.2:
            return Visit(rng.choice(("SSL", "SASL_SSL")), False, self._records())
        if rng.random() < 0.05:
            return Visit("SASL_SSL", True, self._log_in())
        return Visit("SASL_PLAINTEXT", False, self._log_in())

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def _records(self) -> Script:
        """Bytes for a port where TLS is expected."""
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 5))):
            match rng.randrange(8):
                case 0:
                    yield rng.randbytes(rng.choice((1, 5, 100, 5000)))
                case 1:
                    yield damaged(rng, self._hello)
                case 2:
                    yield self._hello[: rng.randrange(1, len(self._hello))]
                case 3:
                    kind = rng.choice((20, 21, 22, 22, 23, 24, 0x80))
                    length = rng.choice((0, 1, 4, 100, 16_384, 16_385, 65_535))
                    body = rng.randbytes(min(length, rng.choice((0, 4, 1000, 70_000))))
                    yield struct.pack(">BHH", kind, rng.choice((0x300, 0x301, 0x303, 0x304, 0xFFFF)), length) + body
                case 4:
                    yield b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
                case 5:
                    yield self._api_versions()
                case 6:
                    yield self._hello
                    yield rng.choice(
                        (rng.randbytes(200), self._hello, b"\x14\x03\x03\0\1\1", b"\x15\x03\x03\0\2\2\x28")
                    )
                case _:
                    # A handshake message that promises 16 MB, in many records.
                    yield b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + b"\x16\x03\x01\x40\x00" + bytes(16_384)

    # -- log-ins -----------------------------------------------------------------------------------------------------

    def _log_in(self) -> Script:
        rng = self._rng
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                yield from self._in_order(harm=0.0 if rng.random() < 0.3 else 0.3)
            case 4 | 5 | 6:
                yield from self._in_any_order()
            case 7:
                yield from self._without_headers()
            case 8:
                yield from self._lengths()
            case _:
                yield rng.randbytes(rng.choice((1, 4, 30, 3000)))

    def _in_order(self, harm: float) -> Script:
        """As a client does it, each step damaged with the probability `harm`."""
        rng = self._rng
        if rng.random() < 0.5:
            yield self._harmed(self._api_versions(), harm)
        mechanism = rng.choice(MECHANISMS)
        yield self._harmed(self._handshake(mechanism, 1), harm)
        token, then = self._first(mechanism)
        version = rng.choice((0, 1, 2))
        while True:
            answer = yield self._harmed(self._authenticate(self._harmed_token(token, harm), version), harm)
            following = then(answer)
            if following is None:
                break
            token = following
        if rng.random() < 0.3:
            yield self._harmed(self._authenticate(token, version), harm)

    def _in_any_order(self) -> Script:
        rng = self._rng
        for _ in range(rng.randrange(1, 7)):
            match rng.randrange(6):
                case 0:
                    frame = self._api_versions()
                case 1 | 2:
                    frame = self._handshake(rng.choice(MECHANISMS + STRANGE_MECHANISMS), rng.choice((0, 1, 1)))
                case 3:
                    frame = self._authenticate(self._any_token(), rng.choice((0, 1, 2)))
                case 4:
                    frame = self._other_api()
                case _:
                    frame = damaged_frame(rng, self._handshake(PLAIN, 1))
            yield frame

    def _without_headers(self) -> Script:
        """The oldest form: after SaslHandshake 0 bare tokens follow."""
        rng = self._rng
        mechanism = rng.choice(MECHANISMS)
        yield self._handshake(mechanism, 0)
        token, then = self._first(mechanism)
        while True:
            answer = yield _framed(self._harmed_token(token, 0.3))
            following = then(answer)
            if following is None:
                return
            token = following

    def _lengths(self) -> Script:
        """Frames that promise something else than they hold."""
        rng = self._rng
        promise = rng.choice((-1, 0, 1, 7, 524_288, 524_289, 104_857_600, 2**31 - 1, -(2**31)))
        yield struct.pack(">i", promise) + rng.randbytes(rng.choice((0, 1, 8, 1000, 100_000)))
        for _ in range(rng.randrange(3)):
            yield rng.randbytes(rng.choice((1, 1000)))

    # -- frames ------------------------------------------------------------------------------------------------------

    def _api_versions(self) -> bytes:
        rng = self._rng
        request = ApiVersionsRequest(
            client_software_name=rng.choice(("a", "-", "x" * 5000)), client_software_version="1"
        )
        return self._request(request, rng.choice((0, 1, 2, 3, 4)))

    def _handshake(self, mechanism: str, version: int) -> bytes:
        return self._request(SaslHandshakeRequest(mechanism=mechanism), version)

    def _authenticate(self, token: bytes, version: int) -> bytes:
        return self._request(SaslAuthenticateRequest(auth_bytes=token), version)

    def _request(self, request: object, version: int) -> bytes:
        self._id += 1
        return bytes(request_frame(version, self._id, self._rng.choice((None, "", "client", "x" * 200)), request))

    def _other_api(self) -> bytes:
        """Its key and version, then anything."""
        rng = self._rng
        key = rng.choice((*ApiKey, -1, 32_767))
        return _framed(
            struct.pack(">hhi", int(key), rng.choice((0, 3, 9, -1, 99)), 1) + rng.randbytes(rng.choice((0, 2, 60)))
        )

    def _harmed(self, frame: bytes, harm: float) -> bytes:
        return damaged_frame(self._rng, frame) if self._rng.random() < harm else frame

    # -- tokens ------------------------------------------------------------------------------------------------------

    def _harmed_token(self, token: bytes, harm: float) -> bytes:
        rng = self._rng
        if rng.random() >= harm:
            return token
        if rng.random() < 0.2:
            return self._any_token()
        return damaged(rng, token)

    def _any_token(self) -> bytes:
        rng = self._rng
        match rng.randrange(4):
            case 0:
                return self._first(rng.choice(MECHANISMS))[0]
            case 1 if self._overheard:
                return rng.choice(self._overheard)
            case 2:
                return rng.randbytes(1) * rng.choice(TOKEN_BYTES)
            case _:
                return rng.randbytes(rng.choice((0, 1, 30, 2000)))

    def _first(self, mechanism: str) -> tuple[bytes, Callable[[bytes], bytes | None]]:
        """The first token of a mechanism, and what follows upon an answer."""
        if mechanism == PLAIN:
            return self._plain(), lambda answer: None
        if mechanism == OAUTH:
            bearer = self._rng.choice(self._tokens) if self._tokens else b""
            said = b"n,%s,\x01auth=%s %s\x01%s\x01" % (
                self._rng.choice((b"", b"", b"a=alice", b"a=bob", b"a=" + b"x" * 3000)),
                self._rng.choice((b"Bearer", b"bearer", b"Basic", b"")),
                bearer if self._rng.random() < 0.7 else damaged(self._rng, bearer),
                self._rng.choice((b"", b"", b"k=v\x01", b"k=\xff\x01", b"=\x01", b"k=v\x01" * 500)),
            )
            return said, lambda answer: b"\x01" if b"invalid_token" in answer else None
        scram = _Scram(self._rng, mechanism)

        def then(answer: bytes) -> bytes | None:
            final = scram.final(answer)
            if final is not None:
                self._overheard.extend((scram.first, final))
            return final

        return scram.first, then

    def _plain(self) -> bytes:
        rng = self._rng
        user = rng.choice((USER, USER, "bob", "nobody", "", "ß" * 100, "x" * 10_000)).encode()
        password = rng.choice((PASSWORD, "wrong", "", "\0", "y" * 100_000)).encode()
        authorized = rng.choice((b"", b"", user, b"admin", b"\xff"))
        return rng.choice((b"\0", b"\0", b"\0", b"", b"\0\0")).join((authorized, user, password))


class _Scram:
    """One log-in, mostly by the rules."""

    def __init__(self, rng: random.Random, mechanism: str) -> None:
        self._hash = hashlib.sha256 if mechanism == SCRAM_256 else hashlib.sha512
        self._right = rng.random() < 0.5
        nonce = rng.choice((b"%x" % rng.getrandbits(128), b"", b"n" * 100_000, b"with,comma", b"\xff"))
        if self._right:
            nonce = b"%x" % rng.getrandbits(128)
        user = USER.encode() if self._right else rng.choice((b"nobody", b"=2C", b"=", b"a,b", b"", b"x" * 20_000))
        flag = b"n,," if self._right else rng.choice((b"n,,", b"y,,", b"p=tls-unique,,", b"n,a=bob,", b"", b"x"))
        extra = b"" if self._right else rng.choice((b"", b",m=1", b",tokenauth=true", b",x=" + b"y" * 5000))
        self._bare = b"n=%s,r=%s%s" % (user, nonce, extra)
        self.first = flag + self._bare

    def final(self, answer: bytes) -> bytes | None:
        """With the right proof, if this log-in is to be right so far."""
        found = SERVER_FIRST.search(answer)
        if found is None:
            return None
        server_first, (nonce, salt, count) = found[0], found.groups()
        plain = b"c=biws,r=" + nonce
        iterations = min(int(count), 5000) if self._right else 1
        salted = hashlib.pbkdf2_hmac(self._hash().name, PASSWORD.encode(), base64.b64decode(salt), iterations)
        key = hmac.digest(salted, b"Client Key", self._hash)
        said = b",".join((self._bare, server_first, plain))
        signature = hmac.digest(self._hash(key).digest(), said, self._hash)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return plain + b",p=" + base64.b64encode(proof)


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def client_hello() -> bytes:
    """What a TLS client says first."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()

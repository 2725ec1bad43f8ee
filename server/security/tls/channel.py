"""One end of one TLS connection, without IO: ciphertext in and out on one side, plaintext on the other.

The caller passes in received bytes (`feed`), takes plaintext (`read_into`) until there is none, and sends what is in
`outgoing`, which also has the handshake, alerts and key updates; so there may be something to send after any call.
`write` encrypts immediately, and grows `outgoing` by as much: pass no more than the socket will take.

Raises `TlsError` when the peer does not keep to TLS or shows no certificate that is trusted. What is outgoing then, an
alert, is worth sending before the connection is closed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, cast

WRITE_BYTES_MAX: Final = 64 * 1024
"""So much plaintext is worth handing over at once: four records."""
_ReadInto = Callable[[int, memoryview], int]


class TlsError(Exception):
    """The connection has failed; the text says why, for the log."""


class TlsChannel:
    """context: of a listener, or of a client. server_name: None at the server's end; else the host name to send (SNI),
    and to verify with a context that checks names.
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "is_open", "peer_closed")

    def __init__(self, context: ssl.SSLContext, *, server_name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        is_client = context.protocol == ssl.PROTOCOL_TLS_CLIENT
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=not is_client,
            server_hostname=server_name if is_client else None,
        )
        self.is_open = False
        self.peer_closed = False

    def feed(self, data: memoryview | bytes) -> None:
        """Ciphertext that arrived. Advances the handshake; `is_open` says when it is over. Raises TlsError."""
        self._incoming.write(data)
        if not self.is_open:
            self.shake_hands()

    def feed_end(self) -> None:
        """No more will arrive."""
        self._incoming.write_eof()

    def shake_hands(self) -> None:
        """Begin or continue the handshake. Raises TlsError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise TlsError(_said(error)) from None
        self.is_open = True

    @property
    def may_have_data(self) -> bool:
        """False: a read would be in vain, which costs an exception."""
        return bool(self._incoming.pending or self._tls.pending())

    def read_into(self, target: memoryview) -> int:
        """Plaintext that has arrived, as much as there is room for; 0: no more for now, or ever (`peer_closed`). Raises
        TlsError.
        """
        if not self.is_open:
            return 0
        # With a buffer it returns a count, contrary to its type; one record at a time, whatever room there is.
        read, incoming = cast(_ReadInto, self._tls.read), self._incoming
        filled, room = 0, len(target)
        try:
            while True:
                size = read(room - filled, target[filled:])
                filled += size
                if filled == room or not incoming.pending or not size:
                    self.peer_closed = not size
                    return filled
        except ssl.SSLWantReadError:
            return filled
        except ssl.SSLZeroReturnError:
            self.peer_closed = True
            return filled
        except ssl.SSLError as error:
            raise TlsError(_said(error)) from None

    def write(self, data: memoryview | bytes) -> None:
        """Encrypt all of it. Raises TlsError."""
        write, left = self._tls.write, data
        try:
            while left:
                done = write(left)
                if done == len(left):
                    return
                left = memoryview(left)[done:]
        except ssl.SSLError as error:
            raise TlsError(_said(error)) from None

    @property
    def outgoing_bytes(self) -> int:
        """Ciphertext that is to be sent."""
        return self._outgoing.pending

    def outgoing(self) -> bytes:
        """Take all of it."""
        return self._outgoing.read()

    def close(self) -> None:
        """Notify the peer that no more will come, by an alert in `outgoing`."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # it has not said the same yet, or the connection has failed

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer has shown, in DER."""
        return self._tls.getpeercert(binary_form=True) if self.is_open else None

    @property
    def version(self) -> str:
        """`TLSv1.3`."""
        return self._tls.version() or ""

    @property
    def cipher(self) -> str:
        """As OpenSSL names it."""
        chosen = self._tls.cipher()
        return chosen[0] if chosen else ""


def _said(error: Exception) -> str:
    """OpenSSL's reason in words, without its place in the source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)

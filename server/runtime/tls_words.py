"""Why TLS with a broker could not begin, in words: OpenSSL's name its source files, and say the same of a listener
without TLS as of a torn connection.
"""

from __future__ import annotations

import re
import ssl

_NO_TLS = "is this a listener without TLS?"


def why_no_tls(error: BaseException) -> str:
    """error: what `ssl` or the socket below raised in the handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, (ssl.SSLEOFError, ConnectionResetError)):
        return f"it closed the connection; {_NO_TLS}"
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
            return f"it does not answer with TLS; {_NO_TLS}"
        text = re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", error.strerror or str(error))
        return text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__

"""TLS to other brokers: a `Connect` that encrypts the streams of another one."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from barnabas.server.network.peers import Connect, PeerError, PeerRefused
from barnabas.server.runtime.tls_words import why_no_tls

if TYPE_CHECKING:
    from barnabas.replication import Endpoint

_BELOW: Final = {"SSL": "PLAINTEXT", "SASL_SSL": "SASL_PLAINTEXT"}
"""The security protocols with TLS."""


def encrypted(connect: Connect, current_context: Callable[[], ssl.SSLContext]) -> Connect:
    """Connects with `connect`, then starts TLS with endpoints that have SSL or SASL_SSL. Their certificates must name
    the advertised host, if the context checks names.
    """

    async def connect_encrypted(endpoint: Endpoint) -> trio.abc.Stream:
        if endpoint.security_protocol not in _BELOW:
            return await connect(endpoint)
        stream = await connect(replace(endpoint, security_protocol=_BELOW[endpoint.security_protocol]))
        secured = trio.SSLStream(stream, current_context(), server_hostname=endpoint.host, https_compatible=True)
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(stream)
            why = why_no_tls(error.__cause__ or error)
            kind = PeerRefused if isinstance(error.__cause__, ssl.SSLCertVerificationError) else PeerError
            raise kind(f"TLS with {endpoint.host}:{endpoint.port} failed: {why}") from None
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secured

    return connect_encrypted

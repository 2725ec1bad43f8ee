"""What `ssl.…` settings mean, as contexts of OpenSSL: one for the listeners' end, one for the end that connects.

A context is replaced as a whole when settings or files change; connections keep the one they began with.

Java's settings without a counterpart in OpenSSL (provider, algorithms of key and trust managers, source of randomness)
have no effect, and the table of settings says so. Cipher suites have their IANA names, as in Java; those of TLS 1.3
cannot be chosen in Python, and are all there while TLS 1.3 is.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from barnabas.server.security.tls.stores import BadStore, Identity, Values, read_identity, read_trust

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}
"""Of TLS 1.2: by IANA's name, OpenSSL's."""
CIPHERS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Those of one listener, or of a connection to a broker. stores: the values of `ssl.keystore.…`,
    `ssl.truststore.…` and `ssl.key.password`. versions: of `ssl.enabled.protocols`; cipher_suites: IANA's names, empty
    for all. client_auth: none, requested or required. checks_names: whether a broker's certificate has to name the
    address that was connected to (`ssl.endpoint.identification.algorithm` is https).
    """

    stores: Values
    versions: Sequence[str] = tuple(VERSIONS)
    cipher_suites: Sequence[str] = ()
    client_auth: str = "none"
    checks_names: bool = True


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For those who connect to us. Raises BadStore."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = read_identity(settings.stores)
    if identity is None:
        raise BadStore("ssl.keystore.location", "is missing: a listener with TLS needs a certificate and its key")
    _set_up(context, settings, identity)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _trust(context, settings)
    # Apache Kafka refuses it, too; it lets a client have us do handshake after handshake.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # No sessions to resume: every handshake checks the certificates, which may have expired since the last one.
    context.num_tickets = 0
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections to other brokers. Raises BadStore."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_names
    _set_up(context, settings, read_identity(settings.stores))
    _trust(context, settings)
    return context


def without_effect(cipher_suites: Sequence[str]) -> list[str]:
    """The suites of a list that OpenSSL is not asked for."""
    return [name for name in cipher_suites if name not in CIPHERS and name not in CIPHERS_1_3]


def _set_up(context: ssl.SSLContext, settings: TlsSettings, identity: Identity | None) -> None:
    wanted = [version for name, version in VERSIONS.items() if name in settings.versions]
    if not wanted:
        raise BadStore("ssl.enabled.protocols", f"names none of {', '.join(VERSIONS)}")
    context.minimum_version, context.maximum_version = wanted[0], wanted[-1]
    if settings.cipher_suites:
        chosen = [CIPHERS[name] for name in settings.cipher_suites if name in CIPHERS]
        if chosen:
            context.set_ciphers(":".join(chosen))
        elif not any(name in CIPHERS_1_3 for name in settings.cipher_suites):
            known = ", ".join((*CIPHERS_1_3, *CIPHERS))
            raise BadStore("ssl.cipher.suites", f"names no suite that is known here: {known}")
        elif wanted[-1] != ssl.TLSVersion.TLSv1_3:
            raise BadStore("ssl.cipher.suites", "names none for TLSv1.2, and TLSv1.3 is not spoken")
        else:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
    if identity is not None:
        _show(context, identity)


def _show(context: ssl.SSLContext, identity: Identity) -> None:
    """Python loads keys from files only."""
    password = "" if identity.password is None else identity.password  # without one OpenSSL would ask at the terminal
    with _file_of(identity.key + b"\n" + identity.chain) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            raise BadStore("ssl.keystore.location", _why_not(error)) from None


def _why_not(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "holds a private key that does not belong to its certificate"
    return "holds a private key that cannot be read: it is damaged, or its password is missing or another one"


@contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """A private file, in memory where the system has such files, for as long as it is open."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("identity"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as named:
        named.write(data)
        named.flush()
        yield named.name


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    trusted = read_trust(settings.stores)
    if trusted is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=trusted.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise BadStore("ssl.truststore.location", "holds a certificate that is damaged") from None

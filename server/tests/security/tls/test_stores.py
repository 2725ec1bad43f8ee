"""Key stores and trust stores in all forms, what is wrong with them, and the contexts that they become."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12PrivateKeyTypes, serialize_key_and_certificates

from barnabas.server.security.tls.channel import TlsChannel, TlsError
from barnabas.server.security.tls.contexts import TlsSettings, client_context, server_context, without_effect
from barnabas.server.security.tls.stores import BadStore, files, read_identity, read_trust

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("localhost")
KEY = ISSUED.private_key_pem.bytes()
CHAIN = b"".join(pem.bytes() for pem in ISSUED.cert_chain_pems)
TRUSTED = AUTHORITY.cert_pem.bytes()

Values = dict[str, str | None]


def _private_key() -> PKCS12PrivateKeyTypes:
    key = load_pem_private_key(KEY, None)
    assert not isinstance(key, tuple)
    return key  # type: ignore[return-value]


def _encrypted(password: bytes) -> bytes:
    return _private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))


def _inline(**others: str) -> Values:
    named = {f"ssl.keystore.{name.replace('_', '.')}": value for name, value in others.items()}
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": KEY.decode(),
        "ssl.keystore.certificate.chain": CHAIN.decode(),
        **named,
    }


def _pem_file(folder: Path) -> Values:
    path = folder / "both.pem"
    path.write_bytes(CHAIN + KEY)
    return {"ssl.keystore.location": str(path), "ssl.keystore.type": "PEM"}


def _pkcs12_file(folder: Path) -> Values:
    # keytool writes PKCS12 whatever the file is called, and JKS is the type unless another is set.
    path = folder / "store.jks"
    certificate = x509.load_pem_x509_certificate(CHAIN)
    path.write_bytes(
        serialize_key_and_certificates(b"me", _private_key(), certificate, None, BestAvailableEncryption(b"secret"))
    )
    return {"ssl.keystore.location": str(path), "ssl.keystore.type": "JKS", "ssl.keystore.password": "secret"}


def _trust_inline(_: Path) -> Values:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": TRUSTED.decode()}


def _trust_pem(folder: Path) -> Values:
    (folder / "trust.pem").write_bytes(b"what people write above\n" + TRUSTED)
    return {"ssl.truststore.location": str(folder / "trust.pem"), "ssl.truststore.type": "PEM"}


def _trust_pkcs12(folder: Path) -> Values:
    certificate = x509.load_pem_x509_certificate(TRUSTED)
    data = serialize_key_and_certificates(None, None, None, [certificate], BestAvailableEncryption(b"secret"))
    (folder / "trust.p12").write_bytes(data)
    return {"ssl.truststore.location": str(folder / "trust.p12"), "ssl.truststore.password": "secret"}


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> TlsChannel:
    """The server's end."""
    ends = TlsChannel(server), TlsChannel(client, server_name="localhost")
    ends[1].shake_hands()
    while any(end.outgoing_bytes for end in ends):
        for at, end in enumerate(ends):
            ends[1 - at].feed(end.outgoing())
    assert ends[0].is_open
    return ends[0]


@pytest.mark.parametrize("keys", [lambda _: _inline(), _pem_file, _pkcs12_file])
@pytest.mark.parametrize("trust", [_trust_inline, _trust_pem, _trust_pkcs12])
def test_each_form_of_store_makes_a_connection(
    keys: Callable[[Path], Values], trust: Callable[[Path], Values], tmp_path: Path
) -> None:
    stores = {**keys(tmp_path), **trust(tmp_path)}
    settings = TlsSettings(stores, client_auth="required")
    server_end = _shake_hands(server_context(settings), client_context(settings))
    assert server_end.peer_certificate is not None
    assert all(path.exists() for path in files(stores))


def test_a_key_may_be_encrypted() -> None:
    stores = {**_inline(key=_encrypted(b"geheim").decode()), "ssl.key.password": "geheim", **_trust_inline(Path())}
    _shake_hands(server_context(TlsSettings(stores)), client_context(TlsSettings(_trust_inline(Path()))))


def test_without_a_key_store_there_is_no_identity_and_no_listener() -> None:
    assert read_identity({}) is None
    assert read_trust({}) is None
    with pytest.raises(BadStore, match="a listener with TLS needs a certificate") as bad:
        server_context(TlsSettings({}))
    assert bad.value.key == "ssl.keystore.location"


def _read_both(values: Values) -> None:
    read_identity(values)
    read_trust(values)


@pytest.mark.parametrize(
    ("values", "key", "complaint"),
    [
        (_inline(location="x.pem"), "ssl.keystore.location", "takes its place"),
        (_inline(password="x"), "ssl.keystore.password", "takes its place"),
        (_inline(type="JKS"), "ssl.keystore.type", "is JKS, but ssl.keystore.key is for PEM"),
        ({**_inline(), "ssl.keystore.key": None}, "ssl.keystore.key", "is missing"),
        ({**_inline(), "ssl.keystore.certificate.chain": None}, "ssl.keystore.certificate.chain", "is missing"),
        (_inline(key="none"), "ssl.keystore.key", "has no private key"),
        (_inline(certificate_chain="none"), "ssl.keystore.certificate.chain", "has no certificate"),
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password", "without ssl.keystore.location"),
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location", "cannot be read: No such file"),
        ({"ssl.truststore.password": "x"}, "ssl.truststore.password", "without ssl.truststore.location"),
        ({"ssl.truststore.certificates": "x", "ssl.truststore.type": "PEM"}, "ssl.truststore.certificates", "no cert"),
        ({"ssl.truststore.certificates": "x", "ssl.truststore.type": "JKS"}, "ssl.truststore.type", "is for PEM"),
    ],
)
def test_settings_that_do_not_go_together_are_named(values: Values, key: str, complaint: str) -> None:
    with pytest.raises(BadStore, match=complaint) as bad:
        _read_both(values)
    assert bad.value.key == key
    assert "PRIVATE" not in str(bad.value).replace("BEGIN PRIVATE KEY", "")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", r"keytool -importkeystore -srckeystore \S+ -destkeystore s.p12"),
        (b"", "neither PEM nor PKCS12"),
        (b"hello", "neither PEM nor PKCS12"),
        (b"\x30\x82\x01\x01", "no PKCS12 store, or its password is another one"),
        (CHAIN, "has no private key"),
    ],
)
def test_files_that_are_something_else_are_named(data: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jks"
    path.write_bytes(data)
    password = {} if data == CHAIN else {"ssl.keystore.password": "x"}
    with pytest.raises(BadStore, match=complaint):
        read_identity({"ssl.keystore.location": str(path), **password})


def test_passwords_of_files(tmp_path: Path) -> None:
    right = _pkcs12_file(tmp_path)
    for wrong in ({"ssl.keystore.password": "x"}, {"ssl.keystore.password": None}):
        with pytest.raises(BadStore, match="password"):
            read_identity({**right, **wrong})
    with pytest.raises(BadStore, match="has no meaning for PEM"):
        read_identity({**_pem_file(tmp_path), "ssl.keystore.password": "x"})


@pytest.mark.parametrize(
    ("stores", "complaint"),
    [
        ({**_inline(key=_encrypted(b"geheim").decode())}, "cannot be read: it is damaged, or its password"),
        ({**_inline(key=_encrypted(b"geheim").decode()), "ssl.key.password": "x"}, "or its password is missing or"),
        (_inline(key=AUTHORITY.issue_cert("x").private_key_pem.bytes().decode()), "does not belong to its certificate"),
    ],
)
def test_keys_that_cannot_be_used_are_named(stores: Values, complaint: str) -> None:
    with pytest.raises(BadStore, match=complaint):
        server_context(TlsSettings(stores))


def test_a_damaged_trust_store_is_named() -> None:
    damaged = TRUSTED.decode().replace("MII", "AAA", 1)
    stores: Values = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": damaged}
    with pytest.raises(BadStore, match="damaged"):
        client_context(TlsSettings(stores))


def test_versions_and_suites_are_those_that_are_set() -> None:
    stores = {**_inline(), **_trust_inline(Path())}
    suite = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    old = TlsSettings(stores, versions=("TLSv1.2",), cipher_suites=suite)
    end = _shake_hands(server_context(old), client_context(TlsSettings(stores)))
    assert end.version == "TLSv1.2"
    assert "CHACHA20" in end.cipher
    new = TlsSettings(stores, cipher_suites=("TLS_AES_256_GCM_SHA384",))
    assert server_context(new).minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(TlsError, match=r"protocol version|unsupported protocol"):
        _shake_hands(server_context(new), client_context(old))
    with pytest.raises(BadStore, match="names no suite that is known"):
        server_context(TlsSettings(stores, cipher_suites=("SSL_RSA_WITH_RC4_128_MD5",)))
    with pytest.raises(BadStore, match="names none of"):
        server_context(TlsSettings(stores, versions=("TLSv1",)))
    assert without_effect(("TLS_AES_256_GCM_SHA384", "X", *suite)) == ["X"]


def test_an_expired_certificate_is_not_accepted() -> None:
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    expired = AUTHORITY.issue_cert("localhost", not_before=past, not_after=past + datetime.timedelta(days=1))
    stores = _inline(
        key=expired.private_key_pem.bytes().decode(),
        certificate_chain=expired.cert_chain_pems[0].bytes().decode(),
    )
    with pytest.raises(TlsError, match="certificate has expired"):
        _shake_hands(server_context(TlsSettings(stores)), client_context(TlsSettings(_trust_inline(Path()))))


def test_names_are_checked_unless_that_is_turned_off() -> None:
    other = AUTHORITY.issue_cert("example.org")
    stores = _inline(
        key=other.private_key_pem.bytes().decode(), certificate_chain=other.cert_chain_pems[0].bytes().decode()
    )
    server = server_context(TlsSettings(stores))
    with pytest.raises(TlsError, match="not accepted"):
        _shake_hands(server, client_context(TlsSettings(_trust_inline(Path()))))
    _shake_hands(server, client_context(TlsSettings(_trust_inline(Path()), checks_names=False)))


def test_an_identity_does_not_print_its_key() -> None:
    identity = read_identity(_inline())
    assert "PRIVATE" not in repr(identity)

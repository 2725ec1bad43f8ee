"""Key stores and trust stores: certificates and private keys as settings hold them, made into PEM.

PEM in a setting's value, PEM in a file (key and chain in one, in any order), PKCS12 (`keytool`'s default, whatever the
file's name). A file's first bytes decide what it is; the `type` that is set has to agree only where Apache Kafka
insists on it. JKS, Java's old format, is rejected with the command that converts it.

PKCS12 needs the package `cryptography` (the extra `tls`); PEM needs nothing.

Messages name settings and files, never what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from ssl import PEM_cert_to_DER_cert
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

PEM: Final = "PEM"
_PKCS12_MAGIC: Final = 0x30
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.*?-----END (?:TRUSTED |X509 )?CERTIFICATE-----", re.DOTALL
)
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL)
_KEYSTORE: Final = "ssl.keystore."
_TRUSTSTORE: Final = "ssl.truststore."

Values = Mapping[str, str | None]
"""The values of `ssl.…` settings, without a listener's prefix."""


class BadStore(ValueError):
    """A setting of a store that cannot be used. key: its name, without a listener's prefix; the text says why."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """The identity of one end: certificate chain (the end's own first) and private key in PEM, and the key's password.
    Not for printing.
    """

    chain: bytes
    key: bytes
    password: str | None = None

    @property
    def certificate(self) -> bytes:
        """The end's own, in DER. Raises ValueError."""
        first = _CERTIFICATE.search(self.chain)
        assert first is not None
        return PEM_cert_to_DER_cert(first[0].decode("ascii"))


def read_identity(values: Values) -> Identity | None:
    """The key store that is set; None: none. Reads its file. Raises BadStore."""
    chain, key = values.get(f"{_KEYSTORE}certificate.chain"), values.get(f"{_KEYSTORE}key")
    location, password = values.get(f"{_KEYSTORE}location"), values.get(f"{_KEYSTORE}password")
    key_password = values.get("ssl.key.password")
    if key is not None or chain is not None:
        _insist_on_pem(_KEYSTORE, "key" if key is not None else "certificate.chain", values)
        if key is None or chain is None:
            given, missing = ("certificate.chain", "key") if key is None else ("key", "certificate.chain")
            raise BadStore(f"{_KEYSTORE}{missing}", f"is missing: {_KEYSTORE}{given} is set, and both are needed")
        return Identity(
            b"\n".join(_certificates(chain.encode(), f"{_KEYSTORE}certificate.chain")),
            _private_key(key.encode(), f"{_KEYSTORE}key"),
            key_password,
        )
    if location is None:
        if password is not None:
            raise BadStore(f"{_KEYSTORE}password", f"is set without {_KEYSTORE}location")
        return None
    where = f"{_KEYSTORE}location"
    data = _read(where, location)
    if _is_pem(data):
        if password is not None:
            raise BadStore(f"{_KEYSTORE}password", "has no meaning for PEM; a key's password is ssl.key.password")
        return Identity(b"\n".join(_certificates(data, where)), _private_key(data, where), key_password)
    _refuse_jks(where, location, data)
    if password is None:
        raise BadStore(f"{_KEYSTORE}password", f"is missing: {location} is a PKCS12 key store")
    return _identity_of_pkcs12(where, location, data, password)


def read_trust(values: Values) -> bytes | None:
    """The certificates that are trusted, in PEM; None: no trust store is set. Reads its file. Raises BadStore."""
    certificates = values.get(f"{_TRUSTSTORE}certificates")
    location, password = values.get(f"{_TRUSTSTORE}location"), values.get(f"{_TRUSTSTORE}password")
    if certificates is not None:
        _insist_on_pem(_TRUSTSTORE, "certificates", values)
        return b"\n".join(_certificates(certificates.encode(), f"{_TRUSTSTORE}certificates"))
    if location is None:
        if password is not None:
            raise BadStore(f"{_TRUSTSTORE}password", f"is set without {_TRUSTSTORE}location")
        return None
    where = f"{_TRUSTSTORE}location"
    data = _read(where, location)
    if _is_pem(data):
        if password is not None:
            raise BadStore(f"{_TRUSTSTORE}password", "has no meaning for PEM")
        return b"\n".join(_certificates(data, where))
    _refuse_jks(where, location, data)
    return _trust_of_pkcs12(where, location, data, password)


def is_pem(values: Values, store: str) -> bool:
    """Whether there is a file that is PEM. store: `ssl.keystore.` or `ssl.truststore.`. Raises BadStore."""
    location = values.get(f"{store}location")
    return location is not None and _is_pem(_read(f"{store}location", location))


def files(values: Values) -> list[Path]:
    """What a change of is a change of the stores."""
    return [
        Path(location) for key in (_KEYSTORE, _TRUSTSTORE) if (location := values.get(f"{key}location")) is not None
    ]


def _insist_on_pem(store: str, key: str, values: Values) -> None:
    """PEM in a value goes with nothing else."""
    kind = values.get(f"{store}type")
    if kind != PEM:
        raise BadStore(f"{store}type", f"is {kind}, but {store}{key} is for {PEM}")
    for other, why in (("location", "is where a store's file lies"), ("password", "is the password of a file")):
        if values.get(f"{store}{other}") is not None:
            raise BadStore(f"{store}{other}", f"{why}, and {store}{key} is set, which takes its place")


def _read(key: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise BadStore(key, f"{location} cannot be read: {error.strerror}") from None


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _certificates(data: bytes, key: str) -> list[bytes]:
    found = [match[0] for match in _CERTIFICATE.finditer(data)]
    if not found:
        raise BadStore(key, "has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    return found


def _private_key(data: bytes, key: str) -> bytes:
    found = _KEY.search(data)
    if found is None:
        raise BadStore(key, "has no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    return found[0]


def _refuse_jks(key: str, location: str, data: bytes) -> None:
    if data.startswith(_JKS_MAGICS):
        raise BadStore(
            key,
            f"{location} is a JKS key store, Java's old format; convert it: keytool -importkeystore -srckeystore "
            f"{location} -destkeystore {Path(location).stem}.p12 -deststoretype PKCS12",
        )
    if not data or data[0] != _PKCS12_MAGIC:
        raise BadStore(key, f"{location} is neither PEM nor PKCS12")


def _pkcs12(key: str, location: str, data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        why = f"{location} is PKCS12, which needs the package cryptography: pip install cryptography, or use PEM"
        raise BadStore(key, why) from None
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        # The library's text differs from version to version, and does not distinguish these.
        raise BadStore(key, f"{location} is no PKCS12 store, or its password is another one") from None


def _identity_of_pkcs12(key: str, location: str, data: bytes, password: str) -> Identity:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(key, location, data, password)
    if store.key is None or store.cert is None:
        raise BadStore(key, f"{location} has no private key with its certificate")
    chain = [store.cert.certificate, *(other.certificate for other in store.additional_certs)]
    return Identity(
        b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain),
        store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _trust_of_pkcs12(key: str, location: str, data: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _pkcs12(key, location, data, password)
    trusted = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    if not trusted:
        raise BadStore(key, f"{location} has no certificate")
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in trusted)

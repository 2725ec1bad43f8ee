"""Certificates for tests: an authority, and what it issues to brokers and clients, as PEM and as PKCS12.

    authority = Authority()
    broker = authority.issue("CN=broker", hosts=["127.0.0.1", "localhost"])
    path.write_bytes(broker.pem())

Needs the package `cryptography` and nothing of this suite. Keys are of the curve P-256, which costs no time to make.
Everything is valid from two days ago until tomorrow, unless it has expired: then until yesterday.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A private key, its certificate, and the certificate of the authority that has issued it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    def pem(self) -> bytes:
        """Key (PKCS8, without a password) and chain, as brokers and clients want them in one file."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + self.certificate.public_bytes(Encoding.PEM) + self.issuer.public_bytes(Encoding.PEM)

    def pkcs12(self, password: str) -> bytes:
        """The same as a key store, as `keytool` writes it."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, [self.issuer], encryption)


class Authority:
    """Issues certificates. subject: its own name, as RFC 4514 writes it."""

    def __init__(self, subject: str = "CN=authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name.from_rfc4514_string(subject)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self.certificate = (
            _builder(name, name, self._key.public_key(), expired=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(usage, critical=True)
            .sign(self._key, SHA256())
        )

    def pem(self) -> bytes:
        """Its certificate, for whoever is to trust it."""
        return self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self, password: str) -> bytes:
        """A trust store with its certificate, as `keytool` writes it: Java looks for an attribute of its own there."""
        trusted = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password.encode()))

    def issue(self, subject: str, *, hosts: Sequence[str] = (), expired: bool = False) -> Identity:
        """A new key with its certificate, good for both ends of a connection. subject: as RFC 4514 writes it, like
        `CN=alice,OU=ops`. hosts: names or addresses that it is for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name.from_rfc4514_string(subject)
        builder = (
            _builder(name, self.certificate.subject, key.public_key(), expired=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Identity(key, builder.sign(self._key, SHA256()), self.certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now - _DAY if expired else now + _DAY)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

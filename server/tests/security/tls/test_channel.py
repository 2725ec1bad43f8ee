"""Both ends of a connection in one process: bytes are carried from one channel to the other by hand."""

from __future__ import annotations

import ssl

import pytest
import trustme

from barnabas.server.security.tls.channel import TlsChannel, TlsError

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


def _server(*, client_auth: ssl.VerifyMode = ssl.CERT_NONE, issued_for: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(issued_for).configure_cert(context)
    context.verify_mode = client_auth
    AUTHORITY.configure_trust(context)
    return context


def _client(authority: trustme.CA = AUTHORITY, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def _carry(*ends: TlsChannel, piece: int = 1 << 20) -> None:
    """Until neither end has anything to send."""
    while any(end.outgoing_bytes for end in ends):
        for at, end in enumerate(ends):
            data = end.outgoing()
            for start in range(0, len(data), piece):
                ends[1 - at].feed(data[start : start + piece])


def _connected(server: ssl.SSLContext, client: ssl.SSLContext, piece: int = 1 << 20) -> tuple[TlsChannel, TlsChannel]:
    ends = TlsChannel(server), TlsChannel(client, server_name="localhost")
    ends[1].shake_hands()
    _carry(*ends, piece=piece)
    return ends


def _read_all(end: TlsChannel, room: int = 1000) -> bytes:
    found, target = b"", memoryview(bytearray(room))
    while size := end.read_into(target):
        found += target[:size]
    return found


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_one_end_writes_the_other_reads(version: ssl.TLSVersion, piece: int) -> None:
    client = _client()
    client.maximum_version = version
    server_end, client_end = _connected(_server(), client, piece)
    assert server_end.is_open
    assert client_end.is_open
    assert server_end.version == version.name.replace("_", ".")
    assert server_end.cipher
    question, answer = bytes(range(256)) * 300, b"yes"
    client_end.write(question)
    server_end.write(answer)
    _carry(server_end, client_end, piece=piece)
    assert _read_all(server_end) == question
    assert _read_all(client_end) == answer
    assert server_end.read_into(memoryview(bytearray(1))) == 0
    assert not server_end.peer_closed


def test_the_end_is_notified() -> None:
    server_end, client_end = _connected(_server(), _client())
    client_end.close()
    _carry(server_end, client_end)
    assert server_end.read_into(memoryview(bytearray(10))) == 0
    assert server_end.peer_closed


def test_a_client_shows_its_certificate() -> None:
    certificate = AUTHORITY.issue_cert("alice@example.org", common_name="alice")
    server_end, _ = _connected(_server(client_auth=ssl.CERT_REQUIRED), _client(certificate=certificate))
    der = server_end.peer_certificate
    assert der is not None
    assert ssl.DER_cert_to_PEM_cert(der).encode().split() == certificate.cert_chain_pems[0].bytes().split()


def test_without_being_asked_it_shows_none() -> None:
    server_end, _ = _connected(_server(), _client())
    assert server_end.peer_certificate is None


@pytest.mark.parametrize(
    ("certificate", "complaint"),
    [
        (None, "peer did not return a certificate"),
        (STRANGER.issue_cert("mallory@example.org"), "the peer's certificate is not accepted: "),
    ],
)
def test_a_certificate_that_is_missing_or_foreign_is_refused(
    certificate: trustme.LeafCert | None, complaint: str
) -> None:
    with pytest.raises(TlsError, match=complaint):
        _connected(_server(client_auth=ssl.CERT_REQUIRED), _client(certificate=certificate))


def test_a_client_does_not_talk_to_a_stranger_nor_to_another_name() -> None:
    with pytest.raises(TlsError, match="the peer's certificate is not accepted: "):
        _connected(_server(), _client(STRANGER))
    with pytest.raises(TlsError, match=r"[Hh]ostname mismatch"):
        _connected(_server(issued_for="example.org"), _client())


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10" + bytes(16), b"\x16\x03\x01\xff\xff" * 9]
)
def test_what_is_no_tls_is_refused(hello: bytes) -> None:
    end = TlsChannel(_server())
    with pytest.raises(TlsError, match=r"\w+"):
        end.feed(hello)
    assert not end.is_open


def test_damage_is_noticed() -> None:
    server_end, client_end = _connected(_server(), _client())
    client_end.write(b"x" * 100)
    damaged = bytearray(client_end.outgoing())
    damaged[50] ^= 1
    server_end.feed(bytes(damaged))
    with pytest.raises(TlsError, match=r"bad record mac|decryption failed"):
        server_end.read_into(memoryview(bytearray(100)))


def test_a_handshake_that_is_dribbled_holds_what_came_and_no_more() -> None:
    end = TlsChannel(_server())
    client = TlsChannel(_client(), server_name="localhost")
    client.shake_hands()
    for byte in client.outgoing()[:-1]:
        end.feed(bytes([byte]))
        assert not end.outgoing_bytes
    assert not end.is_open

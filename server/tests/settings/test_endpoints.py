"""Listener lists."""

import pytest

from barnabas.server.settings.endpoints import ListenAddress, parse_counts, parse_listeners, parse_protocol_map

MAP = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "SSL": "SSL"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", [("PLAINTEXT", "", 9092)]),
        ("plaintext://localhost:0", [("PLAINTEXT", "localhost", 0)]),
        ("PLAINTEXT://0.0.0.0:1, INTERNAL://10.0.0.1:2", [("PLAINTEXT", "0.0.0.0", 1), ("INTERNAL", "10.0.0.1", 2)]),
        ("PLAINTEXT://[::1]:9092", [("PLAINTEXT", "::1", 9092)]),
        ("PLAINTEXT://[fe80::1%eth0]:9092", [("PLAINTEXT", "fe80::1%eth0", 9092)]),
        (
            "PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9092",
            [("PLAINTEXT", "127.0.0.1", 9092), ("INTERNAL", "::1", 9092)],
        ),
        ("PLAINTEXT://h:0,INTERNAL://h:0", [("PLAINTEXT", "h", 0), ("INTERNAL", "h", 0)]),
        ("PLAINTEXT://h:1,", [("PLAINTEXT", "h", 1)]),
    ],
)
def test_good(text: str, expected: list[tuple[str, str, int]]) -> None:
    listeners = parse_listeners(text, MAP, distinct_ports=True)
    assert [(one.name, one.host, one.port) for one in listeners] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost:9092", "NAME://host:port"),
        ("PLAINTEXT://localhost", "NAME://host:port"),
        ("PLAINTEXT://::1:9092", "NAME://host:port"),
        ("PLAINTEXT://h:x", "NAME://host:port"),
        ("PLAINTEXT://h:70000", "from 0 to 65535"),
        ("PLAINTEXT://h:-1", "from 0 to 65535"),
        ("OTHER://h:1", "listener.security.protocol.map"),
        ("PLAINTEXT://h:1,plaintext://i:2", "PLAINTEXT must stand there once"),
        ("PLAINTEXT://h:1,INTERNAL://i:1", "different ports"),
        ("PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.2:1", "different ports"),
    ],
)
def test_bad(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_listeners(text, MAP, distinct_ports=True)


def test_advertised_ports_may_repeat() -> None:
    assert len(parse_listeners("PLAINTEXT://h:1,INTERNAL://i:1", MAP, distinct_ports=False)) == 2


def test_text_form() -> None:
    assert str(ListenAddress("A", "PLAINTEXT", "::1", 5)) == "A://[::1]:5"
    assert str(ListenAddress("A", "PLAINTEXT", "h", 5)) == "A://h:5"


def test_protocol_map() -> None:
    assert parse_protocol_map("a:plaintext, B:SASL_SSL") == {"A": "PLAINTEXT", "B": "SASL_SSL"}
    for bad in ("a", ":SSL", "a:TLS", "a:SSL,A:SSL"):
        with pytest.raises(ValueError):
            parse_protocol_map(bad)


def test_counts() -> None:
    assert parse_counts("127.0.0.1:5, host:0") == {"127.0.0.1": 5, "host": 0}
    for bad in ("host", "host:", ":5", "host:-1", "host:x"):
        with pytest.raises(ValueError):
            parse_counts(bad)

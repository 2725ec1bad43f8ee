"""How commands come to brokers: the option, the environment, custom; what is no address; what is said of something
else that listens there.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from barnabas.kproto.messages import MetadataRequest
from barnabas.server.cli import main as cli
from barnabas.server.network.blocking_client import BlockingClient, NoAnswer, split_bootstrap
from barnabas.server.testing import broker_thread
from barnabas.server.tests.cli.test_health import answering

PATIENT = ("--timeout", "60")
COMMANDS = (["health"], ["topic", "list"], ["group", "list"], ["consume", "t"])


@contextmanager
def answering_anything(answer: bytes | None) -> Iterator[str]:
    """Something that listens, and answers the first bytes of its only client with this, or hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            sock, _ = listening.accept()
            with suppress(ConnectionError), sock:
                sock.recv(1 << 16)
                if answer is not None:
                    sock.sendall(answer)
                    while sock.recv(1 << 16):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(60)
        assert not thread.is_alive()


def test_health_asks_where_the_session_says() -> None:
    """BARNABAS_BOOTSTRAP; but a container's check is about its own broker."""
    with broker_thread() as bootstrap:
        environ = {"BARNABAS_BOOTSTRAP": bootstrap}
        assert cli.main(["health", *PATIENT], environ) == 0
        own = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:1"}
        assert cli.main(["health", *PATIENT], environ | own) == 1
        assert cli.main(["health", "-b", bootstrap, *PATIENT], own) == 0
        assert cli.main(["health", "-b", bootstrap, *PATIENT], {"BARNABAS_BOOTSTRAP": "127.0.0.1:1"}) == 0
        assert cli.main(["health", "-b", f"127.0.0.1:1,{bootstrap}", *PATIENT], {}) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo:99999", "'foo:99999' is not HOST:PORT"),
        ("localhost:9092,foo:x", "'foo:x' is not HOST:PORT"),
        (",", "',' names no broker; HOST:PORT is expected"),
        ("", "'' names no broker; HOST:PORT is expected"),
        ("http://localhost:9092", "'http://localhost:9092' is not HOST:PORT but a URL"),
        ("a..b:9092", "'a..b:9092' is not HOST:PORT"),
        ("\udcff:9092", r"'\udcff:9092' is not HOST:PORT"),
    ],
)
def test_what_is_no_address(command: list[str], text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command, "-b", text], {}) == 2
    assert capsys.readouterr().err == f"barnabas: --bootstrap: {said}\n"
    if text:
        assert cli.main(command, {"BARNABAS_BOOTSTRAP": text}) == 2
        assert capsys.readouterr().err == f"barnabas: BARNABAS_BOOTSTRAP: {said}\n"


def test_health_refuses_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["health", "--command-config", "/no/such/file"], {}) == 2
    assert "/no/such/file cannot be read" in capsys.readouterr().err


def test_what_health_says_of_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["health", "--help"], {})
    assert "for all of it (default: 5)" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_where_nobody_listens_it_is_said_what_to_do(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command, "-b", "127.0.0.1:1", *PATIENT], {}) == 1
    assert capsys.readouterr().err == (
        "barnabas: cannot connect to 127.0.0.1:1: connection refused "
        "(`barnabas serve` starts a broker, --bootstrap names another one)\n"
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "unreadable answer to API_VERSIONS: it is HTTP, not Kafka's protocol "),
        (b"\x15\x03\x03\x00\x02\x02\x46", "unreadable answer to API_VERSIONS: it is TLS "),
    ],
)
def test_another_protocol_is_named(answer: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(lambda _: answer) as address:
        assert cli.main(["topic", "list", "-b", address, *PATIENT], {}) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "it closed the connection; is this a listener without TLS?"),
        (b"\0\0\0\4\0\0\0\1", "it does not answer with TLS; is this a listener without TLS?"),
    ],
)
def test_tls_where_there_is_none(
    answer: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("security.protocol=SSL\n")
    with answering_anything(answer) as address:
        command = ["topic", "list", "-b", address, "--command-config", str(settings), *PATIENT]
        assert cli.main(command, {}) == 1
        assert capsys.readouterr().err == f"barnabas: TLS with {address} failed: {said}\n"
    with answering_anything(answer) as address:
        with pytest.raises(NoAnswer) as caught:
            BlockingClient(address, timeout_s=60, tls=ssl.create_default_context())
        assert str(caught.value) == f"TLS with {address} failed: {said}"


def test_a_blocking_client_names_http() -> None:
    with (
        answering(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        BlockingClient(address, timeout_s=60) as client,
        pytest.raises(NoAnswer, match="answers with HTTP"),
    ):
        client.ask(MetadataRequest(topics=[]), 12)


def test_addresses_without_a_port_have_kafkas() -> None:
    assert split_bootstrap("bücher.example") == ("bücher.example", 9092)

"""`barnabas health`: a broker, no listener, and a listener that is no broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from barnabas.kproto import ErrorCode, encode
from barnabas.kproto.frame import response_frame
from barnabas.kproto.messages import ApiVersionsResponse, MetadataResponse
from barnabas.server.cli import main as cli
from barnabas.server.cli.health import bootstrap_of
from barnabas.server.network.blocking_client import NoAnswer, split_bootstrap
from barnabas.server.testing import broker_thread

Answers = Callable[[bytes], bytes | None]


@contextmanager
def answering(answer: Answers) -> Iterator[str]:
    """Something that listens, and answers each frame of its only client with what `answer` returns; None: hang up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            sock, _ = listening.accept()
            with suppress(ConnectionError), sock, sock.makefile("rb") as frames:
                while head := frames.read(4):
                    reply = answer(frames.read(int.from_bytes(head, "big")))
                    if reply is None:
                        return
                    sock.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listening.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            # The client's time may have been up before it connected: somebody has to, for the thread to end.
            socket.create_connection((host, port)).close()
            thread.join(60)
        assert not thread.is_alive()


def call(*arguments: str, **environ: str) -> int:
    timeout = [] if any(each.startswith("--timeout") for each in arguments) else ["--timeout", "60"]
    return cli.main(["health", *arguments, *timeout], environ)


def frame(api_key: int, version: int, correlation_id: int, message: object) -> bytes:
    parts = response_frame(api_key, version, correlation_id, [encode(message, version)])  # type: ignore[type-var]
    return b"".join(map(bytes, parts))  # type: ignore[arg-type]


def old_broker(cluster: MetadataResponse) -> Answers:
    """Speaks ApiVersions in version 0 only, and Metadata up to version 4: Apache Kafka 0.11 and 1.0."""
    key = ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=4)
    answers = {18: (0, ApiVersionsResponse(api_keys=[key])), 3: (4, cluster)}

    def answer(request: bytes) -> bytes:
        api_key = int.from_bytes(request[:2], "big")
        version, message = answers[api_key]
        if api_key == 18 and request[2:4] != b"\0\0":
            message = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        else:
            assert int.from_bytes(request[2:4], "big") == version
        return frame(api_key, version, int.from_bytes(request[4:8], "big"), message)

    return answer


def test_a_broker_that_serves(capsys: pytest.CaptureFixture[str]) -> None:
    with broker_thread() as bootstrap:
        assert call("--bootstrap", bootstrap) == 0
        assert capsys.readouterr().out == f"{bootstrap} answers: 1 broker, controller 1\n"
        assert call(KAFKA_LISTENERS=f"PLAINTEXT://0.0.0.0:{bootstrap.rpartition(':')[2]}") == 0


def test_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert call("--bootstrap", address) == 1
    assert capsys.readouterr().err.startswith(f"barnabas: cannot connect to {address}: connection refused (")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda _: None,
            "connection lost: closed by the peer (if this listener wants TLS or a log-in, say how with --command",
        ),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "(is it a Kafka broker"),
        (lambda _: b"\0\0\0\4\0\0\0\x63", "unreadable answer to API_VERSIONS: answer to request 99 instead of 1 "),
        (lambda _: b"", "did not answer within 0.05 s"),
        (old_broker(MetadataResponse(brokers=[], controller_id=1)), "knows no brokers yet"),
    ],
)
def test_what_is_no_healthy_broker(answer: Answers, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    timeout = "0.05" if "within" in said else "60"
    with answering(answer) as address:
        assert call("--bootstrap", address, "--timeout", timeout) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("controller", "code"), [(7, 0), (-1, 1)])
def test_an_old_broker(controller: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=node, host="h", port=1) for node in (7, 8)]
    with answering(old_broker(MetadataResponse(brokers=brokers, controller_id=controller))) as address:
        assert call("--bootstrap", address) == code
    out, err = capsys.readouterr()
    assert out + err in (
        f"{address} answers: 2 brokers, controller 7\n",
        f"barnabas: {address} answers, but knows no controller\n",
    )


@pytest.mark.parametrize(
    ("environ", "bootstrap"),
    [
        ({}, "localhost:9092"),
        ({"KAFKA_LISTENERS": "OUTSIDE://:19092,INSIDE://:9093"}, "localhost:9092"),  # refused: names without protocol
        ({"KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:19092"}, "localhost:19092"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://[::1]:19092"}, "[::1]:19092"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://broker-1:19092", "KAFKA_ZOOKEEPER_CONNECT": "z"}, "broker-1:19092"),
    ],
)
def test_where_the_environments_broker_listens(environ: dict[str, str], bootstrap: str) -> None:
    assert bootstrap_of(environ) == bootstrap


def test_addresses() -> None:
    assert split_bootstrap("h:1") == ("h", 1)
    assert split_bootstrap("h") == ("h", 9092)
    assert split_bootstrap("[::1]:2") == ("::1", 2)
    assert split_bootstrap("[::1]") == split_bootstrap("::1") == ("::1", 9092)
    for text in ("", ":1", "h:65536", "h:x"):
        with pytest.raises(NoAnswer):
            split_bootstrap(text)


def test_seconds_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("0", "-1", "soon", "1e9"):
        with pytest.raises(SystemExit) as ended:
            call(f"--timeout={text}")
        assert ended.value.code == 2
        assert "a number of seconds above 0 is expected" in capsys.readouterr().err

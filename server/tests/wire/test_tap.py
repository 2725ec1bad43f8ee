"""The tap between clients and brokers over TCP, its recording, and that replayed: in this process, by the command."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto.messages import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from barnabas.server.cli import main as cli
from barnabas.server.cli import wire
from barnabas.server.client.batching import ToSend
from barnabas.server.client.client import open_client
from barnabas.server.client.producer import Producer
from barnabas.server.client.topics import list_topics
from barnabas.server.runtime.wording import causes
from barnabas.server.testing import Client, broker_thread, embedded_broker, embedded_cluster
from barnabas.server.tests.network.sasl_rig import PASSWORD, log_in, sasl_broker
from barnabas.server.tests.test_layers import ROOT
from barnabas.server.wire import tap as tap_module
from barnabas.server.wire import tape
from barnabas.server.wire.addresses import Address
from barnabas.server.wire.conversation import Event
from barnabas.server.wire.replay import Replay
from barnabas.server.wire.tap import CannotTap, Tap


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is of this process, and stands still when that does."""
    monkeypatch.setattr(tap_module, "CONNECT_S", 60.0)


class Tapped:
    """A tap at work. `events`: what it has told."""

    def __init__(self) -> None:
        self.where: Address
        self.events: list[Event] = []
        self.recording = io.StringIO()
        self._told = trio.Event()

    def tell(self, event: Event) -> None:
        self.events.append(event)
        told, self._told = self._told, trio.Event()
        told.set()

    def named(self, kind: str) -> list[str]:
        return [each[kind] for each in self.events if kind in each]

    @property
    def odd(self) -> list[str]:
        return [odd for each in self.events for odd in each.get("odd", ())]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with await trio.open_tcp_stream(*self.where) as stream:
            yield Client(stream)

    async def until(self, kind: str) -> None:
        with trio.fail_after(60):
            while not self.named(kind):
                await self._told.wait()


@asynccontextmanager
async def tapped(to: str, port: int = 0, listen: str = "127.0.0.1", **options: Any) -> AsyncIterator[Tapped]:
    host, _, upstream = to.rpartition(":")
    found = Tapped()
    tap = Tap(Address(listen, port), Address(host, int(upstream)), found.tell, recording=found.recording, **options)
    async with trio.open_nursery() as nursery:
        found.where = await nursery.start(tap.run)
        yield found
        nursery.cancel_scope.cancel()


async def test_a_client_stays_on_the_tap() -> None:
    async with embedded_broker() as broker, tapped(broker.bootstrap) as tap:
        async with tap.client() as client:
            answer = await client.ask(MetadataRequest(topics=[]), 12)
            assert [(each.host, each.port) for each in answer.brokers] == [tap.where]
        await tap.until("closed_by")
        assert tap.named("request") == tap.named("answer") == ["Metadata"]
        (rewritten,) = tap.named("rewritten")
        assert rewritten == {broker.bootstrap: str(tap.where)}
        assert tap.named("closed_by") == ["client"]
        assert tap.odd == []


async def test_a_tap_on_all_addresses_sends_clients_where_they_came() -> None:
    async with embedded_broker() as broker, tapped(broker.bootstrap, listen="0.0.0.0") as tap:
        async with await trio.open_tcp_stream("127.0.0.1", tap.where.port) as stream:
            answer = await Client(stream).ask(MetadataRequest(topics=[]), 12)
        assert [(each.host, each.port) for each in answer.brokers] == [("127.0.0.1", tap.where.port)]


async def test_every_broker_gets_a_port() -> None:
    async with embedded_cluster(3, tcp=True) as cluster, tapped(cluster[1].bootstrap) as tap:
        async with tap.client() as client:
            answer = await client.ask(MetadataRequest(topics=[]), 12)
            told = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
            assert len(set(told.values())) == 3
            assert told[1] == tap.where
            found = await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert found.coordinators[0].port in {0, -1, *(each.port for each in told.values())}
        for node_id, where in told.items():
            async with await trio.open_tcp_stream(*where) as stream:
                answer = await Client(stream).ask(MetadataRequest(topics=[]), 12)
                assert answer.cluster_id == cluster[1].services.image.cluster_id
                last = [each for each in tap.events if each.get("request") == "Metadata"][-1]
                assert last["broker"] == cluster[node_id].bootstrap
        assert len(tap.named("listening")) == 3


async def worked(bootstrap: str, topic: str) -> None:
    """What an ordinary client does."""
    async with open_client([bootstrap], timeout_s=60) as client:
        producer = Producer(client, lambda: 1_700_000_000_000)
        await producer.send([ToSend(topic, b"value %d" % number, partition=number % 2) for number in range(10)])
        assert topic in await list_topics(client)


async def test_a_recording_is_replayed() -> None:
    """To another broker, where ids are others: topics, producers."""
    async with embedded_broker(num_partitions="2") as broker, tapped(broker.bootstrap) as tap:
        await broker.services.topics.auto_create(["t"])
        await worked(str(tap.where), "t")
        await tap.until("closed_by")
        text = tap.recording.getvalue()
        assert tap.odd == []
    entries = list(tape.read(text.splitlines()))
    assert {each.kind for each in entries} == {tape.OPENED, tape.REQUEST, tape.ANSWER, tape.CLOSED}
    async with embedded_broker(num_partitions="2", seed=7) as other:
        await other.services.topics.auto_create(["before", "t"])
        await worked(other.bootstrap, "before")  # the next producer gets another id
        events: list[Event] = []
        host, _, port = other.bootstrap.rpartition(":")
        result = await Replay(Address(host, int(port)), events.append).run(entries)
        assert (result.differ, result.left_out) == (0, 0), events
        assert result.sent == len([each for each in entries if each.kind == tape.REQUEST])
        written = sum(partition.log_end_offset for partition in other.services.partitions if partition.topic == "t")
        assert written == 10
        assert {kind for each in events for kind in each.get("replaced", ())} >= {"producer id"}
    async with embedded_broker(auto_create_topics_enable="false") as empty:
        host, _, port = empty.bootstrap.rpartition(":")
        events = []
        result = await Replay(Address(host, int(port)), events.append).run(entries)
        assert result.differ > 0
        assert any("UNKNOWN_TOPIC" in text for each in events for text in each.get("differs", ()))


async def test_another_protocol_passes_unread() -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async with stream:
            while data := await stream.receive_some():
                await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, echo, [listener])
        port = listener.socket.getsockname()[1]
        hello = b"\x16\x03\x01\x02\x00 is not read"
        async with tapped(f"127.0.0.1:{port}") as tap:
            async with await trio.open_tcp_stream(*tap.where) as stream:
                for part in (hello[:3], hello[3:], b"more"):
                    await stream.send_all(part)
                back = b""
                while len(back) < len(hello) + 4:
                    back += await stream.receive_some()
                assert back == hello + b"more"
            await tap.until("closed_by")
            assert len(tap.odd) == 2  # once for each direction
            assert all("says is " in text for text in tap.odd)
        nursery.cancel_scope.cancel()


async def test_a_broker_that_is_not_there() -> None:
    with socket.socket() as bound:  # nobody else listens there meanwhile
        bound.bind(("127.0.0.1", 0))
        async with tapped(f"127.0.0.1:{bound.getsockname()[1]}") as tap:
            async with await trio.open_tcp_stream(*tap.where) as stream:
                assert await stream.receive_some() == b""
            (odd,) = tap.odd
            assert odd.startswith("the broker cannot be reached: ")


async def test_a_port_that_is_taken() -> None:
    async with embedded_broker() as broker:
        _, _, port = broker.bootstrap.rpartition(":")
        with pytest.raises(ExceptionGroup) as caught:
            async with tapped(broker.bootstrap, port=int(port)):
                raise AssertionError
        (error,) = causes(caught.value)
        assert isinstance(error, CannotTap)
        assert str(error).startswith(f"cannot listen on 127.0.0.1:{port}: ")


async def test_log_ins_are_not_recorded(tmp_path: Path) -> None:
    async with sasl_broker(tmp_path) as broker, tapped(broker.bootstrap) as tap:
        async with tap.client() as client:
            assert (await log_in(client)).error_code == 0
            await client.ask(ApiVersionsRequest(), 0)
        await tap.until("closed_by")
        text = tap.recording.getvalue() + json.dumps(tap.events)
        assert PASSWORD not in text
        assert PASSWORD.encode().hex() not in text
        kinds = [each.kind for each in tape.read(tap.recording.getvalue().splitlines())]
        assert kinds.count(tape.LEFT_OUT) == 2


# -- the command -----------------------------------------------------------------------------------------------------


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "barnabas", "wire", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


@pytest.mark.slow
def test_the_command_taps_records_and_replays(tmp_path: Path) -> None:
    file = tmp_path / "it.tape"
    with broker_thread() as bootstrap:
        tap = started("tap", "--listen", "0", "--to", bootstrap, "--record", str(file), "--no-body")
        assert tap.stdout is not None
        first = json.loads(tap.stdout.readline())
        assert first["broker"] == bootstrap
        environ = {"BARNABAS_BOOTSTRAP": first["listening"]}
        assert cli.main(["topic", "create", "t", "--timeout", "60"], environ) == 0
        tap.send_signal(signal.SIGINT)
        out, err = tap.communicate(timeout=60)
        assert tap.returncode == 0, err
        events = [json.loads(line) for line in out.splitlines()]
        assert {"CreateTopics", "ApiVersions"} <= {each.get("request") for each in events}
        assert not any("body" in each for each in events)
        assert file.stat().st_mode & 0o777 == 0o600
    with broker_thread() as bootstrap:
        done = started("replay", str(file), "--to", bootstrap)
        out, err = done.communicate(timeout=60)
        assert done.returncode == 0, (out, err)
        assert " requests sent, " in err
        assert " 0 not\n" in err
        assert cli.main(["topic", "describe", "t", "--timeout", "60"], {"BARNABAS_BOOTSTRAP": bootstrap}) == 0
        again = started("replay", str(file), "--to", bootstrap, "--odd")
        out, err = again.communicate(timeout=60)
        assert again.returncode == 1
        assert any("TOPIC_ALREADY_EXISTS" in line for line in out.splitlines())


TAP = "wire tap --listen 0 --to a:1"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("wire tap --listen x --to a:1", "PORT or HOST:PORT is expected"),
        ("wire tap --listen 9093 --to a", "HOST:PORT is expected"),
        ("wire tap --listen 9093 --to a:0", "HOST:PORT is expected"),
        ("wire tap --listen 65536 --to a:1", "PORT or HOST:PORT is expected"),
        ("wire replay f --to =a:1", "RECORDED=HOST:PORT is expected"),
        ("wire replay f", "--to"),
        (f"{TAP} --only metdata", "argument --only: 'metdata' is no API that is known (is Metadata meant?)"),
        (f"{TAP} --only nonsense", "argument --only: 'nonsense' is no API that is known\n"),
        ("wire", "ACTION"),
    ],
)
def test_command_lines_that_cannot_be_used(line: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(line.split())
    assert caught.value.code == 2
    assert why in capsys.readouterr().err


def test_files_that_cannot_be_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert cli.main(["wire", "replay", str(missing), "--to", "a:1"]) == 2
    assert "cannot be read" in capfd.readouterr().err
    missing.write_text("{}")
    assert cli.main(["wire", "replay", str(missing), "--to", "a:1"]) == 2
    assert "it is no recording of `barnabas wire tap`" in capfd.readouterr().err
    assert cli.main(["wire", "replay", str(missing), "--to", "b=a:1"]) == 2
    assert "one --to HOST:PORT is expected" in capfd.readouterr().err
    nowhere = tmp_path / "no" / "file"
    assert cli.main([*TAP.split(), "--record", str(nowhere)]) == 2
    assert capfd.readouterr().err == f"barnabas: {nowhere} cannot be written: no such file or directory\n"
    assert cli.main(["wire", "replay", str(nowhere), "--to", "a:1"]) == 2
    assert capfd.readouterr().err == f"barnabas: {nowhere} cannot be read: no such file or directory\n"


def test_apis_in_any_case() -> None:
    words = ["metadata", "LIST_OFFSETS", "offsetCommit", "sasl token", "API 99"]
    line = [*TAP.split(), *(f"--only={word}" for word in words)]
    assert cli.parser(line).parse_args(line).only == ["Metadata", "ListOffsets", "OffsetCommit", "SASL token", "API 99"]


def test_a_recording_is_not_overwritten_unasked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(wire, "_tap_until_stopped", stopped)
    line = [*TAP.split(), "--record"]
    old = tmp_path / "old.tape"
    old.write_text("all that was said")
    assert cli.main([*line, str(old)]) == 2
    assert capfd.readouterr().err == (
        f"barnabas: {old} is there already; with --overwrite the new recording replaces it\n"
    )
    assert old.read_text() == "all that was said"
    assert cli.main([*line, str(old), "--overwrite"]) == 0
    assert old.read_text() == ""
    assert old.stat().st_mode & 0o777 == 0o600
    assert cli.main([*line, str(old)]) == 0, "an empty file, as mktemp makes it"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli.main([*line, str(pipe)]) == 0
    assert pipe.is_fifo()
    os.close(reader)


def test_it_ends_when_nobody_reads_its_output(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`barnabas wire tap … | head -1`, and no client comes any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert cli.main(TAP.split()) == 0

"""What the fuzzer notices: errors in a log, stalls, a peer that answers wrongly, dies, or not at all. The peers here
are fakes of a few lines.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.kproto import ApiKey, encode
from barnabas.kproto.frame import parse_request_header, response_frame
from barnabas.kproto.messages import HeartbeatResponse, JoinGroupResponse
from compat_tests.fuzz.attack import OWED_S, Attack
from compat_tests.fuzz.campaign import Campaign, Plan, Target, Totals, summary
from compat_tests.fuzz.findings import Findings
from compat_tests.fuzz.grammar import Grammar, Limits
from compat_tests.fuzz.pools import Pools
from compat_tests.fuzz.probe import Probe, Stall, answered, measured
from compat_tests.fuzz.recording import Recorder, Step, read, write
from compat_tests.fuzz.replay import replay
from compat_tests.fuzz.watch import Busy, Log, memory_bytes

Answer = Callable[[bytes], bytes | None]
TAME = Limits(odd_texts=False, huge_bytes=0, lies=False, damage=0.0, unserved=0.0)
STAMP = "2026-11-23 14:57:13.410 "
TRACEBACK = """\
Traceback (most recent call last):
  File "/somewhere/server/dispatch.py", line 110, in __call__
    response = route.handle(self._services, context, request)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/somewhere/coordinator/group/classic/members.py", line {line}, in choose_protocol
    raise ValueError(name)
  File "<kproto encode JoinGroupResponse v{version}>", line 5, in encode
    w(S3_h(n5))
kproto.errors.EncodeError: string of 98301 bytes
"""


@contextmanager
def peer(answer: Answer) -> Iterator[tuple[str, int]]:
    """Answers each frame with what `answer` makes of it: bytes, or None for closing the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as stream:
            try:
                while len(head := stream.read(4)) == 4:
                    (size,) = struct.unpack(">i", head)
                    frame = stream.read(size)
                    reply = answer(frame) if len(frame) == size else None
                    if reply is None:
                        return
                    sock.sendall(reply)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def attacked(
    answer: Answer, *, seconds: float = 0.0, steps: int = 12_000, key: ApiKey = ApiKey.HEARTBEAT
) -> dict[str, str]:
    """The findings of an attack with right requests only; between the steps so much time seems to pass. It ends with
    the first finding, or after so many steps, each of which waits 5 ms for something to come.
    """
    clock = Clock()
    found: dict[str, str] = {}
    with peer(answer) as address:
        grammar = Grammar(random.Random(2), Pools(), {int(key): (0, 0)}, TAME)
        attack = Attack([address], grammar, Recorder(), found.setdefault, connections=4, clock=clock)
        for _ in range(steps):
            attack.step(0.005)
            clock.now += seconds
            if found:
                break
        attack.close()
    return found


def heartbeat(frame: bytes, *, error: int = 0, shift: int = 0) -> bytes:
    header = parse_request_header(frame)
    body = encode(HeartbeatResponse(error_code=error), 0)
    return b"".join(response_frame(ApiKey.HEARTBEAT, 0, header.correlation_id + shift, [body]))  # type: ignore[arg-type]


def test_a_peer_that_answers_well_is_no_finding() -> None:
    assert attacked(heartbeat, steps=100) == {}


def test_a_connection_closed_without_reason() -> None:
    assert list(attacked(lambda frame: None)) == ["closed on HEARTBEAT"]


def test_answers_out_of_order() -> None:
    assert list(attacked(lambda frame: heartbeat(frame, shift=1))) == ["answers out of order"]


def test_an_answer_that_cannot_be_read() -> None:
    reply = b"\x00\x00\x00\x05"
    assert list(attacked(lambda frame: reply + frame[4:8] + b"\0")) == ["an answer to HEARTBEAT that cannot be read"]


def test_unknown_server_error_is_the_peers_own_fault() -> None:
    assert list(attacked(lambda frame: heartbeat(frame, error=-1))) == ["UNKNOWN_SERVER_ERROR to HEARTBEAT"]


def test_a_valid_request_that_is_never_answered() -> None:
    assert list(attacked(lambda frame: b"", seconds=OWED_S / 20)) == ["no answer to HEARTBEAT"]
    # A join may wait for others: then the fuzzer gives up, and nobody is to blame.
    assert attacked(lambda frame: b"", seconds=OWED_S / 20, steps=60, key=ApiKey.JOIN_GROUP) == {}


def test_log_tells_each_kind_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        f"{STAMP}ERROR requests: JOIN_GROUP v3 of client 'a b' at 127.0.0.1 failed\n"
        + TRACEBACK.format(line=17, version=3)
        + f"{STAMP}INFO  groups: generation 5\n"
        + f"{STAMP}ERROR requests: JOIN_GROUP v9 of client None at 127.0.0.1 failed\n"
        + TRACEBACK.format(line=18, version=9)
        + f"{STAMP}ERROR partitions: t0-17 at 4711 is odd\n{STAMP}ERROR partitions: t0-3 at 12 is odd\n"
        + f"{STAMP}FATAL broker: the metadata store could not be written\n"
        + f"{STAMP}WARN  partitions: slow\n"
        + f"{STAMP}ERROR coordinators: record 5 of __consumer_offsets partition 3 is skipped\n"
    )
    log = Log(path)
    errors = [*log.errors(), *log.errors(all_of_it=True)]
    kinds = [error.kind for error in errors]
    join = "requests: JOIN_GROUP failed / kproto.errors.EncodeError in members.py:choose_protocol"
    odd = "partitions: tN at N is odd"
    assert kinds[:2] == [join, join]
    assert len(kinds) == 5
    assert kinds[2] == kinds[3] == odd.replace("tN", kinds[2].split()[1])
    assert kinds[4] == "broker: the metadata store could not be written"
    assert "string of 98301 bytes" in errors[0].text
    # Only what is new is told the next time.
    with path.open("a") as file:
        file.write("Traceback (most recent call last):\nKeyError: 5\n")
    assert [error.kind for error in log.errors(all_of_it=True)] == ["Traceback (most recent call last):"]


def test_a_log_that_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(path)
    assert not list(log.errors())
    text = f"{STAMP}ERROR requests: JOIN_GROUP v3 of client None at 127.0.0.1 failed\n" + TRACEBACK.format(
        line=1, version=0
    )
    found = []
    for at in range(0, len(text), 100):
        with path.open("a") as file:
            file.write(text[at : at + 100])
        found += list(log.errors())
    assert not found
    assert [error.kind for error in log.errors()] == [
        "requests: JOIN_GROUP failed / kproto.errors.EncodeError in members.py:choose_protocol"
    ]


def test_a_stall_is_the_time_that_the_broker_is_to_blame_for() -> None:
    clock = Clock()
    spent = {"self": Busy(0.0, 0.0), 5: Busy(10.0, 1.0)}

    def ask() -> None:
        clock.now += 1.0
        spent["self"] = Busy(0.0, 0.1)  # the probe had no core for a while
        spent[5] = Busy(10.4, 1.3)  # and nor had the broker

    one = measured(ask, 5, lambda pid: spent[pid], clock)  # type: ignore[index]
    assert one.begin == 1000.0
    assert one.seconds == pytest.approx(0.6)
    assert one.cpu_seconds == pytest.approx(0.4)
    unknown = measured(ask, 6, lambda pid: Busy(-1.0, 0.0), clock)
    assert unknown.cpu_seconds == pytest.approx(1.0)


def test_the_probe_as_a_process() -> None:
    slow = threading.Event()
    told = threading.Event()

    def answer(frame: bytes) -> bytes:
        told.set()
        if slow.is_set():
            time.sleep(0.3)
        return b"\x00\x00\x00\x04\x00\x00\x00\x00"

    with peer(answer) as (host, port):
        with socket.create_connection((host, port)) as sock:
            answered(sock)
        told.clear()
        probe = Probe(f"{host}:{port}", limit_ms=50).start()
        assert told.wait(60)
        slow.set()
        # Of a probe that has no core just when it asks, less is counted than the answer took: there are more answers.
        found: list[Stall] = []
        until = time.monotonic() + 60
        while not any(stall.seconds >= 0.25 for stall in found):
            assert time.monotonic() < until, found
            found += probe.stalls()
            time.sleep(0.01)
        slow.clear()
        probe.stop()
    assert probe.longest >= 0.25


def test_a_broker_that_dies(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{STAMP}INFO  broker: started\n{STAMP}FATAL broker: the metadata store could not be written\n")
    findings, totals = Findings(tmp_path / "found", 7), Totals()
    target = Target("the broker", ("127.0.0.1", 1), 0, log, lambda: False)
    campaign = Campaign([target], Plan(1.0, 7), findings, totals, lambda text: None)
    campaign._recorder.add(Step(3, "raw", bytes(8), "PRODUCE v9"))
    campaign._mourn()
    assert totals.deaths == 1
    (died,) = (found for kind, found in findings.kinds.items() if "died" in kind)
    assert "could not be written" in died.kind
    assert died.file is not None
    assert list(read(died.file.read_text())) == [Step(3, "raw", bytes(8), "PRODUCE v9")]
    assert "1 deaths" in summary(findings, totals)


def test_several_requests_together_count_from_a_quarter_of_a_second_on(tmp_path: Path) -> None:
    findings = Findings(tmp_path, 7)
    target = Target("the broker", ("127.0.0.1", 1))
    campaign = Campaign([target], Plan(1.0, 7), findings, Totals(), lambda text: None)
    campaign._together(target, Stall(1.0, 0.9, 0.2), [])
    assert not findings.kinds
    campaign._together(target, Stall(1.0, 0.9, 0.3), [])
    assert len(findings.kinds) == 1


def test_findings_are_kept_once(tmp_path: Path) -> None:
    findings = Findings(tmp_path, 7)
    steps = [Step(1, "raw", b"\0" * 30 + b"\x05", "X v1")]
    assert findings.add("a / b: c", "first", steps)
    assert not findings.add("a / b: c", "second", steps)
    (found,) = findings.kinds.values()
    assert (found.count, found.details) == (2, "first")
    (file,) = tmp_path.iterdir()
    assert list(read(file.read_text())) == steps
    assert "2 x a / b: c" in str(findings)


def test_a_recording_is_written_and_read() -> None:
    steps = [
        Step(1, "raw", b"\0\0\0\4abcd", "FETCH v4"),
        Step(2, "raw", b"x" * 5000 + b"\n" * 30),
        Step(1, "learnt", b"m-1", "member id"),
        Step(1, "eof"),
        Step(2, "close"),
    ]
    text = write(steps, "two\nlines")
    assert len(text) < 300
    assert list(read(text)) == steps
    (frame,) = read("1 frame 0001*3 ff # three times")
    assert frame.on_the_wire == b"\0\0\0\7" + b"\0\1" * 3 + b"\xff"


@pytest.mark.parametrize("text", ["1", "x raw 00", "1 shout 00", "1 raw 0g", "1 raw 00*x"])
def test_what_is_no_recording(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|hexadecimal"):
        list(read(text))


def test_the_recorder_forgets_what_is_old() -> None:
    recorder = Recorder(memory_bytes=5000)
    for number in range(100):
        recorder.add(Step(number, "raw", bytes(400), at=float(number)))
    assert [step.connection for step in recorder.last(3)] == [97, 98, 99]
    assert len(recorder.last(1000)) == 10
    assert [step.connection for step in recorder.between(95.0, 96.0)] == [95, 96]


def test_a_replay_puts_in_what_this_run_gives() -> None:
    seen: list[bytes] = []

    def answer(frame: bytes) -> bytes:
        seen.append(frame)
        header = parse_request_header(frame)
        body = encode(JoinGroupResponse(member_id="NEW-ID"), 0)
        return b"".join(response_frame(header.api_key, 0, header.correlation_id, [body]))  # type: ignore[arg-type]

    text = (
        "1 frame 000b0000 00000001 ffff\n1 learnt member id 4f4c442d4944\n1 frame 000c0000 00000002 ffff 4f4c442d4944\n"
    )
    with peer(answer) as address:
        assert replay(address, read(text)) == 2
    assert seen[1].endswith(b"NEW-ID")


def test_memory_of_nobody() -> None:
    assert memory_bytes(2**22 + 1) == 0

"""What connections cost that have begun something and say no more: the broker's memory for each, by kind.

Half-open TLS is a handshake of which a part has come, or the client's hello, which has been answered. A half-open
log-in waits for the next token. Beside them an honest client asks; at the end all of them must be gone by the
broker's own clocks (ten seconds for TLS, thirty for log-ins). As many as the process may have descriptors for.
"""

from __future__ import annotations

import resource
import socket
import time
from pathlib import Path

from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from compat_tests.fuzz.campaign import say
from compat_tests.fuzz.honest import Wronged
from compat_tests.fuzz.probe import Probe
from compat_tests.fuzz.strangers.campaign import Beside, started
from compat_tests.fuzz.strangers.listeners import ground
from compat_tests.fuzz.strangers.talk import USER, client_hello
from compat_tests.fuzz.watch import Log, descriptors, memory_bytes
from compat_tests.harness.broker_process import Server

GONE_S = 90.0
ACCEPTED_S = 2.0
PER_CONNECTION_MAX = 100 * 1024
"""Bytes that a half-open connection may cost. OpenSSL takes half of it for a handshake."""
SPARE = 200


def descriptors_for(count: int) -> int:
    """How many connections this process may have at once, of `count`: its limit is raised as far as allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return count if hard == resource.RLIM_INFINITY else min(count, hard - SPARE)


def kinds() -> tuple[tuple[str, str, bytes, bool], ...]:
    """What each is called, its listener's protocol, what is said, and whether that is answered."""
    hello = client_hello()
    token = b"n,,n=%s,r=nonce" % USER.encode()
    scram = request_frame(1, 1, "c", SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))
    scram += request_frame(2, 2, "c", SaslAuthenticateRequest(auth_bytes=token))
    return (
        ("a hello that was answered", "SSL", hello, True),
        ("half a hello", "SASL_SSL", hello[:100], False),
        ("a log-in by SCRAM that was answered", "SASL_PLAINTEXT", bytes(scram), True),
        ("not a byte", "SASL_PLAINTEXT", b"", False),
    )


def half_open(directory: Path, count: int) -> int:
    """See the module. Exit code 1 when something was found."""
    allowed = descriptors_for(count)
    if allowed < count:
        say(f"{allowed} connections instead of {count}: the process may have no more descriptors")
    rules = ground(directory)
    findings: list[str] = []
    for number, (what, listener, said, is_answered) in enumerate(kinds()):
        # A broker for each, as memory that is free does not show. The backlog is no part of what is measured.
        data = directory / str(number)
        data.mkdir()
        server, addresses = started(data, rules, **{"socket.listen.backlog.size": str(count)})
        beside = Beside(server, addresses, rules)
        log, probe = Log(server.log), Probe(server.bootstrap, server.pid)
        try:
            beside.begin()
            probe.start()
            findings += _one_kind(server, beside, what, addresses[listener], said, is_answered, allowed)
            probe.stop()
            findings += [entry.text for entry in log.errors(all_of_it=True)]
        finally:
            server.stop()
        print(f"    slowest answer to an honest client: {probe.longest:.3f} s", flush=True)
    print(f"{len(findings)} findings" + "".join(f"\n  {text[:2000]}" for text in findings))
    return 1 if findings else 0


def _wait_for_answer(sock: socket.socket) -> None:
    """Of the last, as the broker serves them in their order."""
    try:
        sock.recv(1)
    except OSError:
        pass  # it was closed meanwhile


def _one_kind(
    server: Server,
    beside: Beside,
    what: str,
    address: tuple[str, int],
    said: bytes,
    is_answered: bool,
    count: int,
) -> list[str]:
    found = []
    held, before, begun = descriptors(server.pid), memory_bytes(server.pid), time.monotonic()
    socks: list[socket.socket] = []
    try:
        for _ in range(count):
            sock = socket.create_connection(address, 30)
            socks.append(sock)
            sock.sendall(said)
        if is_answered:
            _wait_for_answer(socks[-1])
        until = time.monotonic() + ACCEPTED_S
        while (most := descriptors(server.pid) - held) < count and time.monotonic() < until:
            time.sleep(0.02)
        each = (memory_bytes(server.pid) - before) / max(most, 1)
        opened_s = time.monotonic() - begun
        try:
            beside.session()
        except Wronged as error:
            found.append(f"beside {what}: {error}")
        until = time.monotonic() + GONE_S
        while descriptors(server.pid) > held + SPARE // 10 and time.monotonic() < until:
            time.sleep(0.2)
        left = descriptors(server.pid) - held
    finally:
        for sock in socks:
            sock.close()
    gone_s = time.monotonic() - begun - opened_s
    print(
        f"{what}: {count} connections in {opened_s:.1f} s, {most} at once, {each / 1024:.1f} KiB each; "
        f"{left} are left {gone_s:.0f} s later",
        flush=True,
    )
    if each > PER_CONNECTION_MAX:
        found.append(f"{what}: {each / 1024:.1f} KiB for each connection")
    if left > SPARE // 10:
        found.append(f"{what}: {left} connections are not closed by the broker")
    return found

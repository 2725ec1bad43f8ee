"""Networks that can be cut: one Linux network namespace per process, joined by a router in a namespace of its own.

Every process has an address of its own (10.B.n.2, B claimed by the name of a socket, so that no other run has it); the
router forwards between them and to this process. A cut is a routing rule in the router that drops packets silently, as
a broken cable does: nobody is told, connections hang. Needs root and `ip` (iproute2); `unavailable()` says what is
missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

PREFIX = "clusternet"
HOME = "home"
FIRST_SUBNET, SUBNETS = 64, 128


def unavailable() -> str | None:
    """Return why namespaces cannot be made here, or None when they can."""
    if shutil.which("ip") is None:
        return "no `ip` command (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    trial = f"{PREFIX}-{os.getpid()}-trial"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    _ip("netns", "del", trial)
    return None


class Network:
    """The namespaces of *names* and the router between them; `close()` takes all away."""

    def __init__(self, names: Sequence[str]) -> None:
        _sweep()
        tag = f"{os.getpid() & 0xFFFFF:x}"
        self._stem = f"{PREFIX}-{os.getpid()}"
        self._claim, number = _claimed()
        self._subnet = f"10.{number}"
        self._router = f"{self._stem}-router"
        self._cuts: set[tuple[str, str]] = set()
        self._numbers = {name: number for number, name in enumerate(names, 1)} | {HOME: 250}
        self._home_interface = f"cn{tag}i{self._numbers[HOME]}"
        self._made: list[str] = []
        try:
            self._add(self._router)
            self._inside(self._router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            for name, number in self._numbers.items():
                inner, outer = f"cn{tag}i{number}", f"cn{tag}o{number}"
                _ip("link", "add", inner, "type", "veth", "peer", "name", outer)
                _ip("link", "set", outer, "netns", self._router)
                self._router_ip("addr", "add", f"{self._subnet}.{number}.1/24", "dev", outer)
                self._router_ip("link", "set", outer, "up")
                if name == HOME:
                    _ip("addr", "add", f"{self._subnet}.{number}.2/24", "dev", inner)
                    _ip("link", "set", inner, "up")
                    _ip("route", "add", f"{self._subnet}.0.0/16", "via", f"{self._subnet}.{number}.1")
                    continue
                self._add(self._namespace(name))
                _ip("link", "set", inner, "netns", self._namespace(name))
                within = ("-n", self._namespace(name))
                _ip(*within, "addr", "add", f"{self._subnet}.{number}.2/24", "dev", inner)
                _ip(*within, "link", "set", inner, "up")
                _ip(*within, "link", "set", "lo", "up")
                _ip(*within, "route", "add", "default", "via", f"{self._subnet}.{number}.1")
        except BaseException:
            self.close()
            raise

    def address(self, name: str) -> str:
        """Return the IPv4 address of one of the names."""
        return f"{self._subnet}.{self._numbers[name]}.2"

    def prefix(self, name: str) -> list[str]:
        """Return what to put before a command so that it runs in that namespace (with the same process id)."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def cut(self, one: str, others: Iterable[str]) -> None:
        """Drop every packet between *one* and each of *others*, both ways."""
        for other in others:
            for source, target in ((one, other), (other, one)):
                if (source, target) not in self._cuts:
                    self._rule("add", source, target)
                    self._cuts.add((source, target))

    def cut_one_way(self, source: str, target: str) -> None:
        """Drop what *source* sends to *target*; the other direction still arrives."""
        if (source, target) not in self._cuts:
            self._rule("add", source, target)
            self._cuts.add((source, target))

    def heal(self) -> None:
        """Undo every cut."""
        while self._cuts:
            self._rule("del", *self._cuts.pop())

    def close(self) -> None:
        """Remove the namespaces; their interfaces go with them."""
        # Namespaces go when the kernel gets to it; our own end at once.
        subprocess.run(["ip", "link", "del", self._home_interface], capture_output=True, check=False)
        while self._made:
            subprocess.run(["ip", "netns", "del", self._made.pop()], capture_output=True, check=False)
        self._claim.close()

    def _rule(self, verb: str, source: str, target: str) -> None:
        ends = ("from", self.address(source), "to", self.address(target))
        self._router_ip("rule", verb, "pref", "100", *ends, "blackhole")

    def _namespace(self, name: str) -> str:
        return f"{self._stem}-{name}"

    def _add(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        self._made.append(namespace)

    def _router_ip(self, *arguments: str) -> None:
        _ip("-n", self._router, *arguments)

    def _inside(self, namespace: str, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", namespace, *command], check=True, capture_output=True)


def _claimed() -> tuple[socket.socket, int]:
    """A subnet that no other process here has, and the socket by whose name it is ours until it is closed."""
    for shift in range(SUBNETS):
        number = FIRST_SUBNET + (os.getpid() + shift) % SUBNETS
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0barnabas-tests-subnet-{number}")
        except OSError:
            claim.close()
        else:
            return claim, number
    raise OSError("all subnets are in use")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _sweep() -> None:
    """Remove the namespaces of processes that are gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        name = line.split()[0] if line.split() else ""
        stem, _, rest = name.partition("-")
        pid = rest.partition("-")[0]
        if stem == PREFIX and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

"""A small ZooKeeper server on the embedded tree, in this process: enough of the protocol for our client, and faults.

It answers connect, ping, sync, auth, exists, getData, getChildren, multi and close, and fires one-shot watches in the
order of a real server: the events of a commit reach a client before the answer of anything it asks later. Sessions end
when a test says so (`expire`), never by time. The same contract tests run on this and on a real server.

Faults: `drop` closes all connections, `refusing` takes no new ones, clearing `running` answers nobody, `lose_answer`
does the next commit and closes the connection instead of answering, `refuse_logins` accepts no credentials.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.replication.store.node_tree import Outcome, Tree
from barnabas.replication.store.store import (
    Check,
    CommitRefused,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    Op,
    Set,
    VersionMoved,
    parent_of,
)

INT = struct.Struct("!i")
LARGEST_PACKET = 0xFFFFF
ERRORS = {NoSuchNode: -101, NodeExists: -110, VersionMoved: -103, NodeNotEmpty: -111, EphemeralParent: -108}
CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4
OTHERS = 1  # the session of those who are not connected
CLOSE, EXISTS, GET_DATA, GET_CHILDREN, SYNC, PING, MULTI, AUTH = -11, 3, 4, 8, 9, 11, 14, 100


class Closed(Exception):
    """The connection is over."""


class Reader:
    """Jute values out of one packet."""

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.offset = 0

    def values(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(layout, self.packet, self.offset)
        self.offset += struct.calcsize(layout)
        return found

    def number(self) -> int:
        return self.values("!i")[0]

    def buffer(self) -> bytes:
        size = self.number()
        if size < 0:
            return b""
        self.offset += size
        return self.packet[self.offset - size : self.offset]

    def text(self) -> str:
        return self.buffer().decode()


def buffer(data: bytes | str) -> bytes:
    encoded = data.encode() if isinstance(data, str) else data
    return INT.pack(len(encoded)) + encoded


def stat(node: Node, owner: int = 1) -> bytes:
    owner = owner if node.ephemeral else 0
    return struct.pack(
        "!qqqqiiiqiiq", node.czxid, node.mzxid, 0, 0, node.version, 0, 0, owner, len(node.data), 0, node.czxid
    )


class Connection:
    """One client. Its watches are gone with it."""

    def __init__(self, server: FakeZooKeeper, peer: socket.socket) -> None:
        self.server = server
        self.peer = peer
        self.session = 0
        self.node_watches: set[str] = set()
        self.child_watches: set[str] = set()

    def run(self) -> None:
        try:
            self.greet(Reader(self.receive()))
            while True:
                packet = self.receive()
                self.server.running.wait()
                with self.server.lock:
                    if self.server.sessions.get(self.session) is not self:
                        return
                    self.serve(Reader(packet))
        except (Closed, OSError):
            pass
        finally:
            self.server.forget(self)

    def receive(self) -> bytes:
        (size,) = INT.unpack(self.exactly(4))
        if size > LARGEST_PACKET:
            raise Closed
        return self.exactly(size)

    def exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self.peer.recv(size - len(parts))
            if not part:
                raise Closed
            parts += part
        return parts

    def send(self, packet: bytes) -> None:
        self.peer.sendall(INT.pack(len(packet)) + packet)

    def close(self) -> None:
        try:
            self.peer.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def greet(self, request: Reader) -> None:
        _, last_zxid, timeout_ms, session = request.values("!iqiq")
        self.server.running.wait()
        with self.server.lock:
            if last_zxid > self.server.tree.zxid:
                raise Closed  # this client has seen more than this server
            if session and session not in self.server.sessions:
                self.send(struct.pack("!iiq", 0, 0, 0) + buffer(b"\0" * 16) + b"\0")
                raise Closed
            if not session:
                self.server.last_session += 1
                session = self.server.last_session
            former = self.server.sessions.get(session)
            if former is not None:
                former.close()
            self.server.sessions[session] = self
            self.session = session
            self.send(struct.pack("!iiq", 0, timeout_ms, session) + buffer(secrets.token_bytes(16)) + b"\0")

    def serve(self, request: Reader) -> None:
        xid, kind = request.values("!ii")
        tree = self.server.tree
        self.server.served += 1
        error, body = 0, b""
        if kind == EXISTS:
            path, watch = request.text(), request.values("!?")[0]
            node = tree.get(path)
            if watch:
                self.node_watches.add(path)
            error, body = (-101, b"") if node is None else (0, stat(node))
        elif kind == GET_DATA:
            node = tree.get(request.text())
            error, body = (-101, b"") if node is None else (0, buffer(node.data) + stat(node))
        elif kind == GET_CHILDREN:
            path, watch = request.text(), request.values("!?")[0]
            if tree.get(path) is None:
                error = -101
            else:
                if watch:
                    self.child_watches.add(path)
                names = tree.children(path)
                body = INT.pack(len(names)) + b"".join(buffer(name) for name in names)
        elif kind == SYNC:
            body = buffer(request.text())
        elif kind == MULTI:
            body = self.multi(request)
        elif kind == CLOSE:
            self.server.end(self.session)
        elif kind == AUTH:
            error = -115 if self.server.refuse_logins else 0
        elif kind != PING:
            error = -6
        if self.server.lose_answer and kind == MULTI:
            self.server.lose_answer = False
            raise Closed
        self.send(struct.pack("!iqi", xid, tree.zxid, error) + body)
        if kind == CLOSE:
            raise Closed

    def multi(self, request: Reader) -> bytes:
        ops: list[Op] = []
        while True:
            kind, done, _ = request.values("!i?i")
            if done:
                break
            path = request.text()
            if kind == 15:
                data = request.buffer()
                for _ in range(request.number()):
                    request.number(), request.text(), request.text()
                flags = request.number()
                ops.append(Create(path, data, ephemeral=bool(flags & 1), sequential=bool(flags & 2)))
            elif kind == 5:
                data = request.buffer()
                ops.append(Set(path, data, request.number()))
            elif kind == 2:
                ops.append(Delete(path, request.number()))
            else:
                assert kind == 13
                ops.append(Check(path, request.number()))
        parts = []
        try:
            outcome = self.server.commit(ops, self.session)
        except CommitRefused as exc:
            for index in range(len(ops)):
                error = 0 if index < exc.index else ERRORS[type(exc)] if index == exc.index else -2
                parts.append(struct.pack("!i?ii", -1, False, error, error))
        else:
            for op, node in zip(ops, outcome.nodes, strict=True):
                if isinstance(op, Create):
                    assert node is not None
                    parts.append(struct.pack("!i?i", 15, False, 0) + buffer(node.path) + stat(node, self.session))
                elif isinstance(op, Set):
                    assert node is not None
                    parts.append(struct.pack("!i?i", 5, False, 0) + stat(node, self.session))
                else:
                    parts.append(struct.pack("!i?i", 2 if isinstance(op, Delete) else 13, False, 0))
        return b"".join(parts) + struct.pack("!i?i", -1, True, -1)

    def notify(self, kind: int, path: str) -> None:
        try:
            self.send(struct.pack("!iqiii", -1, -1, 0, kind, 3) + buffer(path))
        except OSError:
            pass


class FakeZooKeeper:
    """The server. `connect` is its address; `lock` guards everything."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tree = Tree()
        self.sessions: dict[int, Connection | None] = {}
        self.last_session = 0x1000
        self.connections: set[Connection] = set()
        self.running = threading.Event()
        self.running.set()
        self.refusing = False
        self.lose_answer = False
        self.refuse_logins = False
        self.served = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connect = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                if self.refusing:
                    peer.close()
                    continue
                connection = Connection(self, peer)
                self.connections.add(connection)
                thread = threading.Thread(target=connection.run, daemon=True)
                self.threads.append(thread)
                thread.start()

    def forget(self, connection: Connection) -> None:
        with self.lock:
            self.connections.discard(connection)
            if self.sessions.get(connection.session) is connection:
                self.sessions[connection.session] = None
        connection.peer.close()

    def commit(self, ops: list[Op], session: int) -> Outcome:
        """Do it, and fire the watches."""
        outcome = self.tree.apply(ops, session)
        for op, node in zip(ops, outcome.nodes, strict=True):
            path = op.path if node is None else node.path
            if isinstance(op, Create):
                self.fire(CREATED, path, "node")
                self.fire(CHILD, parent_of(path), "children")
            elif isinstance(op, Set):
                self.fire(CHANGED, path, "node")
            elif isinstance(op, Delete):
                self.fire(DELETED, path, "both")
                self.fire(CHILD, parent_of(path), "children")
        return outcome

    def fire(self, kind: int, path: str, which: str) -> None:
        for connection in list(self.connections):
            watched = False
            if which != "children" and path in connection.node_watches:
                connection.node_watches.discard(path)
                watched = True
            if which != "node" and path in connection.child_watches:
                connection.child_watches.discard(path)
                watched = True
            if watched:
                connection.notify(kind, path)

    def end(self, session: int) -> None:
        """Remove a session and its ephemeral nodes."""
        self.sessions.pop(session, None)
        paths = self.tree.owned_by(session)
        if paths:
            self.commit([Delete(path) for path in paths], session)

    # -- what tests do -----------------------------------------------------------------------------------------------

    def expire(self, session: int) -> None:
        """End a session, as its time-out does."""
        with self.lock:
            if session not in self.sessions:
                return
            connection = self.sessions[session]
            self.end(session)
            if connection is not None:
                connection.close()

    def write(self, *ops: Op) -> None:
        """A commit of another session."""
        with self.lock:
            self.commit(list(ops), OTHERS)

    def owner(self, path: str) -> int:
        """The session of an ephemeral node; 0 for others, and where there is none."""
        with self.lock:
            for session in self.sessions:
                if path in self.tree.owned_by(session):
                    return session
        return 0

    def drop(self) -> None:
        """Close all connections; sessions stay."""
        with self.lock:
            for connection in self.connections:
                connection.close()

    def close(self) -> None:
        self.running.set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.drop()
        for thread in self.threads:
            thread.join(10)


@contextmanager
def fake_zookeeper() -> Iterator[FakeZooKeeper]:
    """A server for the length of a block."""
    server = FakeZooKeeper()
    try:
        yield server
    finally:
        server.close()

"""kazoo as this project uses it: one thread, its own sockets and TLS, commits as bytes.

kazoo's usual handler has a thread for the connection, one for answers and one for watches; the two queues between them
lose the order of answers and watch events. `OneThread` calls back at once, in the connection's thread, so the order is
ZooKeeper's. That is safe because our callbacks only hand over to trio (`zk_link.py`). It also

- looks at TLS's own buffer before it waits for the socket, or a second answer in one TLS record would wait for a third,
- polls without making an epoll object per wait (two thirds of kazoo's time per request),
- has the TLS that it is given, and no other,
- limits the time to connect to one server, its first answer included: a server that is starting may accept a connection
  and never answer on it, and kazoo would wait until the session has ended.

Times here are seconds. Nothing in this file runs in trio.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import kazoo.exceptions as errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from barnabas.replication.store.store import (
    AccessDenied,
    CommitRefused,
    ConnectionLost,
    EphemeralParent,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    Op,
    SessionExpired,
    StoreError,
    VersionMoved,
)
from barnabas.replication.store.zk_multi import Refused, decode_multi

log = logging.getLogger("barnabas.zookeeper")

_REFUSALS: dict[type[BaseException], tuple[type[CommitRefused], str]] = {
    errors.NoNodeError: (NoSuchNode, "there is no such node, or no parent"),
    errors.NodeExistsError: (NodeExists, "the node exists"),
    errors.BadVersionError: (VersionMoved, "the node has another version"),
    errors.NotEmptyError: (NodeNotEmpty, "the node has children"),
    errors.NoChildrenForEphemeralsError: (EphemeralParent, "the parent is ephemeral"),
    errors.NoAuthError: (AccessDenied, "its access list does not let us"),
    errors.InvalidACLError: (AccessDenied, "ZooKeeper does not know who we are (its access lists need a login)"),
}
_OUTCOME_UNKNOWN = (
    errors.ConnectionLoss,
    errors.OperationTimeoutError,
    errors.RequestTimeoutError,
    errors.SessionMovedError,
)
GONE: tuple[type[Exception], ...] = (errors.ConnectionLoss, errors.SessionExpiredError, errors.AuthFailedError)
"""How kazoo answers what was under way when a connection ended, or a session, or could not log in."""


class _KazooLog(logging.LoggerAdapter):  # type: ignore[type-arg]
    """kazoo logs every step; what matters is logged by the link. Only why a connection ended is taken from here."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        told_elsewhere = str(msg).startswith(
            ("Transition to", "Failed connecting", "Session has expired", "AUTH_FAILED")
        )
        super().log(logging.DEBUG if level <= logging.INFO or told_elsewhere else level, msg, *args, **kwargs)


class MultiRequest:
    """A commit in the shape that kazoo sends: it is asked for its `type` and bytes, and given the answer's bytes."""

    type = 14
    __slots__ = ("_body", "_ops", "_root")

    def __init__(self, ops: Sequence[Op], root: str, body: bytes) -> None:
        self._ops = ops
        self._root = root
        self._body = body

    def __repr__(self) -> str:
        return f"MultiRequest({', '.join(f'{type(op).__name__} {op.path}' for op in self._ops)})"

    def serialize(self) -> bytes:
        return self._body

    def deserialize(self, answer: bytes, offset: int) -> list[list[Node | None] | Refused]:
        return [decode_multi(self._ops, self._root, answer, offset)]  # a list: kazoo walks over it


def send_multi(client: Any, request: MultiRequest) -> Any:
    """Put a commit into kazoo's queue, as its own `TransactionRequest` does; returns its AsyncResult."""
    answer = client.handler.async_result()
    client._call(request, answer)
    return answer


def refusal(ops: Sequence[Op], refused: Refused) -> StoreError:
    """The error of store.py for an operation that ZooKeeper refused."""
    path = ops[refused.index].path
    kind = errors.EXCEPTIONS[refused.error]
    if kind in _REFUSALS:
        exception, why = _REFUSALS[kind]
        return exception(path, refused.index, why)
    if issubclass(kind, _OUTCOME_UNKNOWN):
        return ConnectionLost(f"{path}: {kind.__name__}")
    return CommitRefused(path, refused.index, kind.__name__)


def is_no_node(error: BaseException) -> bool:
    return isinstance(error, errors.NoNodeError)


def failure(path: str, error: BaseException) -> StoreError:
    """The error of store.py for a request about `path` that failed as a whole."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, errors.SessionExpiredError):
        return SessionExpired("the ZooKeeper session has expired")
    if isinstance(error, (*_OUTCOME_UNKNOWN, errors.AuthFailedError)):
        return ConnectionLost(f"{path}: the connection to ZooKeeper was lost")
    if type(error) in _REFUSALS:
        exception, why = _REFUSALS[type(error)]
        return exception(path, 0, why)
    return StoreError(f"{path}: {type(error).__name__} {error}")


class OneThread(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threading handler without the threads for callbacks. `trouble`: why the last connection failed."""

    name = "one_thread_handler"

    def __init__(self, context: ssl.SSLContext | None, connect_timeout: float) -> None:
        super().__init__()
        self._context = context
        self._connect_timeout = connect_timeout
        self._unanswered: socket.socket | None = None  # the new connection, until its first byte has come
        self.trouble: str | None = None

    def start(self) -> None:
        """No workers: `running` stays false, which makes kazoo call back at once."""

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> socket.socket:
        limit = self._connect_timeout if timeout is None else min(timeout, self._connect_timeout)
        try:
            connection = socket.create_connection(address, timeout=limit)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                try:
                    connection = self._context.wrap_socket(connection, server_hostname=hostname)
                except BaseException:
                    connection.close()
                    raise
            self._unanswered = connection
            return connection
        except OSError as exc:
            self.trouble = f"{hostname or address[0]}:{address[1]}: {exc}"
            raise

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        if self._unanswered is not None and self._unanswered in readers:
            timeout = self._connect_timeout if timeout is None else min(timeout, self._connect_timeout)
            self._unanswered = None
        decrypted = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        poll = select.poll()
        for one in readers:
            poll.register(one, select.POLLIN)
        for one in writers:
            poll.register(one, select.POLLOUT)
        wait_ms = 0 if decrypted else None if timeout is None else timeout * 1000
        ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
        return (
            [one for one in readers if one.fileno() in ready or one in decrypted],
            [one for one in writers if one.fileno() in ready],
            [],
        )


def make_client(
    hosts: str,
    *,
    session_timeout: float,
    context: ssl.SSLContext | None,
    sasl: tuple[str, str] | None,
    digest: tuple[str, str] | None,
) -> Any:
    """A client that is not started. hosts: without path. sasl: user and password for DIGEST-MD5; digest: for the
    scheme of that name. It reconnects until it is stopped, in the end each second.
    """
    share = session_timeout / (hosts.count(",") + 1)
    return KazooClient(
        hosts=hosts,
        timeout=session_timeout,
        handler=OneThread(context, min(share, max(2.0, share / 3))),
        auth_data=[("digest", ":".join(digest))] if digest else None,
        sasl_options={"mechanism": "DIGEST-MD5", "username": sasl[0], "password": sasl[1]} if sasl else None,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
        use_ssl=context is not None,
        logger=_KazooLog(log, {}),
    )

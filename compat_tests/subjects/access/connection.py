"""One user's connection to a broker: log-in with PLAIN, then a request and its answer, the next one."""

from __future__ import annotations

import socket
from typing import Any

from barnabas.kproto import ApiKey, Message, decode, request_class, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.kproto.notation import Struct

ANSWER_S = 120.0
Values = dict[str, Any]


class Closed(Exception):
    """The broker closed the connection instead of an answer."""


def request(key: ApiKey, version: int, values: Values) -> Message:
    """A request out of plain dictionaries. Fields that the version does not have are left out; one that no version has
    raises KeyError.
    """
    cls = request_class(key)
    whole = cls.__description__.struct

    def record(struct: Struct, given: Values) -> Any:
        fields = {field.name: field for field in struct.fields}
        arguments = {}
        for name, value in given.items():
            field = fields[name]
            if not field.versions.has(version):
                continue
            if field.struct is not None and isinstance(value, list):
                value = [record(field.struct, each) for each in value]
            elif field.struct is not None and isinstance(value, dict):
                value = record(field.struct, value)
            arguments[name] = value
        made = cls if struct is whole else getattr(cls, struct.name)
        return made(**arguments)

    return record(whole, values)  # type: ignore[no-any-return]


class Connection:
    """user: logs in as this user, whose password is their name; None: on a listener without log-in."""

    def __init__(self, address: tuple[str, int], user: str | None = None) -> None:
        self._address = address
        self._user = user
        self._socket: socket.socket | None = None
        self._id = 0

    def ask(self, request: Any, version: int) -> Any:
        """The answer. Raises Closed; the next question opens a new connection."""
        self.send(request, version)
        return self._receive(request, version)

    def send(self, request: Any, version: int) -> None:
        if self._socket is None:
            self._open()
        self._id += 1
        assert self._socket is not None
        try:
            self._socket.sendall(request_frame(version, self._id, "table", request))
        except ConnectionError:
            self._lost()

    def still_serves(self) -> bool:
        """Whether the next request on this very connection is answered."""
        try:
            self.ask(ApiVersionsRequest(), 0)
        except Closed:
            return False
        return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address, ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._user is not None:
            shaken = self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert not shaken.error_code, shaken
            token = f"\0{self._user}\0{self._user}".encode()
            let_in = self.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
            assert not let_in.error_code, let_in

    def _receive(self, request: Any, version: int) -> Any:
        key = ApiKey(request.__description__.api_key)
        frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        correlation_id, offset = parse_response_header(key, version, frame)
        assert correlation_id == self._id, f"{key.name} v{version}: the answer is to another request"
        return decode(response_class(key), version, frame, offset)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except ConnectionError:
                piece = b""
            if not piece:
                self._lost()
            data += piece
        return bytes(data)

    def _lost(self) -> None:
        self.close()
        raise Closed

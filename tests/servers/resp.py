"""A blocking Redis client of a few lines, to set servers up and to look into them."""

from __future__ import annotations

import socket
import ssl
from typing import Any, BinaryIO, Self

Argument = str | bytes | int | float

_TIMEOUT = 10.0  # seconds for a connection, a read or a write


class RedisError(Exception):
    """The server's error answer, word for word."""


class Connection:
    """One connection, that of a context manager; speaks RESP 2."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self._answers: BinaryIO = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def command(self, *arguments: Argument) -> Any:
        """The answer: bytes, int, None or a list of those.

        Raises:
            RedisError: the server refused it.
            OSError: the connection was lost, or nothing came within 10 seconds.
        """
        parts = [each if isinstance(each, bytes) else str(each).encode() for each in arguments]
        sent = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        self._socket.sendall(b"*%d\r\n%b" % (len(parts), sent))
        return self._answer()

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b"+":
            return rest
        size = int(rest)
        if kind == b":":
            return size
        if size < 0:
            return None
        if kind == b"*":
            return [self._answer() for _ in range(size)]
        body = self._answers.read(size + 2)
        if len(body) != size + 2:
            raise ConnectionResetError("the server closed the connection")
        return body[:-2]

"""Memcached's text protocol over one pipelined connection per server.

Why not a client library: with aiomcache 0.8.2, 300 concurrent gets of which 100 were cancelled gave other keys' values
to 259 callers, as a connection goes back to the pool with a reply still to come; emcache 1.3.3 was right, but waits
out the time limit when the server is down, and looks only after 1 to 60 s whether it is back; pymemcache blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from stratacache.errors import StoreError
from stratacache.stores.pipelined import PipelinedConnection

_LONGEST_LINE = 8192
_LARGEST_VALUE = 64 << 20
_ERRORS = (b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")
_DONE = frozenset(
    {b"END", b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND", b"DELETED", b"TOUCHED", b"VERSION", *_ERRORS}
)
_FOREIGN = "what it says is not Memcached's protocol"
_NOT_A_NUMBER = b"CLIENT_ERROR cannot increment"


class Refused(StoreError):
    """The server answered a command with an error, ``line``: a value is too large for it, or its memory is full."""

    def __init__(self, server: str, line: bytes) -> None:
        super().__init__(f"memcached {server}: {line.decode(errors='replace')}")
        self.line = line


class Item(msgspec.Struct, frozen=True):
    """A value and the number that ``cas`` compares."""

    value: bytes
    unique: int


class Reply(msgspec.Struct):
    """What the server said to one command: the last line, such as ``STORED``, and before it items or figures."""

    line: bytes = b""
    items: dict[bytes, Item] = msgspec.field(default_factory=dict)
    figures: dict[str, str] = msgspec.field(default_factory=dict)


def get(keys: Iterable[bytes]) -> bytes:
    """A look-up of one key or more."""
    return b"gets %b\r\n" % b" ".join(keys)


def store(verb: bytes, key: bytes, value: bytes, seconds: int, unique: int | None = None) -> bytes:
    """``verb`` is set, add or cas (with ``unique``); ``seconds`` at most 30 days, 0: for ever, < 0: gone at once."""
    tail = b"" if unique is None else b" %d" % unique
    return b"%b %b 0 %d %d%b\r\n%b\r\n" % (verb, key, seconds, len(value), tail, value)


def touch(key: bytes, seconds: int) -> bytes:
    return b"touch %b %d\r\n" % (key, seconds)


def count_up(key: bytes) -> bytes:
    return b"incr %b 1\r\n" % key


def delete(key: bytes) -> bytes:
    return b"delete %b\r\n" % key


class _Connection(PipelinedConnection[Reply]):
    """One connection to a Memcached server: splits what arrives into replies."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"memcached {name}", seconds)
        self._reply = Reply()
        self._buffer = bytearray()
        # Key, size and unique number of the value that is due.
        self._value: tuple[bytes, int, int] | None = None

    def send(self, commands: Sequence[bytes]) -> list[asyncio.Future[Reply]]:
        """Send ``commands``, and give a future for the reply to each."""
        return self.write(b"".join(commands), len(commands))

    def _split(self, data: bytes) -> None:
        self._buffer += data
        while self.usable and self._step():
            pass

    def _step(self) -> bool:
        """Take one line or value out of the buffer; False when it is not there yet."""
        if self._value is not None:
            key, size, unique = self._value
            if len(self._buffer) < size + 2:
                return False
            self._reply.items[key] = Item(bytes(memoryview(self._buffer)[:size]), unique)
            del self._buffer[: size + 2]
            self._value = None
            return True
        end = self._buffer.find(b"\r\n", 0, _LONGEST_LINE)
        if end < 0:
            if len(self._buffer) >= _LONGEST_LINE:
                self.close(_FOREIGN)
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        self._take_line(line)
        return True

    def _take_line(self, line: bytes) -> None:
        words = line.split(b" ")
        try:
            if words[0] == b"VALUE":
                self._value = (words[1], self._size(words[3]), int(words[4]))
            elif words[0] == b"STAT":
                self._reply.figures[words[1].decode()] = b" ".join(words[2:]).decode()
            elif words[0] not in _DONE and not line.isdigit():
                self.close(_FOREIGN)
            else:
                self._finish(line)
                if words[0] in _ERRORS[:2] and not line.startswith(_NOT_A_NUMBER):
                    # The rest of what was sent might be taken for commands.
                    self.close(f"it refused a command: {line.decode(errors='replace')}")
        except (IndexError, ValueError):
            self.close(_FOREIGN)

    @staticmethod
    def _size(word: bytes) -> int:
        size = int(word)
        if not 0 <= size <= _LARGEST_VALUE:
            raise ValueError(f"a value of {size} bytes")
        return size

    def _finish(self, line: bytes) -> None:
        reply, self._reply = self._reply, Reply()
        reply.line = line
        self.answer(reply)


class Server:
    """One Memcached server: connects when asked, and again after a failure.

    Args:
        host, port: where it is.
        seconds: how long it may take to connect, and to say anything while replies are due.
    """

    def __init__(self, host: str, port: int, *, seconds: float = 1.0) -> None:
        self.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host, self._port = host, port
        self._seconds = seconds
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._closed = False

    async def call(self, *commands: bytes) -> list[Reply]:
        """The replies to ``commands``, which the server carries out in this order.

        Cancelled or not, all that was sent is carried out, perhaps later.

        Raises:
            StoreError: the server cannot be reached, did not answer in time or refused a command; any of the commands
                may have been carried out.
        """
        if self._closed:
            raise StoreError("the Memcached store is closed")
        connection = self._connection
        if connection is None or not connection.usable:
            connection = await self._connect()
        replies = [await future for future in connection.send(commands)]
        for reply in replies:
            if reply.line.startswith(_ERRORS):
                raise Refused(self.name, reply.line)
        return replies

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close("the store was closed")

    async def _connect(self) -> _Connection:
        """A new connection; all who need it wait for one attempt, which no cancelled caller ends for the others."""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._open(), name=f"connect to memcached {self.name}")
            self._connecting.add_done_callback(self._connected)
        attempt = self._connecting
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise StoreError("the Memcached store is closed")
        failure = attempt.exception()
        if failure is not None:
            raise StoreError(str(failure)) from failure
        return attempt.result()

    def _connected(self, task: asyncio.Task[_Connection]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self.name, self._seconds), self._host, self._port
                )
        except TimeoutError as error:
            raise StoreError(f"memcached {self.name}: no connection within {self._seconds:g} s") from error
        except OSError as error:
            raise StoreError(f"memcached {self.name}: {error}") from error
        return connection

"""Sends requests when they are due, however slow the answers are, and times each from the moment it was due.

A client that waits for an answer before it sends the next request leaves out the requests that a slow server would
have made wait ("coordinated omission"). Here the schedule stands before the run; what finds no free connection waits
for one, and that wait is part of its time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from stratacache.errors import StrataError

MOST_BODY = 4 << 20
_BATCH = 64


class Target(NamedTuple):
    """``path`` of the chat endpoint; ``headers``: further header lines, each ended by CRLF."""

    host: str
    port: int
    secure: bool
    path: str
    headers: str = ""

    def request(self, body: bytes) -> bytes:
        """The bytes of one POST."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\ncontent-type: application/json\r\n"
            f"accept: application/json\r\n{self.headers}content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Timed(NamedTuple):
    """``due`` and ``done`` in seconds from the start of the run; status 0: no answer. ``late``: sent so much after."""

    due: float
    late: float
    done: float
    status: int
    headers: dict[bytes, bytes]
    body: bytes


def target_of(url: str, key: str | None = None) -> Target:
    """Of an OpenAI-compatible base URL, with or without ``/v1``. Raises StrataError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("http", "https"):
        raise StrataError(f"{url!r} is not an http(s) address")
    secure = parts.scheme == "https"
    base = parts.path.rstrip("/") or "/v1"
    if key is not None and not (key.isascii() and key.isprintable()):
        raise StrataError("the API key has characters that no header may have")
    headers = f"authorization: Bearer {key}\r\n" if key else ""
    return Target(host, port or (443 if secure else 80), secure, f"{base}/chat/completions", headers)


class _Job:
    __slots__ = ("data", "due", "number", "sent")

    def __init__(self, number: int, due: float, data: bytes) -> None:
        self.number, self.due, self.data, self.sent = number, due, data, 0.0


class _Wire(asyncio.Protocol):
    """One keep-alive connection with at most one request on it."""

    def __init__(self, run: OpenLoop) -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._job: _Job | None = None
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0

    def send(self, job: _Job) -> None:
        assert self._transport is not None
        self._job = job
        job.sent = self._run.now()
        self._transport.write(job.data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        job, self._job = self._job, None
        self._run.lost(self, job)

    # the parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MOST_BODY:
            self.close()
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        job, self._job = self._job, None
        status, headers, body = self._parser.get_status_code(), self._headers, b"".join(self._body)
        keep = self._parser.should_keep_alive()
        self._reset()
        if job is None or not keep:
            self.close()
        if job is not None:
            self._run.answered(self if keep else None, job, status, headers, body)


class OpenLoop:
    """One run over at most ``connections`` connections; ``timeout`` seconds after the last due time it ends."""

    def __init__(self, target: Target, *, connections: int = 512, timeout: float = 30.0) -> None:
        self._target, self._most, self._timeout = target, connections, timeout
        self._free: list[_Wire] = []
        self._all: set[_Wire] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Job] = deque()
        self._results: list[Timed | None] = []
        self._left = 0
        self._finished = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started = 0.0
        self._context = ssl.create_default_context() if target.secure else None

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._loop.time() - self._started

    async def run(self, schedule: Sequence[tuple[float, bytes]]) -> list[Timed]:
        """Send each body at its time; results in the schedule's order."""
        self._results = [None] * len(schedule)
        self._left = len(schedule)
        jobs = [_Job(number, due, self._target.request(body)) for number, (due, body) in enumerate(schedule)]
        self._started = self._loop.time()
        try:
            for number, job in enumerate(jobs):
                wait = job.due - self.now()
                if wait > 0 or number % _BATCH == 0:  # answers are read in between, even when all is late
                    await asyncio.sleep(max(0.0, wait))
                self._start(job)
            if self._left:
                await asyncio.wait_for(self._finished.wait(), self._timeout)
        except TimeoutError:
            pass
        finally:
            await self._close()
        end = self.now()
        return [
            result or Timed(job.due, max(0.0, (job.sent or end) - job.due), end, 0, {}, b"")
            for job, result in zip(jobs, self._results, strict=True)
        ]

    def answered(
        self, wire: _Wire | None, job: _Job, status: int, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        self._finish(job, status, headers, body)
        if wire is not None:
            if self._waiting:
                wire.send(self._waiting.popleft())
            else:
                self._free.append(wire)

    def lost(self, wire: _Wire, job: _Job | None) -> None:
        """The connection is gone; what was on it has no answer."""
        self._all.discard(wire)
        if wire in self._free:
            self._free.remove(wire)
        if job is not None:
            self._finish(job, 0, {}, b"")
        if self._waiting:
            self._start(self._waiting.popleft())

    def _start(self, job: _Job) -> None:
        if self._free:
            self._free.pop().send(job)
        elif len(self._all) + len(self._opening) < self._most:
            task = self._loop.create_task(self._open(job))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        else:
            self._waiting.append(job)

    async def _open(self, job: _Job) -> None:
        try:
            _, wire = await self._loop.create_connection(
                lambda: _Wire(self), self._target.host, self._target.port, ssl=self._context
            )
        except OSError:
            self._finish(job, 0, {}, b"")
            if self._waiting:
                self._start(self._waiting.popleft())
            return
        self._all.add(wire)
        wire.send(job)

    def _finish(self, job: _Job, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        if self._results[job.number] is None:
            late = max(0.0, job.sent - job.due)
            self._results[job.number] = Timed(job.due, late, self.now(), status, headers, body)
            self._left -= 1
            if not self._left:
                self._finished.set()

    async def _close(self) -> None:
        self._waiting.clear()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for wire in list(self._all):
            wire.close()
        await asyncio.sleep(0)

"""One run of a child process that announces its port: start, ready line, last words, stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

_KEPT_LINES = 20
_MAX_LINE = 500


class _Ready(msgspec.Struct):
    ready: bool
    port: int


class Child:
    """A running child. Its stdout and stderr are read to the end, so that it never blocks on a full pipe."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self._process = process
        self._words: deque[str] = deque(maxlen=_KEPT_LINES)
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._readers = [
            asyncio.create_task(self._read_stdout(process.stdout)),
            asyncio.create_task(self._read_stderr(process.stderr)),
        ]

    @classmethod
    async def spawn(cls, command: Sequence[str]) -> Child:
        """Start ``command``; raises OSError. Cancelled midway it leaves no process behind."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl-C in a terminal signals the whole group: the child would die before answers have ended.
                start_new_session=True,
            )
        )
        try:
            return cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            process = await starting
            process.kill()
            await process.wait()
            raise

    async def port(self, timeout: float) -> int | None:
        """The port from the ready line; None when the child ends without one or needs over ``timeout`` s."""
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({self._port, ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        return self._port.result() if self._port.done() and not self._port.cancelled() else None

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        """The exit code once the child has ended; negative: the signal that ended it."""
        return await self._process.wait()

    async def stop(self, grace: float) -> None:
        """SIGTERM, after ``grace`` seconds SIGKILL; returns when the child is gone. Idempotent."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(grace):
                    await self._process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
        # A grandchild may hold the pipes open, so their ends are not waited for.
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def last_words(self) -> str:
        """The last line that the ended child wrote to stderr, "" without one."""
        await asyncio.wait(self._readers, timeout=1.0)
        return self._words[-1] if self._words else ""

    async def _read_stdout(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            try:
                said = msgspec.json.decode(line, type=_Ready)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if said.ready and not self._port.done():
                self._port.set_result(said.port)

    async def _read_stderr(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            if line.strip():
                self._words.append(line.strip())


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines, cut to a bounded length: ``StreamReader.readline`` raises on a long one and stops draining."""
    rest = b""
    while chunk := await stream.read(65536):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[:_MAX_LINE]
        for line in whole:
            yield line[:_MAX_LINE].decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")

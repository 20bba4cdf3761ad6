"""Runs the embedded engine's process: starts it, notices when it ends or hangs, starts it again, stops it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from stratacache.upstream.process import Child

log = logging.getLogger(__name__)

_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 30.0
_STEADY = 60.0  # an engine that ran this long has its failures forgiven
_HOPELESS = 3  # failures in a row after which requests do not wait for the next start
_START_LIMIT = 600.0  # the very first start converts the model's weights
_STOP_GRACE = 10.0
_CHECK_PAUSE = 5.0
_HUNG = 6  # unanswered checks in a row; counted, since a clock also runs while the machine sleeps

Health = Callable[[int], Awaitable[bool]]
"""Whether the engine on this port of loopback answers; bounded in time, never raises."""


class EngineState(msgspec.Struct, frozen=True):
    """Where the engine listens (None: nowhere now), why it failed last, and whether to wait for it is pointless."""

    port: int | None = None
    failure: str = ""
    hopeless: bool = False


class EngineProcess:
    """Keeps one engine running from ``start`` to ``stop``.

    Args:
        name: of the upstream, for messages.
        command: starts the engine, which announces its port on stdout.
        publish: is told every change of state, in order.
        health: asked every few seconds; an engine that stays silent is killed and started again.
        sleep, monotonic: wait between restarts and measure how long the engine ran; seconds.
        check_pause: waits between two checks.
        start_limit, stop_grace: seconds after which a start is given up, and a stop turns into a kill.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        publish: Callable[[EngineState], Awaitable[None]],
        health: Health,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        check_pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(_CHECK_PAUSE),
        start_limit: float = _START_LIMIT,
        stop_grace: float = _STOP_GRACE,
    ) -> None:
        self._name = name
        self._command = command
        self._publish = publish
        self._health = health
        self._sleep = sleep
        self._monotonic = monotonic
        self._check_pause = check_pause
        self._start_limit = start_limit
        self._stop_grace = stop_grace
        self._failures = 0
        self._failure = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; returns before the engine is ready. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._supervise(), name=f"engine-{self._name}")

    async def stop(self) -> None:
        """Stop the engine: SIGTERM, then SIGKILL after a grace. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _supervise(self) -> None:
        """Run the engine again and again, until cancelled."""
        while True:
            began = self._monotonic()
            was_ready = await self._run_once()
            if was_ready and self._monotonic() - began >= _STEADY:
                self._failures = 0
            self._failures += 1
            log.warning("engine %s: %s; starting it again", self._name, self._failure)
            await self._publish(EngineState(None, self._failure, self._failures >= _HOPELESS))
            await self._sleep(min(_MAX_BACKOFF, _FIRST_BACKOFF * 2 ** min(self._failures - 1, 10)))
            await self._publish(EngineState(None, self._failure))

    async def _run_once(self) -> bool:
        """Start the engine and stay with it until it ends or hangs; True when it had become ready."""
        try:
            child = await Child.spawn(self._command)
        except OSError as error:
            self._failure = f"it cannot be started: {error.strerror}"
            return False
        port = None
        grace = self._stop_grace
        try:
            port = await child.port(self._start_limit)
            if port is None:
                self._failure = await self._epitaph(child)
            else:
                log.info("engine %s: ready, process %d", self._name, child.pid)
                await self._publish(EngineState(port))
                if await self._stay_with(child, port):
                    self._failure = await self._epitaph(child)
                else:
                    grace = 0.0  # who does not answer does not end when asked to, either
                    self._failure = f"it did not answer {_HUNG} health checks in a row"
        finally:
            await self._publish(EngineState(None, self._failure))
            await child.stop(grace)
        return port is not None

    async def _stay_with(self, child: Child, port: int) -> bool:
        """Returns when the child has ended (True) or hangs (False)."""
        watch = asyncio.create_task(self._until_silent(port))
        ended = asyncio.create_task(child.wait())
        try:
            await asyncio.wait({watch, ended}, return_when=asyncio.FIRST_COMPLETED)
            return not child.running
        finally:
            watch.cancel()
            ended.cancel()
            await asyncio.gather(watch, ended, return_exceptions=True)

    async def _until_silent(self, port: int) -> None:
        silent = 0
        while silent < _HUNG:
            await self._check_pause()
            silent = 0 if await self._health(port) else silent + 1

    async def _epitaph(self, child: Child) -> str:
        if child.running:
            return f"it did not become ready within {self._start_limit:g} s"
        said = await child.last_words()
        return f"it ended with code {await child.wait()}" + (f" ({said})" if said else "")

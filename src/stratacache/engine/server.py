"""Runs the engine as its own process: load, listen, say so on stdout, serve, end cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import uvicorn

from stratacache.engine.app import App
from stratacache.engine.config import EngineConfig
from stratacache.engine.convert import model_folder, model_name
from stratacache.engine.engine import Engine
from stratacache.engine.grammar import GrammarCompiler
from stratacache.engine.loop import EngineThread
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer
from stratacache.engine.weights import load

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which re-raises SIGTERM and so never exits with 0."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(
    host: str,
    port: int,
    *,
    model_dir: Path | None,
    cache_dir: Path,
    config: EngineConfig,
    default_max_tokens: int,
    request_timeout: float | None,
    parent_pid: int | None,
    grace: float,
) -> int:
    """Serves until SIGTERM or SIGINT (or until the parent process is gone); returns the exit code.

    Answers under way then get `grace` seconds to finish.
    Port 0 takes a free one. Once it can answer, one line of JSON on stdout says
    `{"ready": true, "port": N, "model": "smollm2-135m"}`. Raises ModelUnavailable, SettingsError and OSError.
    """
    torch.set_num_threads(config.threads)
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    with listener:
        folder = model_folder(model_dir, cache_dir)
        model_config, weights = load(folder, config.dtype, config.device)
        tokenizer = Tokenizer(folder)
        engine = Engine(model_config, weights, config)
        service = _Service(engine, tokenizer, folder, default_max_tokens, request_timeout, grace)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(service.serve(listener, parent_pid))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # no wheel on Windows
        return None
    return uvloop.new_event_loop


class _Service:
    """The thread, the app and uvicorn of one process, and the order in which they end."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        folder: Path,
        default_max_tokens: int,
        request_timeout: float | None,
        grace: float,
    ) -> None:
        self._grace = grace
        self._model = model_name(folder)
        self._thread = EngineThread(engine, tokenizer, self._on_failure)
        self._app = App(
            self._thread,
            tokenizer,
            ChatTemplate.from_folder(folder),
            GrammarCompiler(folder, engine.vocab_size, engine.ends),
            model=self._model,
            fingerprint=f"fp_{folder.name}",
            default_max_tokens=default_max_tokens,
            request_timeout=request_timeout,
        )

    async def serve(self, listener: socket.socket, parent_pid: int | None) -> int:
        self._loop = asyncio.get_running_loop()
        settings = uvicorn.Config(
            self._app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=int(self._grace) + 2,
        )
        self._server = _Server(settings, lambda: _announce(listener, self._model))
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._close, self._grace)
        with _parent_watch(self._loop, parent_pid, lambda: self._close(0.0)):
            self._thread.start()
            await self._server.serve(sockets=[listener])
        await asyncio.to_thread(self._thread.stop)
        return 1 if self._thread.failed else 0

    def _close(self, grace: float) -> None:
        """Takes no more requests; cuts those under way after `grace` seconds with an error they can read."""
        self._app.draining = True
        self._server.should_exit = True
        self._loop.call_later(grace, lambda: self._loop.run_in_executor(None, self._thread.stop))

    def _on_failure(self) -> None:
        self._loop.call_soon_threadsafe(self._close, 0.0)


def _announce(listener: socket.socket, model: str) -> None:
    line = {"ready": True, "port": listener.getsockname()[1], "model": model}
    with contextlib.suppress(BrokenPipeError):  # whoever started us may be gone already
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _parent_watch(
    loop: asyncio.AbstractEventLoop, pid: int | None, on_gone: Callable[[], None]
) -> Iterator[None]:
    """Calls `on_gone` when process `pid` ends, through a pidfd: no polling, and no mistaken identity."""
    if pid is None:
        yield
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        loop.call_soon(on_gone)
        yield
        return

    def gone() -> None:
        loop.remove_reader(descriptor)
        log.warning("the parent process %d is gone: ending", pid)
        on_gone()

    loop.add_reader(descriptor, gone)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)

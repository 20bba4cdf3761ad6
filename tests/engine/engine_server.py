"""An App over a tiny model with an ASGI client, for tests."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.engine_kit import tiny_engine

from stratacache.engine.app import App
from stratacache.engine.engine import Engine
from stratacache.engine.grammar import GrammarCompiler
from stratacache.engine.loop import EngineThread
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import Tokenizer

VOCAB = 49152
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 5}


class Server:
    """An App with its engine, and a client that speaks ASGI to it."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        on_failure: Callable[[], None] | None = None,
        thread_clock: Callable[[], float] = time.monotonic,
        request_timeout: float | None = None,
        **settings: Any,
    ) -> None:
        self.engine: Engine = tiny_engine(VOCAB, thread_clock, **{"num_blocks": 60} | settings)
        self.thread = EngineThread(self.engine, tokenizer, on_failure, thread_clock)
        template = ChatTemplate.from_folder(folder)
        self.app = App(
            self.thread,
            tokenizer,
            template,
            GrammarCompiler(folder, VOCAB, (2,)),
            model="tiny",
            fingerprint="fp",
            request_timeout=request_timeout,
            clock=lambda: 123.0,
        )
        self.thread.start()

    async def close(self) -> None:
        """Stops the engine; its books must balance."""
        await asyncio.to_thread(self.thread.stop)
        self.engine.check()
        assert self.thread.failed or self.engine.stats().blocks_active == 0

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        gone: asyncio.Event | None = None,
        length: int | None = None,
    ) -> tuple[int, bytes, list[dict[str, Any]]]:
        """One request; `gone` set means that the client has closed the connection."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent: list[dict[str, Any]] = []
        first = True

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": raw, "more_body": False}
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [] if length is None else [(b"content-length", str(length).encode())]
        await self.app({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
        status = sent[0]["status"] if sent else 0
        return status, b"".join(message.get("body", b"") for message in sent), sent

    async def chat(self, **fields: Any) -> tuple[int, Any]:
        status, body, _ = await self.call("POST", "/v1/chat/completions", CHAT | fields)
        return status, json.loads(body)

    async def until_running(self) -> None:
        """Returns when the engine has begun a request."""
        while not self.thread.stats.running:  # noqa: ASYNC110 - the engine's thread has no event for it
            await asyncio.sleep(0)

    async def stream(self, **fields: Any) -> list[Any]:
        status, body, _ = await self.call("POST", "/v1/chat/completions", CHAT | {"stream": True} | fields)
        assert status == 200
        return events_of(body)


def events_of(body: bytes) -> list[Any]:
    lines = body.decode().split("\n\n")
    assert lines[-1] == ""
    assert all(line.startswith("data: ") for line in lines[:-1])
    return [line[6:] if line[6:] == "[DONE]" else json.loads(line[6:]) for line in lines[:-1]]

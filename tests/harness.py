"""A real gateway in the test's own event loop, in front of a FakeUpstream, checked when it stops."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import uvicorn

from stratacache.dialects.wire import decode_answer
from stratacache.settings import Settings, load
from stratacache.wiring import SemanticModels, System
from tests.clock import FakeClock
from tests.fakes.upstream import FakeUpstream

ENVIRON = {"FAKE_KEY": "sk-upstream-secret"}


def question(text: str = "What is a cache?", **fields: Any) -> dict[str, Any]:
    """A chat request body."""
    return {"model": "fake-model", "messages": [{"role": "user", "content": text}], **fields}


class Gateway:
    """A running gateway. ``clock`` moves its wall clock; ``http`` is a client session for raw requests."""

    def __init__(self, system: System, port: int, clock: FakeClock, http: aiohttp.ClientSession) -> None:
        self.system = system
        self.port = port
        self.clock = clock
        self.http = http
        self.root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root}/v1"

    async def stored(self) -> None:
        """Wait until every finished answer has reached the store, and its question the index."""
        assert await self.system.writeback.drain(5)
        semantic = self.system.semantic
        if semantic is not None:
            await semantic.kindred.learner.settled()
            learned = self.system.metrics.summary()["semantic"]["learned"].get("learned", 0)
            while semantic.follower.stats().added < learned:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0)

    async def labelled(self) -> None:
        """Wait until every fresh answer was compared with the stored one beside it."""
        await self.stored()
        semantic = self.system.semantic
        assert semantic is not None
        await semantic.kindred.settled()

    async def listening(self, count: int) -> None:
        """Wait until ``count`` clients wait for upstream calls that can be joined."""
        while self.system.flights.listeners < count:  # noqa: ASYNC110 - production has no use for an event
            await asyncio.sleep(0)

    async def ask(
        self,
        body: Mapping[str, Any] | bytes,
        headers: Mapping[str, str] | None = None,
        *,
        path: str = "/chat/completions",
    ) -> tuple[int, Mapping[str, str], Any]:
        """POST a request, of chat unless ``path`` says otherwise; returns status, headers (lower case) and the body,
        decoded when it is JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"content-type": "application/json", **(headers or {})}
        async with self.http.post(f"{self.base_url}{path}", data=data, headers=sent) as response:
            raw = await response.read()
            got = {name.lower(): value for name, value in response.headers.items()}
            is_json = got.get("content-type", "").startswith("application/json")
            return response.status, got, decode_answer(raw) if is_json else raw


def settings_from(config: Mapping[str, Any]) -> Settings:
    """Load ``config`` the way a file is loaded, with every check.

    The semantic tier is off unless ``config`` says something of it: it takes its time to load, and what other tests ask
    is often near to what they asked before.
    """
    config = {**config, "tiers": {"semantic": {"enabled": False}, **config.get("tiers", {})}}
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(msgspec.json.encode(config))  # JSON is YAML
        file.flush()
        return load(file.name, ENVIRON)


@asynccontextmanager
async def running_gateway(
    fake: FakeUpstream, config: Mapping[str, Any] | None = None, *, models: SemanticModels | None = None
) -> AsyncIterator[Gateway]:
    """Start a gateway on a free port; ``config`` is merged over a memory store and one upstream, ``fake``.

    With ``models`` the semantic tier is on.
    """
    config = dict(config or {})
    if models is not None:
        config["tiers"] = {"semantic": {"enabled": True}, **config.get("tiers", {})}
    merged: dict[str, Any] = {
        "store": "memory://",
        "audit": {"path": None},
        "upstreams": [
            {
                "name": "fake",
                "kind": "openai",
                "base_url": fake.base_url,
                "api_key_env": "FAKE_KEY",
                "models": ["fake-model"],
                "retries": 0,  # tests say what the next call gets, and count calls
            }
        ],
        **config,
    }
    settings = settings_from(merged)
    clock = FakeClock()
    system = System(settings, ENVIRON, clock, models=models)
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:  # else asyncio leaves Nagle's algorithm on
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = uvicorn.Server(
            uvicorn.Config(
                system.app,
                lifespan="on",
                log_level="warning",
                access_log=False,
                loop="none",
                timeout_keep_alive=75,  # as in production: else a client under load sends into a closing connection
                timeout_graceful_shutdown=2,  # a test that fails midway must not hang in its open connections
                proxy_headers=False,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not serving.done(), "the gateway did not start"
            await asyncio.sleep(0)
        try:
            async with aiohttp.ClientSession() as http:
                gateway = Gateway(system, port, clock, http)
                yield gateway
                await gateway.stored()
                await system.store.check()
                system.flights.check()
                system.writeback.check()
                system.preparer.check()
                if system.prompt is not None:
                    system.prompt.check()
        finally:
            server.should_exit = True
            await serving

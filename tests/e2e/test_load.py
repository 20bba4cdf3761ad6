"""The load generator against real servers: on schedule, honest about waits, right about tiers and wrong answers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from pathlib import Path

import pytest
from aiohttp import web
from tests.fakes.upstream import FakeUpstream, Gate, Reply, in_thread
from tests.harness import running_gateway

from stratacache.cli import main
from stratacache.errors import StrataError
from stratacache.lab.load import LoadTest, Objective, Ramp
from stratacache.lab.load_client import OpenLoop, target_of
from stratacache.lab.load_echo import echo_app, family_in
from stratacache.lab.load_traffic import Bank, Mix, asks, built_in_bank

CHAT = b'{"model": "fake-model", "messages": [{"role": "user", "content": "hello"}]}'


@asynccontextmanager
async def echo(bank: Bank) -> AsyncIterator[str]:
    runner = web.AppRunner(echo_app(bank, 0.0))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@contextmanager
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_every_request_is_answered_and_timed_from_when_it_was_due() -> None:
    async with FakeUpstream() as fake:
        results = await OpenLoop(target_of(fake.base_url)).run([(i / 1000, CHAT) for i in range(50)])
        assert fake.chat_calls == 50
    assert [result.status for result in results] == [200] * 50
    assert [result.due for result in results] == [i / 1000 for i in range(50)]
    assert all(result.done >= result.due + result.late for result in results)
    assert b"Hello from the fake." in results[0].body


async def test_what_waits_for_a_connection_is_late_and_none_is_left_out() -> None:
    gate = Gate()
    async with FakeUpstream() as fake:
        fake.default = Reply(header_gate=gate)
        loop = OpenLoop(target_of(fake.base_url), connections=2)
        running = asyncio.create_task(loop.run([(0.0, CHAT)] * 6))
        await fake.arrived(2)
        assert fake.chat_calls == 2  # the others are due as well
        held = loop.now()
        gate.open()
        results = await running
    assert [result.status for result in results] == [200] * 6
    assert sum(result.late >= held for result in results) >= 4
    assert all(result.done >= held for result in results)


async def test_answers_that_never_come_end_with_the_run() -> None:
    gate = Gate()
    async with FakeUpstream() as fake:
        fake.default = Reply(header_gate=gate)
        results = await OpenLoop(target_of(fake.base_url), connections=1, timeout=0.2).run([(0.0, CHAT)] * 3)
        gate.open()
    assert [result.status for result in results] == [0] * 3


async def test_a_dropped_connection_is_one_error_and_the_next_request_goes_on() -> None:
    async with FakeUpstream() as fake:
        fake.script(Reply(cut_after=0))
        results = await OpenLoop(target_of(fake.base_url), connections=1).run([(0.0, CHAT)] * 3)
    assert sorted(result.status for result in results) == [0, 200, 200]


async def test_nobody_listens() -> None:
    with closed_port() as port:
        results = await OpenLoop(target_of(f"http://127.0.0.1:{port}"), connections=1).run([(0.0, CHAT)] * 4)
    assert [result.status for result in results] == [0] * 4


async def test_tiers_hits_and_the_bound_behind_a_gateway() -> None:
    bank = built_in_bank()
    async with echo(bank) as upstream, FakeUpstream() as unused:
        config = {"upstreams": [{"name": "echo", "kind": "openai", "base_url": upstream, "models": ["echo"]}]}
        async with running_gateway(unused, config) as gateway:
            mix = Mix(repeated=1.0, similar=0.0)
            test = LoadTest(target_of(gateway.base_url), asks(bank, mix), "echo", Objective(latency=30.0))
            first = await test.step(rate=200, seconds=1)
            await gateway.stored()
            second = await test.step(rate=200, seconds=1)
            beside = await test.baseline(target_of(upstream), rate=50, seconds=0.5)
    assert first.errors == second.errors == 0
    assert first.broke is second.broke is None
    assert second.hits.answered > second.hits.requests / 2
    assert second.hits.answered <= second.hits.possible <= second.hits.requests
    assert second.hits.judged == second.hits.answered == second.tiers["exact"].requests
    assert second.hits.wrong == 0
    assert second.saved.prompt > 0
    assert beside.requests > 0


async def test_a_wrong_hit_is_told_of_any_server() -> None:
    """Of servers without our headers an answer whose id was seen before is a hit."""
    bank = Bank([("right",), ("other",)])
    answer = {
        "id": "1",
        "choices": [{"message": {"content": "The answer to: right"}}],
        "usage": {"completion_tokens": 7},
    }
    async with FakeUpstream() as fake:
        fake.default = Reply(body=answer)
        test = LoadTest(
            target_of(fake.base_url), asks(bank, Mix(repeated=1, similar=0)), "m", Objective(latency=30.0)
        )
        step = await test.step(rate=100, seconds=0.5)
    expected = list(islice(asks(bank, Mix(repeated=1, similar=0)), step.hits.requests))
    wrong = sum(ask.family == "other" for ask in expected)
    assert step.tiers.keys() == {"model", "cache"}
    assert step.hits.answered == step.hits.judged == step.hits.requests - 1
    assert step.hits.wrong in (wrong, wrong - 1)
    assert {(one.asked, one.answered) for one in step.examples} == {("other", "right")}
    assert step.saved.completion == 7 * step.hits.answered


async def test_the_ramp_ends_with_the_step_that_breaks_the_objective() -> None:
    async with FakeUpstream() as fake:
        fake.default = Reply(status=500)
        steps = []
        test = LoadTest(target_of(fake.base_url), asks(built_in_bank(), Mix()), "m", Objective())
        assert await test.ramp(Ramp(rate=40, steps=3, seconds=0.5), steps.append) == tuple(steps)
        assert [step.broke for step in steps] == ["100% failed, status 500"]
        fake.default = Reply()
        found = await test.ramp(Ramp(rate=40, factor=2, steps=2, seconds=0.3), steps.append)
    assert [step.rate for step in found] == [40, 80]


async def test_the_echo_answers_for_the_family_and_refuses_nonsense() -> None:
    async with echo(Bank([("a", "A"), ("b",)])) as url, FakeUpstream() as fake:
        del fake
        bodies = [b'{"messages": [{"role": "user", "content": "A"}]}', b'{"messages": []}', b"{"]
        results = await OpenLoop(target_of(url)).run([(0.0, body) for body in bodies])
    assert [result.status for result in results] == [200, 200, 400]
    told = json.loads(results[0].body)["choices"][0]["message"]["content"]
    assert family_in(told) == "a"
    assert family_in("Something else") is None


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://", "http://host:99999/"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(StrataError, match="not an http"):
        target_of(url)


def test_addresses() -> None:
    assert target_of("http://h:1")[:4] == ("h", 1, False, "/v1/chat/completions")
    assert target_of("https://h/api/v1/", "k")[:4] == ("h", 443, True, "/api/v1/chat/completions")
    assert target_of("https://h", "k").headers == "authorization: Bearer k\r\n"
    with pytest.raises(StrataError, match="characters"):
        target_of("http://h", "a\r\nb")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    with in_thread() as fake:
        call = [
            "load",
            "--url",
            fake.base_url,
            "--model",
            "fake-model",
            "--rate",
            "30",
            "--steps",
            "2",
            "--slo",
            "20s",
        ]
        call += ["--step-time", "300ms", "--html", str(page), "--baseline", fake.base_url]
        assert main([*call, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["sustained"] == 45
        assert len(told["steps"]) == 2
        assert main(call) == 0
        assert "without cache" in capsys.readouterr().out
        trace = tmp_path / "trace.jsonl"
        trace.write_text("".join(f'{{"timestamp": {i * 20}, "input": "q{i % 3}"}}\n' for i in range(9)))
        call = [
            "load",
            "--url",
            fake.base_url,
            "--model",
            "fake-model",
            "--trace",
            str(trace),
            "--timestamps",
            "ms",
        ]
        assert main([*call, "--speed", "2", "--price", "1,2", "--slo", "20s", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [step["times"]["requests"] for step in told["steps"]] == [9]
        assert told["total"]["possible"] == 6
        assert told["saved_money"] == 0
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "call",
    [
        ["--steps", "0"],
        ["--zipf", "-1"],
        ["--step-time", "0"],
        ["--price", "1"],
        ["--slo", "x"],
        ["--rate", "nan"],
    ],
)
def test_options_that_make_no_sense(call: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["load", *call])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "call", [["--repeated", "0.9", "--similar", "0.2"], ["--echo", "0"], ["--echo", "70000"]]
)
def test_wrong_usage(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--url", "http://127.0.0.1:9/v1", *call]) == 2
    assert capsys.readouterr().err.startswith("stratacache: ")

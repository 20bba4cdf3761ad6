"""What an operator sees: a store that cannot be used, readiness, stats, explain, and who is turned away for good."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.fakes.upstream import FakeUpstream, Reply
from tests.gateway_process import Ended, run, serving, upstream_of
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder, Verifier, models
from tests.servers.redis import RedisServer

STORED, ASKED = "What is the way to bake bread?", "how do you bake bread at home"


async def command(gateway: Gateway, folder: Path, *args: str, stdin: bytes = b"") -> Ended:
    """One that asks the gateway, while that serves."""
    return await asyncio.to_thread(run, *args, "--url", gateway.root, cwd=folder, stdin=stdin)


def first_complaint(fake: FakeUpstream, folder: Path, store: str) -> str:
    """What a gateway says of its store before anybody asks it."""
    config = {"store": store, "upstreams": [upstream_of(fake)], "audit": {"path": None}}
    with serving(folder, config) as gateway:
        deadline = time.monotonic() + 20
        while "does not answer" not in gateway.errors() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert gateway.terminate() == 0
        return gateway.errors()


async def test_a_store_that_cannot_be_used_is_said_once_without_its_secrets(
    fake: FakeUpstream, tmp_path: Path, unused_tcp_port: int
) -> None:
    with RedisServer() as server:
        server.command("CONFIG", "SET", "requirepass", "right")
        for port, why in ((unused_tcp_port, "Connection refused"), (server.port, "WRONGPASS")):
            store = f"redis://user:sesame@127.0.0.1:{port}/0"
            said = await asyncio.to_thread(first_complaint, fake, tmp_path, store)
            line = f"the store redis://****@127.0.0.1:{port}/0 does not answer (redis 127.0.0.1:{port}: "
            assert said.count(line) == 1
            assert why in said.partition(line)[2].splitlines()[0]
            assert "sesame" not in said
            (tmp_path / "stderr.txt").unlink()


async def test_a_store_that_answers_is_not_spoken_of(
    fake: FakeUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(fake, {"store": f"sqlite:///{tmp_path}/cache.db"}) as gateway:
        await gateway.ask(question())
    assert "does not answer" not in caplog.text


async def test_ready_once_the_models_are_loaded(fake: FakeUpstream) -> None:
    loaded = asyncio.Event()

    async def ready() -> None:
        await loaded.wait()

    kit = models()
    slow = type(kit)(kit.embedder, kit.verifier, kit.bound, kit.decisions, verifier_ready=ready)

    async def readiness(gateway: Gateway) -> tuple[int, Any]:
        async with gateway.http.get(f"{gateway.root}/readyz") as answer:
            return answer.status, await answer.json()

    async with running_gateway(fake, models=slow) as gateway:
        loading = {"ready": False, "upstreams": {"fake": True}, "semantic": "loading"}
        assert await readiness(gateway) == (503, loading)
        gateway.clock.advance(61)  # requests would pass the tier over
        assert await readiness(gateway) == (200, {**loading, "ready": True})
        loaded.set()
        await asyncio.sleep(0)
        assert await readiness(gateway) == (200, {**loading, "ready": True, "semantic": "ready"})


async def test_stats_show_the_semantic_tier_and_what_it_depends_on(
    fake: FakeUpstream, tmp_path: Path
) -> None:
    verifier = Verifier()
    verifier.table[ASKED, STORED] = 0.97
    async with running_gateway(fake, models=models(None, verifier)) as gateway:
        await gateway.ask(question(STORED))
        await gateway.stored()
        await gateway.ask(question(ASKED))
        shown = await command(gateway, tmp_path, "stats")
        lines = [" ".join(line.strip("│ ").split()) for line in shown.out.splitlines()]
        for expected in (
            "semantic look-ups │ no_candidate 1, hit 1",
            "stored answers, by question │ learned 1",
            "semantic index │ 1 questions",
            "dependencies │ embedder works, index works, verifier works",
        ):
            assert expected in lines, shown.out
        figures = json.loads((await command(gateway, tmp_path, "stats", "--json")).out)
        assert figures["levels"]["stratacache_breaker_state"]["verifier"] == 0.0


async def test_stats_without_the_tier(fake: FakeUpstream, tmp_path: Path) -> None:
    async with running_gateway(fake) as gateway:
        shown = await command(gateway, tmp_path, "stats")
        assert (shown.code, "semantic tier" in shown.out) == (0, True)
        assert "about 0, room for 1,000,000" in " ".join(shown.out.split())


async def test_who_is_turned_away_for_good_is_not_to_ask_again(fake: FakeUpstream, tmp_path: Path) -> None:
    async with running_gateway(fake, {"tiers": {"exact": {"admission": "closed"}}}) as gateway:
        status, headers, _ = await gateway.ask(question())
        assert (status, headers["x-should-retry"], "retry-after" in headers) == (429, "false", False)
        client = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="k", max_retries=3)
        async with client:
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(
                    model="fake-model", messages=[{"role": "user", "content": "New?"}]
                )
        figures = gateway.system.metrics.summary()
        assert figures["reasons"] == {"closed": 2}
        told = await command(gateway, tmp_path, "explain", "-", stdin=json.dumps(question("New?")).encode())
        assert "would not be called; a question that is new is turned away (closed)" in told.out


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_a_tls_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    options = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    for name, path in options.items():
        if name != missing:
            path.write_text("")
    query = "&".join(f"{name}={path}" for name, path in options.items())
    (tmp_path / "stratacache.yaml").write_text(
        f'store: "rediss://127.0.0.1:1/0?{query}"\nserver: {{port: 0}}\n'
    )
    done = run("serve", cwd=tmp_path)
    assert (done.code, done.err) == (
        2,
        f"stratacache: store: the TLS file {missing}={options[missing]}: No such file or directory\n",
    )


def test_a_tls_file_that_is_none_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    url = f"rediss://127.0.0.1:1/0?ca={tmp_path}/ca.pem"
    (tmp_path / "stratacache.yaml").write_text(f'store: "{url}"\nserver: {{port: 0}}\n')
    done = run("serve", cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"ca={tmp_path}/ca.pem" in done.err


class TestSemanticFirst:
    """``order: [semantic, exact]``."""

    CONFIG = {"tiers": {"order": ["semantic", "exact"], "semantic": {"enabled": True}}}  # noqa: RUF012

    async def test_the_semantic_tier_is_asked_first(self, fake: FakeUpstream) -> None:
        verifier = Verifier()
        verifier.table[ASKED, STORED] = 0.97
        fake.default = Reply(text="Knead, wait, bake.")
        async with running_gateway(fake, self.CONFIG, models=models(None, verifier)) as gateway:
            _, first, _ = await gateway.ask(question(STORED))
            await gateway.stored()
            assert first["x-strata-reason"] == "not_found"
            for text in (STORED, ASKED):  # an equal question is near itself
                _, headers, _ = await gateway.ask(question(text))
                assert (headers["x-strata-tier"], headers["x-strata-entry"]) == (
                    "semantic",
                    first["x-strata-entry"],
                )
                stages = [part.partition(";")[0].strip() for part in headers["server-timing"].split(",")]
                assert "exact" not in stages
            assert fake.chat_calls == 1

    async def test_what_it_does_not_answer_the_exact_tier_may(self, fake: FakeUpstream) -> None:
        async with running_gateway(fake, self.CONFIG, models=models()) as gateway:
            _, miss, _ = await gateway.ask(question("what is new today"))
            assert (miss["x-strata-cache"], miss["x-strata-reason"]) == ("miss", "time_bound")
            await gateway.stored()
            _, hit, _ = await gateway.ask(question("what is new today"))
            assert (hit["x-strata-tier"], hit["x-strata-reason"]) == ("exact", "exact")

    async def test_when_it_is_out_of_order_the_exact_tier_answers(self, fake: FakeUpstream) -> None:
        embedder = Embedder()
        async with running_gateway(fake, self.CONFIG, models=models(embedder)) as gateway:
            await gateway.ask(question(STORED))
            await gateway.stored()
            embedder.fault = RuntimeError("no such thing")
            _, headers, _ = await gateway.ask(question(STORED))
            assert headers["x-strata-tier"] == "exact"
            _, headers, _ = await gateway.ask(question(ASKED), {"cache-control": "only-if-cached"})
            assert headers["x-strata-reason"] == "not_cached"

"""The semantic tier over real HTTP: other words, the same answer; and all that it must not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.upstream import FakeUpstream, Gate, Reply
from tests.harness import Gateway, question, running_gateway
from tests.semantic_kit import Embedder, FixedBound, MissingVerifier, Verifier, models

from stratacache.cli import main
from stratacache.errors import ModelError

STORED = "What is the way to bake bread?"
ASKED = "how do you bake bread at home"
FAR = "why is the sky blue"


class Kit:
    """A gateway whose models say what a test wants."""

    def __init__(self, gateway: Gateway, embedder: Embedder, verifier: Verifier, bound: FixedBound) -> None:
        self.gateway = gateway
        self.embedder = embedder
        self.verifier = verifier
        self.bound = bound

    async def tell(self, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> str:
        """Ask, and wait until it is stored and findable; the entry's id."""
        _, got, _ = await self.gateway.ask(body or question(STORED), headers)
        await self.gateway.stored()
        return got["x-strata-entry"]

    async def ask(
        self, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[str, str, str]:
        """Outcome, tier and reason."""
        _, got, _ = await self.gateway.ask(body or question(ASKED), headers)
        return got["x-strata-cache"], got["x-strata-tier"], got["x-strata-reason"]


def parts() -> tuple[Embedder, Verifier, FixedBound]:
    embedder, verifier, bound = Embedder(), Verifier(), FixedBound()
    embedder.angles[ASKED] = 0.5
    embedder.angles[FAR] = 1.5
    verifier.table[ASKED, STORED] = 0.97
    return embedder, verifier, bound


@pytest.fixture
async def kit(fake: FakeUpstream) -> AsyncIterator[Kit]:
    embedder, verifier, bound = parts()
    async with running_gateway(fake, models=models(embedder, verifier, bound)) as gateway:
        yield Kit(gateway, embedder, verifier, bound)


async def test_other_words_get_the_stored_answer(fake: FakeUpstream, kit: Kit) -> None:
    fake.default = Reply(text="Knead, wait, bake.")
    entry = await kit.tell()
    kit.gateway.clock.advance(7)
    status, headers, body = await kit.gateway.ask(question(ASKED))
    assert (status, headers["x-strata-cache"], headers["x-strata-tier"]) == (200, "hit", "semantic")
    assert (headers["x-strata-reason"], headers["x-strata-entry"], headers["age"]) == ("semantic", entry, "7")
    assert (headers["x-strata-similarity"], headers["x-strata-confidence"]) == ("0.8776", "0.9700")
    assert headers["x-strata-saved-tokens"] == "17"
    timing = headers["server-timing"]
    assert [part.partition(";")[0].strip() for part in timing.split(",")] == [
        "key",
        "exact",
        "embed",
        "search",
        "verify",
    ]
    assert body["choices"][0]["message"]["content"] == "Knead, wait, bake."
    assert fake.chat_calls == 1
    # Not stored under the key of the question that it answered.
    assert (await kit.gateway.system.store.stats()).entries == 1


async def test_a_stream_is_replayed(fake: FakeUpstream, kit: Kit) -> None:
    fake.default = Reply(text="Knead, wait, bake.")
    await kit.tell()
    _, headers, raw = await kit.gateway.ask(question(ASKED, stream=True))
    assert headers["x-strata-tier"] == "semantic"
    assert raw.endswith(b"data: [DONE]\n\n")
    deltas = [msgspec.json.decode(part[6:]) for part in raw.split(b"\n\n")[:-2]]
    said = "".join(d["choices"][0]["delta"].get("content") or "" for d in deltas if d["choices"])
    assert said == "Knead, wait, bake."


async def test_an_answer_that_came_as_a_stream_serves_too(kit: Kit) -> None:
    await kit.tell(question(STORED, stream=True))
    assert await kit.ask() == ("hit", "semantic", "semantic")


@pytest.mark.parametrize(
    ("body", "headers", "outcome"),
    [
        (question(FAR), {}, ("miss", "none", "not_found")),
        (question(ASKED + " maybe"), {}, ("miss", "none", "unverified")),
        (question(ASKED, temperature=1), {}, ("miss", "none", "not_found")),
        (question("what is new today"), {}, ("miss", "none", "time_bound")),
        (question("who is me@example.com"), {}, ("miss", "none", "personal_data")),
        (question(ASKED), {"x-strata-min-confidence": "0.98"}, ("miss", "none", "low_confidence")),
        (question(ASKED), {"x-strata-tiers": "exact"}, ("miss", "none", "not_found")),
        (question(ASKED), {"x-strata-tiers": "semantic"}, ("hit", "semantic", "semantic")),
        (question(FAR), {"x-strata-tiers": "semantic"}, ("miss", "none", "no_candidate")),
        (question(STORED), {"x-strata-tiers": "semantic"}, ("hit", "semantic", "semantic")),
        (question(ASKED), {"x-strata-scene": "realtime"}, ("miss", "none", "not_found")),
        (question(ASKED), {"x-strata-namespace": "n"}, ("miss", "none", "not_found")),
        (question(ASKED), {"x-strata-profile": "gold"}, ("miss", "none", "not_found")),
        (question(ASKED), {"x-strata-tags": "kb:1"}, ("miss", "none", "untagged")),
        (question(ASKED), {"cache-control": "no-cache"}, ("bypass", "none", "no_cache")),
        (question(ASKED), {"cache-control": "no-store"}, ("bypass", "none", "no_store")),
        (question(ASKED), {"cache-control": "max-age=5"}, ("miss", "none", "too_old")),
        (question(ASKED), {"cache-control": "only-if-cached"}, ("hit", "semantic", "semantic")),
    ],
)
async def test_who_is_answered(
    kit: Kit, body: dict[str, Any], headers: dict[str, str], outcome: tuple[str, str, str]
) -> None:
    await kit.tell()
    kit.gateway.clock.advance(7)
    assert await kit.ask(body, headers) == outcome


async def test_an_invalidation_ends_semantic_hits_at_once(kit: Kit) -> None:
    await kit.tell(headers={"x-strata-tags": "kb:1"})
    assert (await kit.ask())[0] == "hit"
    async with kit.gateway.http.post(
        f"{kit.gateway.root}/admin/invalidate", json={"tags": ["kb:1"]}
    ) as answer:
        assert answer.status == 200
    assert await kit.ask() == ("miss", "none", "outdated")


async def test_an_answer_begun_before_an_invalidation_is_never_found(fake: FakeUpstream, kit: Kit) -> None:
    gate = Gate()
    fake.script(Reply(text="Old news.", header_gate=gate))
    asking = asyncio.ensure_future(kit.gateway.ask(question(STORED), {"x-strata-tags": "kb:1"}))
    await gate.reached.wait()
    async with kit.gateway.http.post(f"{kit.gateway.root}/admin/invalidate", json={"tags": ["kb:1"]}):
        pass
    gate.open()
    await asking
    await kit.gateway.stored()
    assert (await kit.ask())[0] == "miss"
    assert (await kit.gateway.system.semantic.index.stats()).vectors <= 1  # type: ignore[union-attr]


async def test_what_is_not_stored_is_not_found(fake: FakeUpstream, kit: Kit) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    fake.script(
        Reply(finish_reason="length"),
        Reply(text=""),
        Reply(text=None, message={"tool_calls": [call]}, finish_reason="tool_calls"),
    )
    for words in ("bread one", "bread two", "bread three"):
        await kit.gateway.ask(question(words))
    await kit.gateway.stored()
    kit.verifier.otherwise = 1.0
    assert await kit.ask() == ("miss", "none", "not_found")


async def test_faults_of_the_models_leave_the_model_to_answer(kit: Kit) -> None:
    await kit.tell()
    kit.verifier.fault = ModelError("down", code="verifier_error")
    assert await kit.ask() == ("miss", "none", "verifier_error")
    kit.embedder.fault = ModelError("down", code="embedder_error")
    for n in range(5):
        assert (await kit.ask(question(f"bake some other bread {n}")))[0] == "miss"
    assert (await kit.ask(question("bake yet other bread")))[2] == "embedder_down"
    async with kit.gateway.http.get(f"{kit.gateway.root}/metrics") as answer:
        text = await answer.text()
    assert 'stratacache_breaker_state{dependency="embedder"} 2.0' in text
    assert "stratacache_index_vectors 2.0" in text
    assert 'stratacache_semantic_lookups_total{result="verifier_error"} 1.0' in text


async def test_without_a_verifier_only_the_same_question_is_answered(fake: FakeUpstream) -> None:
    embedder, _, bound = parts()
    async with running_gateway(fake, models=models(embedder, MissingVerifier(), bound)) as gateway:
        kit = Kit(gateway, embedder, MissingVerifier(), bound)
        await kit.tell()
        assert await kit.ask() == ("miss", "none", "verifier_missing")
        assert (await kit.ask(question(STORED)))[:2] == ("hit", "exact")


async def test_a_fresh_answer_beside_an_explored_one_is_a_label(fake: FakeUpstream, kit: Kit) -> None:
    fake.default = Reply(text="Knead, wait, bake.")
    await kit.tell()
    kit.verifier.table[ASKED, STORED] = 0.6
    assert await kit.ask() == ("miss", "none", "explored")
    await kit.gateway.labelled()
    fake.default = Reply(text="Rivers run to the sea.")
    kit.embedder.angles["Rivers run to the sea."] = 1.5
    kit.verifier.table["how is bread baked", STORED] = 0.7
    assert await kit.ask(question("how is bread baked")) == ("miss", "none", "explored")
    await kit.gateway.labelled()
    assert [(p, right) for _, _, p, right, *_ in kit.bound.observed] == [(0.6, True), (0.7, False)]


async def test_hits_are_sampled_for_a_fresh_answer(fake: FakeUpstream) -> None:
    embedder, verifier, bound = parts()
    bound.checks = 20.0
    async with running_gateway(fake, models=models(embedder, verifier, bound)) as gateway:
        kit = Kit(gateway, embedder, verifier, bound)
        await kit.tell()
        assert await kit.ask() == ("hit", "semantic", "semantic")
        await gateway.labelled()
        assert fake.chat_calls == 2
        assert [seen[3:] for seen in bound.observed] == [(True, "checked", 20.0)]
        assert (await kit.ask())[1] == "exact"  # the fresh answer was stored under its own key


async def test_shadow_answers_nobody_and_labels_what_it_would_have(fake: FakeUpstream) -> None:
    embedder, verifier, bound = parts()
    config = {"tiers": {"semantic": {"mode": "shadow"}}}
    async with running_gateway(fake, config, models=models(embedder, verifier, bound)) as gateway:
        kit = Kit(gateway, embedder, verifier, bound)
        await kit.tell()
        assert await kit.ask() == ("miss", "none", "not_found")
        await gateway.labelled()
        assert gateway.system.metrics.summary()["semantic"]["lookups"] == {"no_candidate": 1, "shadow_hit": 1}
        assert [seen[3:] for seen in bound.observed] == [(True, "checked", 1.0)]


async def test_explain_shows_candidates_findings_probabilities_and_verdict(kit: Kit) -> None:
    await kit.tell()
    url = f"{kit.gateway.root}/admin/explain"
    async with kit.gateway.http.post(url, json=question(ASKED)) as answer:
        told = await answer.json()
    semantic = told["tiers"]["semantic"]
    assert (semantic["outcome"], semantic["kind"], semantic["language"]) == ("hit", "fact", "en")
    (look,) = semantic["looks"]
    assert (look["question"], look["guards"], look["probability"]) == (STORED, "pass", 0.97)
    numbers = {"adjusted": 0.97, "threshold": 0.9, "least_p": 0.7}
    assert (look["verdict"], semantic["bound"]) == ("best", numbers)
    assert told["would_call_upstream"] is False


async def test_explain_shows_kind_and_reason_of_what_the_tier_leaves_alone(
    kit: Kit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body.json"
    body.write_bytes(msgspec.json.encode(question("who is me@example.com")))
    assert await asyncio.to_thread(main, ["explain", str(body), "--url", kit.gateway.root]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "semantic   miss (personal_data)" in said
    assert "  question   personal (personal_data)" in said


async def test_a_wrong_answer_is_gone_from_both_tiers(fake: FakeUpstream, kit: Kit) -> None:
    entry = await kit.tell()
    assert (await kit.ask())[0] == "hit"
    async with kit.gateway.http.get(f"{kit.gateway.root}/admin/review") as answer:
        (hit,) = (await answer.json())["items"]
    assert (hit["entry"], hit["asked"], hit["stored"], hit["probability"]) == (entry, ASKED, STORED, 0.97)
    url = f"{kit.gateway.base_url}/feedback"
    async with kit.gateway.http.post(url, json={"entry": entry, "verdict": "right"}) as answer:
        assert await answer.json() == {"entry": entry, "verdict": "right", "removed": False}
    assert (await kit.ask())[0] == "hit"
    async with kit.gateway.http.post(url, json={"entry": entry, "verdict": "wrong", "note": "?"}) as answer:
        assert (await answer.json())["removed"] is True
    assert [seen[3:5] for seen in kit.bound.observed] == [(True, "feedback"), (False, "feedback")]
    assert (await kit.ask())[0] == "miss"
    assert (await kit.ask(question(STORED)))[0] == "miss"
    async with kit.gateway.http.post(url, json={"entry": "0" * 32, "verdict": "wrong"}) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"entry": "x", "verdict": "wrong"}, "entry"),
        ({"entry": "0" * 32, "verdict": "bad"}, "verdict"),
        ({"entry": "0" * 32, "verdict": "wrong", "note": 5}, "note"),
        ({"entri": "0" * 32, "verdict": "wrong"}, "entri"),
    ],
)
async def test_feedback_that_is_not_understood_is_refused(kit: Kit, body: dict[str, Any], param: str) -> None:
    async with kit.gateway.http.post(f"{kit.gateway.base_url}/feedback", json=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == param


async def test_the_mode_can_be_changed_while_it_runs(kit: Kit) -> None:
    await kit.tell()
    url = f"{kit.gateway.root}/admin/mode"
    for mode, outcome in (("shadow", "miss"), ("off", "miss"), ("serve", "hit")):
        async with kit.gateway.http.put(url, json={"semantic": mode}) as answer:
            assert await answer.json() == {"semantic": mode}
        got = await kit.ask(headers={"x-strata-tiers": "semantic", "x-strata-ttl": "0"})
        assert got[0] == outcome
    async with kit.gateway.http.put(url, json={"semantic": "on"}) as answer:
        assert answer.status == 400


async def test_an_index_that_is_torn_is_made_anew_from_the_log(fake: FakeUpstream, tmp_path: Path) -> None:
    config = {"store": f"sqlite:///{tmp_path}/cache.db"}
    for run in range(3):
        embedder, verifier, bound = parts()
        async with running_gateway(fake, config, models=models(embedder, verifier, bound)) as gateway:
            semantic = gateway.system.semantic
            assert semantic is not None
            while not semantic.follower.caught_up:  # noqa: ASYNC110 - production has no use for an event
                await asyncio.sleep(0.01)
            kit = Kit(gateway, embedder, verifier, bound)
            if run == 0:
                await kit.tell()
            assert await kit.ask() == ("hit", "semantic", "semantic")
            await semantic.index.check()
        if run == 1:
            vectors = list(tmp_path.glob("cache.db.0.index/*/vectors"))  # noqa: ASYNC240
            assert vectors
            for path in vectors:
                path.write_bytes(b"torn")

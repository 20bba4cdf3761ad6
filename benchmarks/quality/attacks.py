"""How many crafted questions get an attacker's answer to a victim, beside how many honest paraphrases are answered.

    python -m benchmarks.quality.attacks [--limit N] [--show KIND] [--write]

A real gateway with the packaged models and default settings but for ``corroboration``, in front of a model server that
answers every text differently. Each attack has a namespace of its own, in which the attacker asks the crafted text and
then the victim asks its question. "hijacked": ``POST /admin/explain`` says that the attacker's answer would be served,
and changes nothing, so that no attack is spoilt by what the error bound learned from the one before. "live": the same
asked in earnest, one after another, while the bound learns. Honest: a question is stored, two others ask it in other
words, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from tests.fakes.upstream import Call, FakeUpstream, Reply
from tests.harness import Gateway, question, running_gateway

from benchmarks.quality.attack_search import FOUND
from benchmarks.quality.attack_texts import Attack, Victim, attacks, saved, victims
from benchmarks.report import write

COMMAND = "python -m benchmarks.quality.attacks"
BATCH = 100
SETTINGS = (("one principal", 0, False), ("two principals", 0, True), ("two principals", 1, True))
GOAL = 0.01


class Hijack(msgspec.Struct, frozen=True):
    """An attack that came through, with what the tier saw."""

    kind: str
    victim: str
    text: str
    probability: float | None
    guards: tuple[str, ...]


class Result(msgspec.Struct):
    """Counts by kind of attack; ``honest`` are the paraphrases answered, first and second of each question."""

    attacks: dict[str, int] = msgspec.field(default_factory=dict)
    hijacked: dict[str, int] = msgspec.field(default_factory=dict)
    live: dict[str, int] = msgspec.field(default_factory=dict)
    found: list[Hijack] = msgspec.field(default_factory=list)
    honest: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    questions: int = 0
    threshold: float = 0.0

    @property
    def share(self) -> float:
        return sum(self.hijacked.values()) / max(1, sum(self.attacks.values()))


class Scene:
    """Attackers and victims at one gateway. ``apart``: each names an end user of its own."""

    def __init__(self, gateway: Gateway, *, apart: bool) -> None:
        self._gateway = gateway
        self._apart = apart

    async def ask(self, who: str, text: str, place: str) -> str:
        """Ask in earnest; the answer's text and, when it came from the tier, a mark."""
        body = question(text, **({"user": who} if self._apart else {}))
        _, headers, answer = await self._gateway.ask(body, {"x-strata-namespace": place})
        hit = headers["x-strata-tier"] == "semantic"
        return ("hit:" if hit else "") + str(answer["choices"][0]["message"]["content"])

    async def explain(self, who: str, text: str, place: str) -> dict[str, Any]:
        """What the semantic tier would do."""
        body = question(text, **({"user": who} if self._apart else {}))
        url = f"{self._gateway.root}/admin/explain"
        async with self._gateway.http.post(url, json=body, headers={"x-strata-namespace": place}) as answer:
            told: dict[str, Any] = (await answer.json())["tiers"]["semantic"]
            return told

    async def settle(self) -> None:
        """All that was asked is learned; a minute passes, for the limit of inserts by the minute."""
        await self._gateway.labelled()
        self._gateway.clock.advance(61)


async def honest(scene: Scene, all_of: Sequence[Victim], result: Result) -> None:
    """Store each question, then ask it twice in other words."""
    for number, victim in enumerate(all_of):
        place = f"honest-{number}"
        result.questions += 1
        own = await scene.ask("ann", victim.question, place)
        await scene.settle()
        for at, text in enumerate(victim.honest):
            result.honest[at] += (await scene.ask(f"friend-{at}", text, place)) == f"hit:{own}"
            await scene.settle()


async def hijack(scene: Scene, crafted: Sequence[Attack], result: Result) -> None:
    """Store every attack, then see whom they catch: first without consequences, then in earnest."""
    for number, one in enumerate(crafted):
        result.attacks[one.kind] = result.attacks.get(one.kind, 0) + 1
        await scene.ask("mallory", one.text, f"attack-{number}")
        if number % BATCH == BATCH - 1:
            await scene.settle()
    await scene.settle()
    for number, one in enumerate(crafted):
        told = await scene.explain("victim", one.victim.question, f"attack-{number}")
        if told["outcome"] == "hit":
            result.hijacked[one.kind] = result.hijacked.get(one.kind, 0) + 1
            look = next(look for look in told["looks"] if look["verdict"] == "best")
            seen = one.victim.question, one.text, look["probability"], tuple(look["findings"])
            result.found.append(Hijack(one.kind, *seen))
    for number, one in enumerate(crafted):
        if (await scene.ask("victim", one.victim.question, f"attack-{number}")).startswith("hit:"):
            result.live[one.kind] = result.live.get(one.kind, 0) + 1
        if number % BATCH == BATCH - 1:
            await scene.settle()


def reply(call: Call) -> Reply:
    """An answer for each question: honest wordings of one question have one, all else an answer of its own."""
    text = call.json["messages"][-1]["content"]
    known = _ANSWERS.get(text)
    return Reply(text=f"The answer is {text}" if known is None else f"The answer is {known}")


_ANSWERS = {text: one.question for one in victims() for text in (one.question, *one.honest)}


async def run(crafted: Sequence[Attack], corroboration: int, *, apart: bool) -> Result:
    """One setting, with a gateway of its own."""
    result = Result()
    config = {"tiers": {"semantic": {"enabled": True, "corroboration": corroboration, "budget": "10s"}}}
    async with FakeUpstream() as fake:
        fake.responder = reply
        async with running_gateway(fake, config) as gateway:
            assert gateway.system.semantic is not None
            await gateway.system.semantic.models.embedder_ready()
            await gateway.system.semantic.models.verifier_ready()
            scene = Scene(gateway, apart=apart)
            await honest(scene, victims(), result)
            await hijack(scene, crafted, result)
            told = await scene.explain("victim", victims()[0].honest[0], "honest-0")
            result.threshold = told.get("bound", {}).get("threshold_p", 0.0)
    return result


def _table(result: Result) -> None:
    print(f"{'attack':30} {'texts':>6} {'hijacked':>9} {'live':>6}")
    for kind, count in sorted(result.attacks.items()):
        print(f"{kind:30} {count:6} {result.hijacked.get(kind, 0):9} {result.live.get(kind, 0):6}")
    total, live = sum(result.attacks.values()), sum(result.live.values())
    hijacked = sum(result.hijacked.values())
    print(
        f"{'all':30} {total:6} {hijacked:9} {live:6}   {result.share:.2%} hijacked, {live / total:.2%} live"
    )
    first, second = (count / max(1, result.questions) for count in result.honest)
    print(
        f"honest paraphrases answered: {first:.0%} of the first, {second:.0%} of the second; p ≥ {result.threshold:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--limit", type=int, default=900, help="of the attacks made by rule, evenly; 0 for all"
    )
    parser.add_argument("--write", action="store_true", help="write the figures to benchmarks/results")
    parser.add_argument("--show", help="print what came through of this kind, or of all")
    arguments = parser.parse_args()
    crafted = list(attacks(victims()))
    made = len(crafted)
    if arguments.limit:
        crafted = crafted[:: max(1, len(crafted) // arguments.limit)]
    crafted += saved(FOUND) if FOUND.exists() else []
    rows = []
    for name, corroboration, apart in SETTINGS:
        result = asyncio.run(run(crafted, corroboration, apart=apart))
        print(f"\n{name}, corroboration {corroboration}")
        _table(result)
        for one in result.found:
            if arguments.show in (one.kind, "all"):
                print(f"  {one.probability} {one.kind} | {one.victim} | {one.text} | {'; '.join(one.guards)}")
        rows.append(
            {
                "principals": name,
                "corroboration": corroboration,
                "share": result.share,
                **msgspec.to_builtins(result),
            }
        )
    if arguments.write:
        write("attacks", f"{COMMAND} --limit {arguments.limit} --write", {"made": made, "settings": rows})


if __name__ == "__main__":
    main()

"""The demo's run: sends the traffic through a gateway, with the cache and without, and checks each tier."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import aiohttp
import msgspec

from stratacache.dialects import sse
from stratacache.errors import StrataError
from stratacache.lab import traffic
from stratacache.lab.traffic import Body
from stratacache.types import JSON

WITHOUT = {"cache-control": "no-store"}
START_TIMEOUT = 300.0  # seconds; the first start converts the model
ANSWER_TIMEOUT = 600.0  # seconds
CROWD = 16  # requests at a time


class Sample(msgspec.Struct, frozen=True):
    """One request as its client saw it; times in seconds, ``first`` until the first token."""

    outcome: str
    tier: str
    reason: str
    first: float
    total: float
    text: str
    confidence: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Row(msgspec.Struct, frozen=True):
    """One line of the result. Times in seconds, per request; ``timed`` names what was timed.

    ``hits`` of ``lookups`` were answered (exact, semantic) or found their prefix computed (kv).
    """

    tier: str
    what: str
    timed: str
    lookups: int
    hits: int
    with_cache: tuple[float, ...]
    without_cache: tuple[float, ...]
    calls_saved: int
    tokens_saved: int


class Kin(msgspec.Struct, frozen=True):
    """A question that got the answer to another one, and how sure the tier was that it serves."""

    question: str
    stored: str
    confidence: str


class Refusal(msgspec.Struct, frozen=True):
    """A near-miss that reached the model: the reason in its answer's header, and what was found out about it before."""

    question: str
    reason: str
    why: str


class Result(msgspec.Struct, frozen=True):
    """``faults`` is empty when every tier did its work.

    ``stale`` of ``asked_after`` questions were answered from an entry that had been invalidated, in ``invalidation``
    seconds.
    """

    rows: tuple[Row, ...]
    near_misses: int
    wrongly_served: int
    kin: tuple[Kin, ...]
    refusals: tuple[Refusal, ...]
    asked_after: int
    stale: int
    invalidation: float
    faults: tuple[str, ...]


class Demo:
    """One run against ``base_url`` (which ends in ``/v1``). ``progress`` is told each step before it starts."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str, progress: Callable[[str], None]) -> None:
        self._http = http
        self._url = f"{base_url}/chat/completions"
        self._admin = f"{base_url.removesuffix('/v1')}/admin"
        self._progress = progress
        self._salts = count()
        self._faults: list[str] = []

    async def run(self) -> Result:
        """Every phase in turn; about two minutes on two cores."""
        self._progress("New questions in English and Chinese")
        first = [await self.ask(body) for body in traffic.questions()]
        await self._others()
        repeats = await self._repeats(first)
        reformatted = await self._reformatted(first)
        paraphrased, kin = await self._paraphrased(dict(zip(traffic.QUESTIONS, first, strict=True)))
        self._progress("Near-misses: they must reach the model")
        near, refusals = await self._near_misses()
        wrong = sum(sample.outcome == "hit" for sample in near)
        self._require(wrong == 0, f"{wrong} near-misses were answered from cache")
        rows = (
            repeats,
            reformatted,
            paraphrased,
            await self._stampede(),
            await self._conversation(),
            await self._shared_prompt(),
        )
        seconds, after = await self._invalidate()
        stale = sum(sample.outcome == "hit" for sample in after)
        self._require(stale == 0, f"{stale} answers came from entries that had been invalidated")
        return Result(
            rows, len(near), wrong, kin, tuple(refusals), len(after), stale, seconds, tuple(self._faults)
        )

    async def ask(self, body: Body, headers: Mapping[str, str] | None = None) -> Sample:
        """One streamed request."""
        sent = {**body, "stream": True, "stream_options": {"include_usage": True}}
        started = time.perf_counter()
        first = 0.0
        text: list[str] = []
        usage: dict[str, int] = {}
        cached = 0
        parser = sse.SSEParser()
        async with self._http.post(self._url, data=msgspec.json.encode(sent), headers=headers) as response:
            if response.status != 200:
                raise StrataError(f"the gateway answered {response.status}: {(await response.text())[:300]}")
            async for data in response.content.iter_any():
                for event in parser.feed(data):
                    if event.data == sse.DONE:
                        continue
                    chunk = msgspec.json.decode(event.data)
                    if chunk.get("usage"):
                        usage = chunk["usage"]
                        cached = (chunk["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                    piece = chunk["choices"][0]["delta"].get("content") if chunk["choices"] else None
                    if piece:
                        first = first or time.perf_counter() - started
                        text.append(piece)
            return Sample(
                outcome=response.headers["x-strata-cache"],
                tier=response.headers["x-strata-tier"],
                reason=response.headers["x-strata-reason"],
                first=first,
                total=time.perf_counter() - started,
                text="".join(text),
                confidence=response.headers.get("x-strata-confidence", ""),
                prompt_tokens=usage.get("prompt_tokens", 0),
                cached_tokens=cached,
                completion_tokens=usage.get("completion_tokens", 0),
            )

    async def _all(self, bodies: Sequence[Body], headers: Mapping[str, str] | None = None) -> list[Sample]:
        """Concurrently."""
        return await asyncio.gather(*(self.ask(body, headers) for body in bodies))

    async def _others(self) -> None:
        """The traffic of a while: the error bound is a share of the requests, and of few it allows no wrong answer."""
        bodies = traffic.others()
        self._progress(f"{len(bodies)} other questions, {CROWD} at a time")
        for start in range(0, len(bodies), CROWD):
            await self._all(bodies[start : start + CROWD])

    async def _repeats(self, first: Sequence[Sample]) -> Row:
        self._progress("The same again, three times, then without cache")
        bodies = traffic.questions()
        samples = [await self.ask(body) for _ in range(3) for body in bodies]
        without = [await self.ask(body, WITHOUT) for body in bodies]
        same = all(sample.text == first[n % len(first)].text for n, sample in enumerate(samples))
        self._require(same, "a repeat got another answer than its question")
        return self._exact_row("repeats", samples, without, calls=0)

    async def _reformatted(self, first: Sequence[Sample]) -> Row:
        self._progress("In other spellings and orders, then without cache")
        bodies = traffic.reformatted()
        samples = [await self.ask(body) for body in bodies]
        without = [await self.ask(body, WITHOUT) for body in bodies]
        same = all(sample.text == first[n].text for n, sample in enumerate(samples))
        self._require(same, "a reformatted question got another answer than its question")
        return self._exact_row("reformatted", samples, without, calls=0)

    async def _near_misses(self) -> tuple[list[Sample], list[Refusal]]:
        """What became of each, one after the other: at once, they would not have each other's answers near."""
        near, refusals = [], []
        for text, body in zip(traffic.NEAR_MISSES, traffic.near_misses(), strict=True):
            why = explained(await self._explain(body))
            near.append(await self.ask(body))
            if near[-1].outcome != "hit":
                refusals.append(Refusal(text, near[-1].reason, why))
        near += [await self.ask(body) for body in traffic.other_settings()]
        return near, refusals

    async def _explain(self, body: Body) -> JSON:
        """What the semantic tier thinks of it."""
        async with self._http.post(f"{self._admin}/explain", data=msgspec.json.encode(body)) as response:
            if response.status != 200:
                raise StrataError(f"the gateway answered {response.status}: {(await response.text())[:300]}")
            return msgspec.json.decode(await response.read())["tiers"]["semantic"]

    async def _paraphrased(self, answers: Mapping[str, Sample]) -> tuple[Row, tuple[Kin, ...]]:
        """``answers`` by question: what each paraphrase of it must get."""
        self._progress("In other words, then without cache")
        samples = [await self.ask(body) for body in traffic.paraphrases()]
        without = [await self.ask(body, WITHOUT) for body in traffic.paraphrases()]
        answered = [
            (text, stored, sample)
            for (text, stored), sample in zip(traffic.PARAPHRASES.items(), samples, strict=True)
            if sample.tier == "semantic"
        ]
        same = all(sample.text == answers[stored].text for _, stored, sample in answered)
        self._require(same, "a paraphrase got another answer than its question")
        reasons = sorted({sample.reason for sample in samples if sample.tier != "semantic"})
        self._require(
            2 * len(answered) >= len(samples),
            f"semantic: only {len(answered)} of {len(samples)} paraphrases were answered ({', '.join(reasons)})",
        )
        kin = tuple(Kin(text, stored, sample.confidence) for text, stored, sample in answered)
        hits = [sample for _, _, sample in answered]
        return _answered_row("semantic", "paraphrases", samples, hits, without), kin

    def _exact_row(
        self, what: str, samples: Sequence[Sample], without: Sequence[Sample], *, calls: int
    ) -> Row:
        """``calls``: how many of ``samples`` must have reached the model."""
        hits = [sample for sample in samples if sample.outcome == "hit"]
        made = len(samples) - len(hits)
        reasons = sorted({sample.reason for sample in samples if sample.outcome != "hit"})
        self._require(
            made == calls,
            f"exact: {len(samples)} {what} made {made} model calls, not {calls} ({', '.join(reasons)})",
        )
        return _answered_row("exact", what, samples, hits, without)

    async def _invalidate(self) -> tuple[float, list[Sample]]:
        """Seconds to invalidate all that was stored, and the questions asked again after it."""
        self._progress("Everything invalidated: the model must be asked again")
        started = time.perf_counter()
        async with self._http.post(f"{self._admin}/invalidate", json={"tenant": "default"}) as response:
            if response.status != 200:
                raise StrataError(f"the gateway answered {response.status}: {(await response.text())[:300]}")
        seconds = time.perf_counter() - started
        return seconds, [await self.ask(body) for body in traffic.questions()]

    async def _stampede(self) -> Row:
        self._progress(f"{CROWD} ask one question at once, then without cache")
        crowd = [traffic.STAMPEDE] * CROWD
        samples = await self._all(crowd)
        without = await self._all(crowd, WITHOUT)
        self._require(len({sample.text for sample in samples}) == 1, "followers got another answer")
        return self._exact_row(f"{CROWD} at once", samples, without, calls=1)

    async def _conversation(self) -> Row:
        self._progress("A conversation, then with its history computed anew")
        messages: list[tuple[str, str]] = [("system", traffic.BRIEF)]
        bodies, samples = [], []
        for turn in traffic.CONVERSATION:
            messages.append(("user", turn))
            bodies.append(traffic.chat(*messages, max_tokens=32))
            samples.append(await self.ask(bodies[-1]))
            messages.append(("assistant", samples[-1].text))
        without = [await self.ask(self._cold(body), WITHOUT) for body in bodies]
        # The first turn's prefix is nobody's history.
        return self._kv_row("conversation", samples[1:], without[1:], least=0.5)

    async def _shared_prompt(self) -> Row:
        self._progress("Eight users of one long prompt, then computed anew")
        bodies = [traffic.support(question) for question in traffic.SUPPORT_QUESTIONS]
        await self.ask(bodies[0])
        samples = await self._all(bodies[1:])
        without = await self._all([self._cold(body) for body in bodies[1:]], WITHOUT)
        return self._kv_row("shared prompt", samples, without, least=0.8)

    def _kv_row(
        self, what: str, samples: Sequence[Sample], without: Sequence[Sample], *, least: float
    ) -> Row:
        """``least``: the part of each prompt's tokens that must have been found computed."""
        hits = [sample for sample in samples if sample.cached_tokens > 0]
        poor = [s for s in samples if s.cached_tokens < least * s.prompt_tokens]
        self._require(
            not poor, f"kv: {len(poor)} of {len(samples)} prompts found too little computed ({what})"
        )
        warm = sum(sample.cached_tokens for sample in without)
        self._require(warm == 0, f"kv: the run without reuse reused {warm} tokens")
        return Row(
            tier="kv",
            what=what,
            timed="first token",
            lookups=len(samples),
            hits=len(hits),
            with_cache=tuple(sample.first for sample in samples),
            without_cache=tuple(sample.first for sample in without),
            calls_saved=0,
            tokens_saved=sum(sample.cached_tokens for sample in hits),
        )

    def _cold(self, body: Body) -> Body:
        """The same request with a salt of its own, so that the engine finds none of its prefix."""
        return {**body, "cache_salt": f"demo-{next(self._salts)}"}

    def _require(self, condition: bool, fault: str) -> None:
        if not condition:
            self._faults.append(fault)


def explained(semantic: JSON) -> str:
    """Why the semantic tier lets a question pass, in a few words, from what ``explain`` tells of the nearest one."""
    looks = semantic.get("looks") or ()
    if not looks and semantic["reason"] == "no_candidate":
        return "no stored question of its language is near"
    if not looks:
        return "of a kind whose answers are not shared"
    verified = [look for look in looks if look["probability"] is not None]
    if verified:
        likeliest = max(verified, key=lambda look: look["probability"])
        return f"{likeliest['probability']:.0%} likely to have the same answer"
    vetoes = [finding for finding in looks[0]["findings"] if " veto: " in finding]
    return vetoes[0].replace(" veto: ", ": ") if vetoes else str(looks[0]["verdict"])


def _answered_row(
    tier: str, what: str, samples: Sequence[Sample], hits: Sequence[Sample], without: Sequence[Sample]
) -> Row:
    """A row of a tier that answers."""
    return Row(
        tier=tier,
        what=what,
        timed="whole answer",
        lookups=len(samples),
        hits=len(hits),
        with_cache=tuple(sample.total for sample in samples),
        without_cache=tuple(sample.total for sample in without),
        calls_saved=len(hits),
        tokens_saved=sum(sample.prompt_tokens + sample.completion_tokens for sample in hits),
    )


async def run_demo(base_url: str, progress: Callable[[str], None]) -> Result:
    """Wait for the gateway at ``base_url`` to be ready and run the demo against it."""
    async with aiohttp.ClientSession(
        headers={"content-type": "application/json"},
        timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT),
    ) as http:
        progress("Starting (the first start converts the model)")
        await _wait_ready(http, base_url.removesuffix("/v1") + "/readyz")
        return await Demo(http, base_url, progress).run()


async def _wait_ready(http: aiohttp.ClientSession, url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(aiohttp.ClientError):
            async with http.get(url) as response:
                if response.status == 200:
                    return
        await asyncio.sleep(0.2)
    raise StrataError(f"the engine was not ready within {START_TIMEOUT:.0f} s; see its messages above")

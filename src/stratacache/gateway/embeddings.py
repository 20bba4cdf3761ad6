"""``POST /v1/embeddings``: every input is looked up, joined, computed and stored by itself; then the answer is joined.

What no tier has is sent upstream as one call (``upstream.batches``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from stratacache.dialects import openai_embeddings, wire
from stratacache.errors import UpstreamError
from stratacache.gateway.headers import decision_headers, passed_on
from stratacache.gateway.http import (
    JSON_TYPE,
    ASGIScope,
    Receive,
    Send,
    hang_up_cancels,
    read_body,
    send_body,
    send_error,
)
from stratacache.gateway.prepare import Prepared, Preparer
from stratacache.pipeline.flight import Head
from stratacache.pipeline.serve import Answered, Boarded, NotAdmitted, NotCached, Pipeline, Settled
from stratacache.policy.fields import EMBEDDINGS
from stratacache.ports import Clock
from stratacache.types import JSON, Decision

Served = Answered | Settled


class EmbeddingsEndpoint:
    """Serves requests for embeddings. ``max_body`` bounds the request body in bytes."""

    def __init__(self, preparer: Preparer, pipeline: Pipeline, clock: Clock, *, max_body: int) -> None:
        self._preparer = preparer
        self._pipeline = pipeline
        self._clock = clock
        self._max_body = max_body

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self._max_body)
        started = self._clock.monotonic()
        whole = await self._preparer.prepare(scope["headers"], body, EMBEDDINGS)
        rest = {name: value for name, value in whole.request.body.items() if name != "input"}
        inputs = openai_embeddings.inputs_of(whole.request.body["input"])
        parts = await self._preparer.split(whole, [{**rest, "input": one} for one in inputs])
        key_stage = ("key", self._clock.monotonic() - started)
        async with hang_up_cancels(receive):
            try:
                served = await self._serve(parts)
            except (NotCached, NotAdmitted) as refusal:
                await send_error(send, refusal, decision_headers(refusal.decision))
                return
            try:
                await self._send(send, parts, served, key_stage)
            finally:
                for one in served:
                    if isinstance(one, Settled):
                        self._pipeline.leave(one)

    async def _serve(self, parts: Sequence[Prepared]) -> list[Served]:
        """An answer or a landed call for each; equal inputs join one call."""
        tasks = [asyncio.ensure_future(self._serve_one(part)) for part in parts]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Settled):
                    self._pipeline.leave(ended)
            raise

    async def _serve_one(self, part: Prepared) -> Served:
        served = await self._pipeline.serve(part.request, part.key, part.plan)
        if isinstance(served, Boarded):
            return await self._pipeline.settle(part.request, part.key, served)
        return served

    async def _send(
        self, send: Send, parts: Sequence[Prepared], served: Sequence[Served], key_stage: tuple[str, float]
    ) -> None:
        failed = next((one for one in served if isinstance(one, Settled) and _refused(one)), None)
        decision = _summary(served, failed, key_stage)
        hits = sum(one.decision.outcome in ("hit", "stale") for one in served)
        headers = [*decision_headers(decision), (b"x-strata-inputs-cached", b"%d/%d" % (hits, len(served)))]
        head: Head | None = None
        if failed is not None:
            head, landing = failed.seat.flight.head, failed.seat.flight.landing
            if head is None or landing is None or failed.failure is not None:
                failure = failed.failure or UpstreamError("the call was aborted", code="upstream_cut")
                await send_error(send, failure, headers)
                return
            await send_body(send, head.status, [JSON_TYPE, *passed_on(head.headers), *headers], landing.body)
            return
        refused = next((one for one in served if isinstance(one, Answered) and one.entry.status != 200), None)
        if refused is not None:  # a remembered refusal
            await send_body(send, refused.entry.status, [JSON_TYPE, *headers], refused.entry.body)
            return
        try:
            encoding = parts[0].request.body.get("encoding_format")
            joined = openai_embeddings.joined_answer([_answer(one) for one in served], encoding)
        except UpstreamError as failure:
            await send_error(send, failure, headers)
            return
        await send_body(send, 200, [JSON_TYPE, *headers], wire.encode(joined))


def _refused(settled: Settled) -> bool:
    head = settled.seat.flight.head
    return settled.failure is not None or head is None or head.status != 200


def _answer(served: Served) -> dict[str, JSON]:
    landing = served.seat.flight.landing if isinstance(served, Settled) else None
    answer: JSON = (
        msgspec.json.decode(served.entry.body) if isinstance(served, Answered) else landing and landing.answer
    )
    if openai_embeddings.completeness(answer) is not None or type(answer) is not dict:
        raise UpstreamError("the upstream sent something that is no embedding", code="upstream_malformed")
    return answer


def _summary(served: Sequence[Served], failed: Settled | None, key_stage: tuple[str, float]) -> Decision:
    """What happened to the request as a whole: the first input that was computed speaks for it, else the first."""
    computed = (one for one in served if one.decision.outcome not in ("hit", "stale"))
    told = failed or next(computed, served[0])
    saved = sum(one.decision.saved_tokens for one in served)
    ages = [one.decision.age for one in served if one.decision.age is not None]
    return msgspec.structs.replace(
        told.decision,
        saved_tokens=saved,
        age=max(ages) if ages else None,
        entry_id=told.decision.entry_id if len(served) == 1 else None,
        stages=(key_stage, *told.decision.stages),
    )

"""Sends the embeddings that are asked for at one moment as one call, and hands each its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from stratacache.dialects import openai_embeddings, wire
from stratacache.errors import UpstreamError
from stratacache.policy.fields import EMBEDDINGS
from stratacache.ports import Upstream, UpstreamResponse
from stratacache.types import JSON, Request

WINDOW = 0.002  # seconds that the first of a batch waits for more
MAX_BATCH = 256  # inputs in one call
ALONE_AT_ONCE = 8
_REQUEST_FAULTS = frozenset({400, 413, 422})


class Whole:
    """A ``ports.UpstreamResponse`` that has been read."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def close(self) -> None:
        return


Answer = asyncio.Future[Whole]
Place = tuple[str, bytes]


class _Batch:
    """Inputs that differ in nothing else: one request's settings, and what is to become of each input."""

    def __init__(self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]) -> None:
        self.request = request
        self.body = body
        self.headers = headers
        self.inputs: list[JSON] = []
        self.answers: list[Answer] = []

    @property
    def wanted(self) -> bool:
        return not all(answer.done() for answer in self.answers)


class Batches:
    """A ``ports.Upstream`` over another one. Everything but embeddings goes straight through.

    Inputs of several clients may travel in one call, when model, settings, forwarded headers and credential are equal.
    When the upstream finds fault with such a call, each input is sent alone, so that none pays for another's fault.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.name = upstream.name
        self.forwards_credentials = upstream.forwards_credentials
        self._open: dict[Place, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(
        self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """See ``ports.Upstream.send``; ``input`` of an embedding is one input."""
        if request.endpoint != EMBEDDINGS:
            return await self._upstream.send(request, body, headers)
        rest = {name: value for name, value in body.items() if name != "input"}
        place = (request.resolved_model, msgspec.json.encode([rest, sorted(headers.items())], order="sorted"))
        batch = self._open.get(place)
        if batch is None:
            batch = self._open[place] = _Batch(request, rest, headers)
            self._start(self._fly(place, batch))
        answer: Answer = asyncio.get_running_loop().create_future()
        batch.inputs.append(body["input"])
        batch.answers.append(answer)
        if len(batch.inputs) >= MAX_BATCH:
            del self._open[place]  # it leaves with its window; the next one opens another
        return await answer

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> UpstreamResponse:
        """See ``ports.Upstream.forward``."""
        return await self._upstream.forward(method, path, query, body, headers)

    async def start(self) -> None:
        """See ``ports.Upstream.start``."""
        await self._upstream.start()

    async def ready(self) -> bool:
        """See ``ports.Upstream.ready``."""
        return await self._upstream.ready()

    async def close(self) -> None:
        """See ``ports.Upstream.close``; calls in flight break off."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upstream.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="batch")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, place: Place, batch: _Batch) -> None:
        await asyncio.sleep(WINDOW)
        if self._open.get(place) is batch:
            del self._open[place]
        if not batch.wanted:
            return
        try:
            came = await self._call(batch, batch.inputs)
            if came.status in _REQUEST_FAULTS and len(batch.inputs) > 1:
                await self._each_alone(batch)
            elif came.status == 200:
                bodies = openai_embeddings.single_answers(wire.decode_answer(await came.read()), batch.inputs)
                headers = {n: v for n, v in came.headers.items() if n != "content-length"}
                for answer, body in zip(batch.answers, bodies, strict=True):
                    _settle(answer, Whole(200, headers, body))
            else:
                for answer in batch.answers:
                    _settle(answer, came)
        except UpstreamError as error:
            for answer in batch.answers:
                _settle(answer, error)
        finally:
            for answer in batch.answers:
                _settle(answer, UpstreamError("the call was aborted", code="upstream_cut"))

    async def _each_alone(self, batch: _Batch) -> None:
        turns = asyncio.Semaphore(ALONE_AT_ONCE)

        async def one(value: JSON, answer: Answer) -> None:
            async with turns:
                try:
                    _settle(answer, await self._call(batch, [value]))
                except UpstreamError as error:
                    _settle(answer, error)

        await asyncio.gather(*map(one, batch.inputs, batch.answers))

    async def _call(self, batch: _Batch, inputs: Sequence[JSON]) -> Whole:
        asked = inputs[0] if len(inputs) == 1 else list(inputs)
        response = await self._upstream.send(batch.request, {**batch.body, "input": asked}, batch.headers)
        try:
            return Whole(response.status, response.headers, await response.read())
        finally:
            await response.close()


def _settle(answer: Answer, what: Whole | UpstreamError) -> None:
    if answer.done():
        return
    if isinstance(what, UpstreamError):
        answer.set_exception(what)
    else:
        answer.set_result(what)

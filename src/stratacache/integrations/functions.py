"""Calls of Python functions as requests: the pipeline looks them up, makes one of several alike, and keeps results."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, cast

import msgspec

from stratacache.errors import UpstreamError
from stratacache.pipeline.plan import Plan
from stratacache.pipeline.serve import Answered, Pipeline, Settled
from stratacache.settings import OpenAISettings
from stratacache.types import JSON, Key, Request

log = logging.getLogger(__name__)

PREFIX = "python/"
GUEST = OpenAISettings(name="python", models=(f"{PREFIX}*",), base_url="http://python.invalid/v1")
"""How the functions stand among the upstreams. Nothing is ever sent to that address."""

Make = Callable[[], Awaitable[Any]]
_MAKE: ContextVar[Make] = ContextVar("stratacache_make")
"""What the call under way runs if there is no answer. The pipeline's tasks inherit it from who starts them."""


class FunctionCall(msgspec.Struct, frozen=True):
    """One call. All of it is in the key.

    ``name``: of the function, unique in the store. ``arguments``: JSON values, compared to the byte. ``question``: the
    one argument that is prose: compared in its normal form, and by its meaning; None where there is none.
    ``before``: the turns that the question stands after, as (role, text).
    """

    name: str
    arguments: Mapping[str, JSON]
    question: str | None = None
    before: tuple[tuple[str, str], ...] = ()
    version: str = ""

    def body(self) -> bytes:
        """The request. Raises TypeError when arguments are no JSON."""
        for name, value in self.arguments.items():
            if not is_json(value):
                raise TypeError(
                    f"the argument {name!r} of {self.name} is no JSON value ({type(value).__name__}), so two calls "
                    "cannot be compared by it; leave it out of the key with ignore=, if it does not change the result"
                )
        turns = [*self.before, ("user", self.name if self.question is None else self.question)]
        try:
            return msgspec.json.encode(
                {
                    "model": PREFIX + self.name,
                    "messages": [{"role": role, "content": text} for role, text in turns],
                    "arguments": self.arguments,
                    "version": self.version,
                }
            )
        except (ValueError, OverflowError) as error:  # half of a surrogate pair, say
            raise TypeError(f"arguments of {self.name} cannot be written as JSON: {error}") from error


class _Unkept(Exception):
    """The result is good, and cannot be kept as JSON."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Whole:
    """A ``ports.UpstreamResponse`` with a JSON body."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, value: JSON) -> None:
        self._body = msgspec.json.encode(value)

    async def read(self) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def close(self) -> None:
        return


class FunctionUpstream:
    """A ``ports.Upstream`` that runs what the caller brought, in the caller's context."""

    name = GUEST.name
    forwards_credentials = False

    async def send(self, request: Request, body: Mapping[str, JSON], headers: Mapping[str, str]) -> _Whole:
        """Run it. What it raises, and what cannot be kept, is the cause of the UpstreamError."""
        make = _MAKE.get(None)
        if make is None:
            raise UpstreamError(f"{request.model} is a Python function, and only its own calls run it")
        try:
            value = await make()
        except Exception as error:
            raise UpstreamError(f"{request.model} raised {type(error).__name__}") from error
        try:
            return _Whole(_answer(value))
        except (TypeError, ValueError, OverflowError, RecursionError):
            log.warning(
                "%s: a result (%s) is no JSON value and is not kept", request.model, type(value).__name__
            )
            raise UpstreamError(
                f"{request.model} gave what cannot be kept", code="upstream_malformed"
            ) from _Unkept(value)

    async def forward(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> _Whole:
        """The list of models: functions are in none."""
        return _Whole({"object": "list", "data": []})

    async def start(self) -> None:
        """Nothing to make ready."""

    async def ready(self) -> bool:
        """A function is always there."""
        return True

    async def close(self) -> None:
        """Nothing to release."""


class Prepared(Protocol):
    """What the gateway makes of a request."""

    @property
    def request(self) -> Request: ...
    @property
    def key(self) -> Key: ...
    @property
    def plan(self) -> Plan: ...


Prepare = Callable[[list[tuple[bytes, bytes]], bytes], Awaitable[Prepared]]


async def call(
    pipeline: Pipeline, prepare: Prepare, asked: FunctionCall, make: Make, headers: Mapping[str, str]
) -> Any:
    """The result of ``make``, kept or new. ``headers`` say whose it is and what the cache may do, as a client's.

    An exception of ``make`` reaches all who wait for it, and is not kept.

    Raises:
        TypeError: arguments are no JSON.
        RequestError: a header is wrong, or the result may only come from the cache and is not there.
    """
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    prepared = await prepare(raw, asked.body())
    token = _MAKE.set(make)
    try:
        served = await pipeline.serve(prepared.request, prepared.key, prepared.plan)
        settled = (
            served
            if isinstance(served, Answered)
            else await pipeline.settle(prepared.request, prepared.key, served)
        )
    finally:
        _MAKE.reset(token)
    if isinstance(settled, Answered):
        return _value(msgspec.json.decode(settled.entry.body))
    try:
        return await _result(settled, make)
    finally:
        pipeline.leave(settled)


async def _result(settled: Settled, make: Make) -> Any:
    failure = settled.failure
    if failure is None:
        landing = settled.seat.flight.landing
        assert landing is not None
        return _value(msgspec.json.decode(landing.body))
    cause = failure.__cause__
    if isinstance(cause, _Unkept):
        return cause.value
    if isinstance(cause, Exception):
        raise cause
    # The call was another instance's, whose exception is not known here, or the pipeline failed: do without it.
    return await make()


def is_json(value: Any) -> bool:
    """Whether ``value`` comes back from JSON as it was, types included."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return all(map(is_json, value))
    if kind is dict:
        return all(type(key) is str and is_json(one) for key, one in value.items())
    return value is None or kind in (str, int, bool)


def _answer(value: Any) -> dict[str, JSON]:
    """``value`` as an answer. A text stands there as a model's would; all else as JSON, with a mark."""
    message: dict[str, JSON] = {"role": "assistant"}
    if type(value) is str:
        message["content"] = value
    elif is_json(value):
        message |= {"content": msgspec.json.encode(value).decode(), "form": "json"}
    else:
        raise TypeError("no JSON value")
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def _value(answer: JSON) -> Any:
    message = answer["choices"][0]["message"]
    text = cast(str, message["content"])
    return msgspec.json.decode(text) if message.get("form") == "json" else text

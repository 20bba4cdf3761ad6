"""LangChain's own cache seam on a Stratacache store. Needs the extra ``langchain``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from langchain_core.caches import BaseCache
from langchain_core.load import dumps, loads
from langchain_core.outputs import ChatGeneration, Generation

from stratacache.errors import RequestError
from stratacache.integrations.functions import FunctionCall, Make
from stratacache.integrations.portal import Portal

log = logging.getLogger(__name__)

T = TypeVar("T")

NAME = "langchain"
_NOT_WHOLE = frozenset({"length", "max_tokens", "MAX_TOKENS", "content_filter", "refusal", "SAFETY"})
"""Finish reasons of answers that are not whole: they are not kept."""


class Running(Protocol):
    """What is needed of a ``Stratacache``."""

    async def call(self, asked: FunctionCall, make: Make, headers: Mapping[str, str]) -> Any: ...
    async def invalidate(self, *, tags: Sequence[str]) -> Mapping[str, Any]: ...


class Cache(Protocol):
    """A ``SyncStratacache``: its loop serves threads and event loops alike."""

    @property
    def portal(self) -> Portal: ...
    @property
    def asynchronous(self) -> Running: ...


class StratacacheCache(BaseCache):
    """For ``set_llm_cache(...)`` or a model's ``cache=``.

    The key holds the whole prompt and the whole ``llm_string``, to the byte: only an equal call of an equal model is
    answered. LangChain asks before and tells after a call, so calls alike at one time are not made one, and other words
    are not looked for; ``StratacacheTransport`` under the model's client does both.

    Args:
        cache: a running ``SyncStratacache``.
        namespace: answers never leave it; "" is a choice too.
        ttl: seconds, at most those of the scene; None for the scene's.
    """

    def __init__(self, cache: Cache, *, namespace: str, ttl: float | None = None) -> None:
        self._cache = cache
        self._tag = f"{NAME}:{namespace}" if namespace else NAME
        self._headers = {"x-strata-tiers": "exact", "x-strata-tags": self._tag}
        if namespace:
            self._headers["x-strata-namespace"] = namespace
        if ttl is not None:
            self._headers["x-strata-ttl"] = f"{ttl:g}"

    def lookup(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        """See ``BaseCache.lookup``."""
        return self._cache.portal.run(self._look_up(prompt, llm_string))

    async def alookup(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        """See ``BaseCache.alookup``."""
        return await self._there(self._look_up(prompt, llm_string))

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """See ``BaseCache.update``. What was cut short, or does not come back as it was, is not kept."""
        self._cache.portal.run(self._keep(prompt, llm_string, return_val))

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """See ``BaseCache.aupdate``."""
        await self._there(self._keep(prompt, llm_string, return_val))

    def clear(self, **kwargs: Any) -> None:
        """End all answers of this namespace that came through LangChain, on every instance."""
        self._cache.portal.run(self._cache.asynchronous.invalidate(tags=[self._tag]))

    async def aclear(self, **kwargs: Any) -> None:
        """See :meth:`clear`."""
        await self._there(self._cache.asynchronous.invalidate(tags=[self._tag]))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._cache.portal.submit(work))

    async def _look_up(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        headers = {**self._headers, "cache-control": "only-if-cached"}
        try:
            kept = await self._cache.asynchronous.call(_asked(prompt, llm_string), _nothing, headers)
        except RequestError as error:
            if error.code != "not_cached":
                raise
            return None
        return _read(kept)

    async def _keep(self, prompt: str, llm_string: str, given: Sequence[Generation]) -> None:
        text = dumps(list(given))
        if not _is_whole(given) or _read(text) != list(given):
            log.info(
                "an answer through LangChain is not kept: it was cut short, or does not come back as it was"
            )
            return

        async def make() -> str:
            return text

        headers = {**self._headers, "cache-control": "no-cache"}
        await self._cache.asynchronous.call(_asked(prompt, llm_string), make, headers)


def _asked(prompt: str, llm_string: str) -> FunctionCall:
    return FunctionCall(NAME, {"prompt": prompt, "llm": llm_string})


async def _nothing() -> str:
    raise LookupError("nothing is kept")


def _read(text: str) -> list[Generation] | None:
    """The generations, None where this version of LangChain does not know what it reads: that is a miss."""
    try:
        read = loads(text, allowed_objects="core")
    except (ValueError, NotImplementedError, ImportError, TypeError) as error:
        log.info("a kept answer cannot be read: %s", type(error).__name__)
        return None
    is_right = isinstance(read, list) and all(isinstance(one, Generation) for one in read)
    return read if is_right else None


def _is_whole(given: Sequence[Generation]) -> bool:
    for one in given:
        told = [one.generation_info or {}]
        if isinstance(one, ChatGeneration):
            told.append(one.message.response_metadata)
        reasons = {str(t.get(name)) for t in told for name in ("finish_reason", "stop_reason")}
        if reasons & _NOT_WHOLE:
            return False
    return bool(given)

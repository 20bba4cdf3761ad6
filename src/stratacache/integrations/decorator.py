"""``@cached_answer``: the cache around any function that calls a model."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from stratacache.integrations.functions import FunctionCall, Make

P = ParamSpec("P")
R = TypeVar("R")

_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: list, inspect.Parameter.VAR_KEYWORD: dict}


class Cache(Protocol):
    """``Stratacache`` or ``SyncStratacache``: the first for coroutines, the second for plain functions."""

    is_sync: bool

    def claim(self, name: str) -> None:
        """Note that a function has ``name``; raises ValueError when another one has."""
        ...

    def call(self, asked: FunctionCall, make: Make, headers: Mapping[str, str]) -> Any:
        """The result, or a coroutine that gives it."""
        ...


def cached_answer(
    cache: Cache,
    *,
    namespace: str,
    question: str | None = None,
    ignore: Sequence[str] = (),
    ttl: float | None = None,
    scene: str = "",
    tags: Sequence[str] = (),
    name: str = "",
    version: str = "",
    api_key: str = "",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep the results of a function, and run it once for calls alike that come at one time.

    The key is the function's name, its ``version`` and all its arguments, defaults included, as JSON values. What
    cannot come back from JSON as it was is returned and not kept; an exception reaches all who wait and is not kept.

    Args:
        cache: a ``Stratacache`` for ``async def``, a ``SyncStratacache`` for ``def``.
        namespace: results never leave it; "" is a choice too. ``api_key`` gives the tenant, where keys are configured.
        question: the parameter that holds a question in prose. Only with it can another question of the same meaning
            be answered, by the semantic tier; the other arguments must be equal all the same.
        ignore: parameters that have no say in the result, such as a client object.
        ttl: seconds, at most those of the scene. ``scene`` and ``tags`` are as in requests.
        name: instead of module and qualified name, which must be unique.
        version: another one after a change of the function leaves the old results behind.
    """
    headers = {"x-strata-namespace": namespace} if namespace else {}
    headers |= {"x-strata-tiers": "exact"} if question is None else {}
    headers |= {"x-strata-ttl": f"{ttl:g}"} if ttl is not None else {}
    headers |= {"x-strata-scene": scene} if scene else {}
    headers |= {"x-strata-tags": ",".join(tags)} if tags else {}
    headers |= {"authorization": f"Bearer {api_key}"} if api_key else {}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = name or f"{function.__module__}.{function.__qualname__}"
        is_async = _is_async(function)
        if is_async == cache.is_sync:
            wanted = "a Stratacache" if is_async else "a SyncStratacache"
            raise TypeError(
                f"{called} takes {wanted}: it is {'' if is_async else 'not '}a coroutine function"
            )
        read = _reader(function, called, question, ignore, version)
        cache.claim(called)

        def make(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Make:
            if is_async:
                return functools.partial(cast(Callable[..., Awaitable[Any]], function), *args, **kwargs)
            return functools.partial(asyncio.to_thread, function, *args, **kwargs)

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            return await cache.call(read(args, kwargs), make(args, kwargs), headers)

        @functools.wraps(function)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            return cache.call(read(args, kwargs), make(args, kwargs), headers)

        return cast(Callable[P, R], asynchronous if is_async else synchronous)

    return decorate


def _is_async(function: Callable[..., Any]) -> bool:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            "a generator's pieces are not kept; decorate a function that returns the whole answer"
        )
    return inspect.iscoroutinefunction(function)


def _reader(
    function: Callable[..., Any], called: str, question: str | None, ignore: Sequence[str], version: str
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], FunctionCall]:
    """What makes a call's key of its arguments."""
    signature = inspect.signature(function)
    for parameter in (*ignore, *(() if question is None else (question,))):
        if parameter not in signature.parameters:
            raise TypeError(f"{called} has no parameter {parameter!r}")

    def read(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> FunctionCall:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = {n: value for n, value in bound.arguments.items() if n not in ignore}
        for parameter, kind in ((n, signature.parameters[n].kind) for n in values):
            if kind in _VARIADIC:
                values[parameter] = _VARIADIC[kind](values[parameter])
        asked = values.pop(question) if question is not None else None
        if question is not None and type(asked) is not str:
            raise TypeError(f"the argument {question!r} of {called} is the question, and must be a str")
        return FunctionCall(called, values, asked, version=version)

    return read

"""An HTTP transport for the clients of OpenAI and Anthropic: their requests are answered in this process."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Protocol, Self

from stratacache.integrations.inprocess import Application, BrokenAnswer, Exchange, begin
from stratacache.integrations.portal import Portal


class Cache(Protocol):
    """``Stratacache`` or ``SyncStratacache``. ``portal`` leads to the loop that the second one runs on."""

    @property
    def app(self) -> Application: ...
    @property
    def portal(self) -> Portal | None: ...


class StratacacheTransport:
    """For ``http_client=`` of an SDK: ``httpx.AsyncClient(transport=…)`` or ``httpx.Client(transport=…)``.

    Works with httpx and httpx2: answers are made with the library that a request came from. With a ``Stratacache`` it
    serves asynchronous clients of the same event loop, with a ``SyncStratacache`` clients of either kind.

    Args:
        hosts: requests to these are answered here. ``stratacache`` is a name for a base URL
            (``http://stratacache/v1``); a provider's host, such as ``api.openai.com``, takes what is sent there.
        inner: the transport for all other hosts; by default one of the request's own library.
    """

    def __init__(self, cache: Cache, *, hosts: Sequence[str] = ("stratacache",), inner: Any = None) -> None:
        self._cache = cache
        self._hosts = frozenset(host.lower() for host in hosts)
        self._inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        """See ``httpx.AsyncBaseTransport``."""
        library = _library(request)
        if request.url.host not in self._hosts:
            return await self._elsewhere(library.AsyncHTTPTransport).handle_async_request(request)
        body, limit = await request.aread(), _read_timeout(request)
        portal = self._cache.portal
        try:
            if portal is None:
                exchange = await _in_time(self._begin(request, body), limit)
            else:
                exchange = await asyncio.wrap_future(
                    portal.submit(_in_time(self._begin(request, body), limit))
                )
        except (TimeoutError, BrokenAnswer) as error:
            raise _told(library, error, request) from error
        stream = _streams(library)[0](exchange, portal, limit, library, request)
        return library.Response(exchange.status, headers=exchange.headers, stream=stream, request=request)

    def handle_request(self, request: Any) -> Any:
        """See ``httpx.BaseTransport``. Raises TypeError with a ``Stratacache``, which is asynchronous."""
        library = _library(request)
        if request.url.host not in self._hosts:
            return self._elsewhere(library.HTTPTransport).handle_request(request)
        portal = self._cache.portal
        if portal is None:
            raise TypeError("a client that is not asynchronous needs a SyncStratacache")
        body, limit = request.read(), _read_timeout(request)
        try:
            exchange = portal.run(_in_time(self._begin(request, body), limit))
        except (TimeoutError, BrokenAnswer) as error:
            raise _told(library, error, request) from error
        stream = _streams(library)[1](exchange, portal, limit, library, request)
        return library.Response(exchange.status, headers=exchange.headers, stream=stream, request=request)

    async def _begin(self, request: Any, body: bytes) -> Exchange:
        target = request.url.raw_path.decode("ascii")
        return await begin(self._cache.app, request.method, target, request.headers.raw, body)

    def _elsewhere(self, made_by: Any) -> Any:
        if self._inner is None:
            self._inner = made_by()
        return self._inner

    async def aclose(self) -> None:
        """Close the inner transport; the cache is its owner's."""
        if self._inner is not None:
            await self._inner.aclose()

    def close(self) -> None:
        """As :meth:`aclose`."""
        if self._inner is not None:
            self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *of: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.close()


def _library(request: Any) -> ModuleType:
    """httpx or httpx2, whichever made ``request``."""
    return importlib.import_module(type(request).__module__.partition(".")[0])


def _read_timeout(request: Any) -> float | None:
    """Seconds that the client waits for the next part of an answer, None for ever."""
    limit: float | None = request.extensions.get("timeout", {}).get("read")
    return limit


async def _in_time(work: Any, limit: float | None) -> Any:
    async with asyncio.timeout(limit):
        return await work


def _told(library: ModuleType, error: Exception, request: Any) -> Exception:
    """``error`` as the library names it."""
    if isinstance(error, TimeoutError):
        return library.ReadTimeout("the answer took too long", request=request)  # type: ignore[no-any-return]
    return library.RemoteProtocolError(str(error), request=request)  # type: ignore[no-any-return]


@cache
def _streams(library: ModuleType) -> tuple[Any, Any]:
    """An asynchronous and a plain stream of the library's own kind, over an exchange."""

    class Body:
        def __init__(
            self,
            exchange: Exchange,
            portal: Portal | None,
            limit: float | None,
            lib: ModuleType,
            request: Any,
        ) -> None:
            self.exchange, self.portal, self.limit = exchange, portal, limit
            self.lib, self.request = lib, request

        async def next(self) -> bytes:
            """On the cache's own loop."""
            try:
                piece: bytes = await _in_time(self.exchange.next(), self.limit)
            except (TimeoutError, BrokenAnswer) as error:
                raise _told(self.lib, error, self.request) from error
            return piece

    class Asynchronous(Body, library.AsyncByteStream):  # type: ignore[name-defined, misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while piece := await self.there(self.next()):
                yield piece

        async def aclose(self) -> None:
            await self.there(self.exchange.close())

        async def there(self, work: Any) -> Any:
            return await (work if self.portal is None else asyncio.wrap_future(self.portal.submit(work)))

    class Plain(Body, library.SyncByteStream):  # type: ignore[name-defined, misc]
        def __iter__(self) -> Iterator[bytes]:
            assert self.portal is not None
            while piece := self.portal.run(self.next()):
                yield piece

        def close(self) -> None:
            assert self.portal is not None
            self.portal.run(self.exchange.close())

    return Asynchronous, Plain

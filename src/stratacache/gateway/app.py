"""The ASGI application: routes, health, errors, start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from stratacache.dialects.clients import error_words
from stratacache.errors import RequestError, StrataError
from stratacache.gateway.http import ASGIScope, ClientLeft, RawHeaders, Receive, Send, send_error

log = logging.getLogger(__name__)

Endpoint = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


class Trace(Protocol):
    """Follows requests: ``observe.tracing``."""

    def wants(self, headers: RawHeaders) -> bool:
        """Whether a request with these headers is followed. Asked once of each."""
        ...

    def request(
        self, method: str, route: str, headers: RawHeaders
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Around one that is; what it gives is told the answer's status."""
        ...


class App:
    """A bare ASGI application.

    Args:
        routes: path to method to endpoint; a path that ends in ``/*`` serves all below it.
        start: called at server start; the server answers once it returns.
        stop: called after the last request has ended.
        trace: follows requests; None where that is off.
        refused: told of every request that is refused here, with its route (``other`` for none), status and code.

    ``start_failure`` is the reason, for whoever runs the server, when the start was refused.
    """

    def __init__(
        self,
        routes: Mapping[str, Mapping[str, Endpoint]],
        *,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
        refused: Callable[[str, int, str], None] = lambda route, status, code: None,
        trace: Trace | None = None,
    ) -> None:
        self._exact = {path: methods for path, methods in routes.items() if not path.endswith("/*")}
        self._below = [(path[:-1], methods) for path, methods in routes.items() if path.endswith("/*")]
        self._start = start
        self._stop = stop
        self._refused = refused
        self._trace = trace
        self.start_failure: StrataError | None = None

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            if self._trace is None or not self._trace.wants(scope["headers"]):
                await self._http(scope, receive, send)
            else:
                await self._traced(self._trace, scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})

    async def _traced(self, trace: Trace, scope: ASGIScope, receive: Receive, send: Send) -> None:
        with trace.request(scope["method"], self._route(scope["path"]), scope["headers"]) as answered:

            async def telling_send(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    answered(message["status"])
                await send(message)

            await self._http(scope, receive, telling_send)

    async def _http(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        started = False
        failure: StrataError

        async def tracked_send(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._endpoint(scope)(scope, receive, tracked_send)
        except ClientLeft:
            return
        except asyncio.CancelledError:
            # Only the server cancels a whole request: it is stopping, and has waited as long as it may.
            failure = RequestError("the gateway is stopping", status=503, code="gateway_stopping")
        except StrataError as error:
            failure = error
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            failure = RequestError("internal error", status=500, code="internal_error")
        else:
            return
        status = getattr(failure, "status", 500)
        self._refused(self._route(scope["path"]), status, getattr(failure, "code", "internal_error"))
        if started:
            log.error("%s %s broke off: %s", scope["method"], scope["path"], failure)
        else:
            await send_error(send, failure, words=error_words(scope["path"]))

    def _route(self, path: str) -> str:
        """The route that ``path`` takes: one of a short list, whatever clients ask for."""
        if path in self._exact:
            return path
        return next((f"{prefix}*" for prefix, _ in self._below if path.startswith(prefix)), "other")

    def _endpoint(self, scope: ASGIScope) -> Endpoint:
        path, method = scope["path"], scope["method"]
        methods = self._exact.get(path)
        if methods is None:
            methods = next((m for prefix, m in self._below if path.startswith(prefix)), None)
        if methods is None:
            raise RequestError(f"there is nothing at {path[:200]}", status=404, code="not_found")
        # What can be got can be asked for its head: the server drops the body.
        wanted = "GET" if method == "HEAD" and "HEAD" not in methods and "GET" in methods else method
        endpoint = methods.get(wanted) or methods.get("*")
        if endpoint is None:
            allowed = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
            raise RequestError(
                f"{path[:200]} takes {allowed}, not {method}",
                status=405,
                code="method_not_allowed",
                headers=(("allow", allowed),),
            )
        return endpoint

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._start()
                except StrataError as error:
                    self.start_failure = error
                    await send({"type": "lifespan.startup.failed", "message": ""})
                    return
                except Exception as error:
                    log.exception("start failed")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

"""uvicorn's HTTP protocol with bounds: on the size of a request's head, and on the time that it may take."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from stratacache.dialects import openai_chat
from stratacache.errors import RequestError

MAX_HEAD = 64 << 10
"""Bytes of request line and headers. The parser joins a header's pieces again and again: one of 100 MB stops the
event loop for a quarter of a minute."""

HEAD_TIMEOUT = 60.0  # seconds for a request's head to arrive, on a fresh connection too


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is no HTTP, too large or too slow ends it; errors are in OpenAI's shape."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False
        self._head_size = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        self.pipeline.clear()
        super().connection_lost(exc)
        # The base class tells only the newest request of a pipeline that its client has left.
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._refuse(
                    RequestError(
                        f"the request's headers have more than {MAX_HEAD} bytes",
                        status=431,
                        code="headers_too_large",
                    )
                )
                return
        if self._head_timer is None and (self._in_head or not self._is_busy()):
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_size = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_arrived()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestError("this is not valid HTTP", code="invalid_http"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._head_is_late)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._is_busy():  # the next request of a pipeline has time until this one's answer is there
            self._await_head()
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, error: RequestError) -> None:
        """Answer and close; close only when that would fall into the middle of another answer."""
        if not self._is_busy():
            body = openai_chat.error_body(error)
            lines = [
                f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                "connection: close",
            ]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()

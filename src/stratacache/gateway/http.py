"""The little of ASGI that the gateway needs: reading bodies within bounds, sending, noticing a client that left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import msgspec

from stratacache.dialects import openai_chat
from stratacache.errors import RequestError, StrataError
from stratacache.types import JSON

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
SSE_HEADERS: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

BODY_TIMEOUT = 60.0  # seconds for a request body to arrive
DISCARD_FACTOR = 4
"""An over-long body is read on and thrown away up to this many limits, so that the client is listening when the
refusal comes, instead of seeing its connection reset."""


class ClientLeft(Exception):
    """The client hung up before its request was complete."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole request body.

    Raises:
        RequestError: 413 beyond ``limit`` bytes, 408 when it does not arrive in time.
        ClientLeft: the client hung up.
    """
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _read_in_time(receive, limit)
    except TimeoutError:
        raise RequestError(
            f"the request body did not arrive within {BODY_TIMEOUT:.0f} s",
            status=408,
            code="body_timeout",
        ) from None


async def _read_in_time(receive: Receive, limit: int) -> bytes:
    parts = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        more = message.get("more_body", False)
        if size <= limit:
            parts.append(part)
        elif size > DISCARD_FACTOR * limit:
            break
    if size > limit:
        raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"the request body is larger than {limit} bytes; send less, or raise server.max_body",
        status=413,
        code="body_too_large",
    )


def read_query(scope: ASGIScope, name: str) -> str | None:
    """The last value of ``name`` in the query string."""
    values = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get(name)
    return values[-1] if values else None


def read_number(scope: ASGIScope, name: str, *, default: int, most: int) -> int:
    """``?NAME=``. Raises RequestError: it is no whole number from 1 to ``most``."""
    text = read_query(scope, name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most:
        return int(text)
    raise RequestError(f"{name} must be a whole number from 1 to {most}", param=name, code="invalid_value")


async def send_body(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """A complete response."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, value: JSON, status: int = 200) -> None:
    """A complete response with ``value``, which ``msgspec.json`` can encode."""
    await send_body(send, status, [JSON_TYPE], msgspec.json.encode(value))


async def send_error(
    send: Send,
    error: StrataError,
    headers: Iterable[tuple[bytes, bytes]] = (),
    words: Callable[[StrataError], bytes] = openai_chat.error_body,
) -> None:
    """An error in the client's dialect, whose ``words`` they are, with the status that it carries."""
    status = getattr(error, "status", 500)
    extra = [(n.encode(), v.encode("latin-1", "replace")) for n, v in getattr(error, "headers", ())]
    await send_body(send, status, [JSON_TYPE, *headers, *extra], words(error))


@asynccontextmanager
async def hang_up_cancels(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client hangs up, and swallow that cancellation. The body must have been read."""
    task = asyncio.current_task()
    assert task is not None
    left = False

    def on_message(watcher: asyncio.Future[MutableMapping[str, Any]]) -> None:
        nonlocal left
        if not watcher.cancelled():
            left = True
            task.cancel()

    watcher = asyncio.ensure_future(receive())
    watcher.add_done_callback(on_message)
    try:
        yield
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
    finally:
        watcher.remove_done_callback(on_message)
        watcher.cancel()

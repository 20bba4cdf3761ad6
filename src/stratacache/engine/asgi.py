"""Reading a request and writing an answer over ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from stratacache.engine.errors import BodyTooLarge, Overloaded
from stratacache.engine.replies import Json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY = 8 * 1024 * 1024


class ClientGone(Exception):
    """The client closed the connection; nobody is left to answer."""


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body. Raises BodyTooLarge and ClientGone."""
    too_large = BodyTooLarge(f"The body is over {MAX_BODY} bytes")
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY:
            raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise too_large
        if not message.get("more_body"):
            return bytes(body)


async def send_bytes(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    """A whole answer."""
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    if status == Overloaded.status:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, body: Json) -> None:
    """A whole answer in JSON."""
    await send_bytes(send, status, msgspec.json.encode(body), b"application/json")


async def start_stream(send: Send) -> None:
    """Status and headers of a stream of server-sent events."""
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_events(send: Send, events: list[Json]) -> None:
    """Some events of a stream that goes on."""
    if events:
        body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def end_stream(send: Send, last: bytes = b"") -> None:
    """The end of a stream, after `last`."""
    await send({"type": "http.response.body", "body": last})

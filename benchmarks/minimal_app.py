"""The baseline of the hit benchmark: the least an ASGI cache can do (read, decode, hash, look up, send)."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import msgspec
import uvicorn

ANSWERS: dict[bytes, bytes] = {}
SIZE = 1700


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers every JSON body from a dictionary."""
    if scope["type"] != "http":
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    msgspec.json.decode(body)
    digest = hashlib.sha256(body).digest()
    answer = ANSWERS.get(digest)
    if answer is None:
        answer = ANSWERS[digest] = b'{"x":"' + b"a" * (SIZE - 8) + b'"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(
        app, port=int(sys.argv[1]), log_level="warning", access_log=False, lifespan="off", server_header=False
    )

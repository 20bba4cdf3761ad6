"""A small HTTP/1.1 load generator: keep-alive connections, one request in flight on each, raw bytes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence


def chat_request(body: bytes, *, path: str = "/v1/chat/completions", headers: str = "") -> bytes:
    """The bytes of one POST as an SDK would send it."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json\r\n"
        f"user-agent: OpenAI/Python 2.0\r\nauthorization: Bearer none\r\nx-stainless-lang: python\r\n"
        f"{headers}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _worker(port: int, requests: Sequence[bytes], first: int, count: int, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(first, first + count):
        started = time.perf_counter()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        status = head[9:12]
        lower = head.lower()
        at = lower.index(b"content-length:")
        length = int(lower[at + 15 : lower.index(b"\r\n", at)])
        await reader.readexactly(length)
        times.append(time.perf_counter() - started)
        if status != b"200":
            raise RuntimeError(f"status {status!r}")
    writer.close()


async def run(port: int, requests: Sequence[bytes], *, connections: int, total: int) -> list[float]:
    """Send ``total`` requests over ``connections``, each its own share in turn; returns every request's seconds."""
    times: list[float] = []
    share = total // connections
    await asyncio.gather(*(_worker(port, requests, n * share, share, times) for n in range(connections)))
    return times

"""How many requests a second the load generator sends on one core, and what a stalled server does to its figures.

    python -m benchmarks.load_speed

The server is a few lines of asyncio in a process of its own that answers at once. A run has kept up when requests were
sent on time; CPU is the generator's own. Then the server stalls once for a second: of a closed loop only the requests
under way would be late, here all that were due meanwhile are.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.queues import Queue
from typing import Any

from benchmarks import report
from stratacache.lab.load_client import OpenLoop, target_of
from stratacache.lab.load_traffic import Mix, asks, built_in_bank
from stratacache.lab.simulate import percentile

COMMAND = "python -m benchmarks.load_speed"
RATES = (1000, 2500, 5000, 7500)
SECONDS = 4.0
BODY = b'{"id":"x","choices":[{"message":{"content":"an answer of some length, as answers are"}}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
STALL_AT, STALL = 1.0, 1.0


class _Server(asyncio.Protocol):
    """Requests here come in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}"):
            self._transport.write(ANSWER)


def _serve(port: Queue[int], stall_after: float | None) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Server, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        if stall_after is not None:
            loop.call_later(stall_after, time.sleep, STALL)
        await server.serve_forever()

    asyncio.run(main())


def measure(rate: int, stall: bool = False) -> dict[str, Any]:
    """One run at ``rate`` requests a second."""
    port: Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=_serve, args=(port, STALL_AT if stall else None), daemon=True)
    process.start()
    target = target_of(f"http://127.0.0.1:{port.get()}/v1")
    traffic = asks(built_in_bank(), Mix())
    count = int(rate * SECONDS)
    schedule = [(i / rate, b'{"text":"%s"}' % next(traffic).text.encode()) for i in range(count)]

    async def main() -> tuple[float, list[Any]]:
        loop = OpenLoop(target)
        started = time.process_time()
        results = await loop.run(schedule)
        return time.process_time() - started, results

    cpu, results = asyncio.run(main())
    process.terminate()
    taken = [one.done - one.due for one in results]
    return {
        "rate": rate,
        "answered_per_s": round(sum(one.status == 200 for one in results) / max(one.done for one in results)),
        "cpu_us_a_request": round(cpu / count * 1e6, 1),
        "sent_late_p99_ms": round(percentile([one.late for one in results], 0.99) * 1e3, 2),
        "p50_ms": round(percentile(taken, 0.5) * 1e3, 2),
        "p99_ms": round(percentile(taken, 0.99) * 1e3, 2),
        "share_over_half_the_stall": round(sum(each > STALL / 2 for each in taken) / count, 3),
    }


def main(argv: Sequence[str] = ()) -> int:
    figures: dict[str, Any] = {
        "rates": [measure(rate) for rate in RATES],
        "stalled": measure(1000, stall=True),
    }
    for one in [*figures["rates"], figures["stalled"]]:
        print(one)
    print(report.write("load_speed", COMMAND, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

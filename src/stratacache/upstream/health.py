"""Sees whether replicas are well, and reads what their engines say of themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from stratacache.errors import UpstreamError
from stratacache.policy.prefix_blocks import BLOCK_BYTES
from stratacache.ports import Clock, Upstream
from stratacache.upstream.engines import Engine, figures
from stratacache.upstream.replica import Replica

log = logging.getLogger(__name__)

PROBE_TIMEOUT = 2.0  # seconds
TICK = 0.25  # seconds between looks while a replica is out: less than the shortest pause of a breaker
BYTES_PER_TOKEN = 4
UNKNOWN_CAPACITY = 1 << 18
"""Tokens that an engine is believed to hold which does not say: about those of an 8B model on one GPU of 80 GB."""


def capacity_blocks(known: Mapping[str, float]) -> int:
    """The blocks of text that an engine's KV memory holds."""
    tokens = known.get("capacity") or UNKNOWN_CAPACITY
    return max(1, int(tokens) * BYTES_PER_TOKEN // BLOCK_BYTES)


class Health:
    """Probes replicas that are out, in growing intervals, until they answer.

    Args:
        interval: seconds between two probes of a replica that is well; None: those are left alone.
        failed: told the number of a replica that is not well, and whether that is certain.
        learned: told the number of a replica whose engine gave new figures.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        engine: Engine | None,
        clock: Clock,
        interval: float | None,
        *,
        failed: Callable[[int, bool], None],
        learned: Callable[[int], None],
    ) -> None:
        self._replicas = replicas
        self._engine = engine
        self._clock = clock
        self._interval = interval
        self._failed = failed
        self._learned = learned
        self._due = [clock.monotonic()] * len(replicas)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to probe in the background."""
        self._task = asyncio.create_task(self._run(), name="probe replicas")

    def wake(self) -> None:
        """A replica went out: look after it soon."""
        self._woken.set()

    async def close(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def probe(self, *, at_once: bool = False) -> None:
        """Probe every replica that is due now; ``at_once`` every one that is out."""
        now = self._clock.monotonic()
        due = [
            i
            for i, one in enumerate(self._replicas)
            if self._is_due(i, one, now) or (at_once and one.state(now) != "closed")
        ]
        await asyncio.gather(*(self._probe(i) for i in due))

    def _is_due(self, number: int, replica: Replica, now: float) -> bool:
        if replica.state(now) != "closed":
            return replica.may_be_probed(now)
        return self._interval is not None and now >= self._due[number]

    async def _run(self) -> None:
        while True:
            await self.probe()
            self._woken.clear()
            now = self._clock.monotonic()
            out = any(one.state(now) != "closed" for one in self._replicas)
            wait = TICK if out else self._interval
            try:
                async with asyncio.timeout(wait):
                    # While one is out there is nothing to be woken for: the next look is near.
                    await (asyncio.sleep(TICK) if out else self._woken.wait())
            except TimeoutError:
                continue

    async def _probe(self, number: int) -> None:
        replica = self._replicas[number]
        self._due[number] = self._clock.monotonic() + (self._interval or 0.0)
        failure = await self._ask(replica)
        if failure is not None:
            self._failed(number, failure == "upstream_unreachable")
            return
        if replica.succeeded():
            log.info("%s is back", replica.name)
        if self._engine is not None:
            await self._read_figures(number, self._engine)

    async def _ask(self, replica: Replica) -> str | None:
        """Why it is not well, None when it is."""
        on_engine = self._engine is not None and replica.control is not None
        client = replica.control if on_engine and replica.control is not None else replica.client
        try:
            status, _ = await _get(client, "/health" if on_engine else "/models", read=False)
        except UpstreamError as error:
            return error.code
        except TimeoutError:
            return "upstream_timeout"
        # A server that wants a key, or has no list of models, is there; an engine's /health is 200 or it is not well.
        well = status == 200 if on_engine else status < 500
        return None if well else f"status {status}"

    async def _read_figures(self, number: int, engine: Engine) -> None:
        replica = self._replicas[number]
        if replica.control is None:
            return
        try:
            status, body = await _get(replica.control, "/metrics", read=True)
        except (TimeoutError, UpstreamError):
            return
        if status == 200:
            replica.figures = figures(engine, body.decode("utf-8", "replace"))
            self._learned(number)


async def _get(client: Upstream, path: str, *, read: bool) -> tuple[int, bytes]:
    """Raises UpstreamError, and TimeoutError after ``PROBE_TIMEOUT``."""
    async with asyncio.timeout(PROBE_TIMEOUT):
        response = await client.forward("GET", path, "", b"", {})
        try:
            return response.status, await response.read() if read else b""
        finally:
            await response.close()

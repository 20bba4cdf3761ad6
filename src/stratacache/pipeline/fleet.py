"""Single-flight across instances: one of them calls the upstream, the others repeat what it hears.

The leader holds a lease that it renews while it flies. A follower that finds the lease gone and no ending takes the
lead itself, so a dead leader is replaced within ``LEASE``. Whatever fails in between costs at most an upstream call of
one's own, and never an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from stratacache.errors import StoreError, UpstreamError
from stratacache.pipeline.flight import STORED, Flight, Head
from stratacache.pipeline.frames import FrameWriter, repeat
from stratacache.pipeline.outcome import speaks_to
from stratacache.pipeline.plan import Plan
from stratacache.ports import Recorder, Relay, Standing
from stratacache.tiers.exact import ExactTier
from stratacache.types import Hit

log = logging.getLogger(__name__)

LEASE = 2.0  # seconds; how long the others wait for an instance that died
RENEWAL = LEASE / 4  # seconds; also how long a leader may not know that somebody follows
KEEP = 5.0  # seconds that the ending can be read, for followers who have not
STEP = 1.0  # seconds that any one step but a claim may take
PAUSE = 0.02  # seconds before a place is claimed again of which the relay says both that it is led and that it is not

Lead = Callable[[Flight], Awaitable[None]]


class Fleet:
    """Runs flights so that only one instance calls the upstream for a place.

    Args:
        relay: the leases and frames that the instances share.
        exact: asked once more by who takes the lead: the answer may have been stored since it was looked up.
        budget: seconds that a request may be held up by the relay before it goes on alone.
    """

    def __init__(self, relay: Relay, exact: ExactTier, recorder: Recorder, *, budget: float) -> None:
        self._relay = relay
        self._exact = exact
        self._recorder = recorder
        self._budget = budget
        self._led: set[bytes] = (
            set()
        )  # a relay knows an instance's flight by its place, so it may have one there
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Whether every place that was claimed is given up again."""
        return not self._led and not self._endings

    async def fly(self, flight: Flight, plan: Plan, lead: Lead) -> None:
        """Lead ``flight`` with ``lead``, or follow the instance that does; raises only when cancelled.

        When an entry that ``plan`` lets answer was stored meanwhile, there is no call: all on the flight look it up.
        """
        pause = 0.0
        while not flight.over:
            claimed = await self._claim(flight.place)
            if claimed:
                await self._lead(flight, plan, lead)
            elif claimed is None or not await self._follow(flight):
                self._recorder.counted("relay_failed")
                await lead(flight)
            elif not flight.over:
                await asyncio.sleep(pause)
                pause = PAUSE

    async def _claim(self, place: bytes) -> bool | None:
        """Whether the lead is ours; None when the relay does not say."""
        if place in self._led:
            return False
        claim = asyncio.ensure_future(self._relay.claim(place, LEASE))
        try:
            async with asyncio.timeout(self._budget):
                return await asyncio.shield(claim)
        except StoreError as error:
            log.warning("single-flight across instances failed, calling alone: %s", error)
        except TimeoutError:
            log.warning("single-flight across instances took too long, calling alone")
            self._end(self._give_back(claim, place))
        except asyncio.CancelledError:
            self._end(self._give_back(claim, place))
            raise
        return None

    def _end(self, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``ending`` even if who waits for it is cancelled."""
        task = asyncio.create_task(ending, name="end of a lead")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    async def _give_back(self, claim: Awaitable[bool], place: bytes) -> None:
        """End a lease that is granted when nobody waits for it any more: it would hold up those who ask next."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STEP):
                if await claim:
                    await self._relay.release(place)

    async def _lead(self, flight: Flight, plan: Plan, lead: Lead) -> None:
        self._led.add(flight.place)
        keep = 0.0
        try:
            if await self._is_stored(flight, plan):
                flight.fail(UpstreamError("the answer was stored meanwhile", code=STORED))
                return
            keep = KEEP
            await self._call(flight, lead)
        finally:
            await asyncio.shield(self._end(self._release(flight.place, keep)))

    async def _is_stored(self, flight: Flight, plan: Plan) -> bool:
        """Whether the answer was stored since it was looked up."""
        found = await self._exact.lookup(
            flight.key, plan.tags, max_age=plan.max_age, min_fresh=plan.min_fresh
        )
        if not isinstance(found, Hit) or not speaks_to(found.entry, stream=flight.streamed):
            return False
        return set(flight.versions or ()) <= set(found.entry.versions)

    async def _call(self, flight: Flight, lead: Lead) -> None:
        reporting = asyncio.create_task(self._report(flight), name="flight report")
        try:
            await lead(flight)
            await reporting
            # The entry can be read before others may lead: else one of them would call the upstream again.
            await flight.closed.wait()
        finally:
            reporting.cancel()

    async def _release(self, place: bytes, keep: float) -> None:
        try:
            await self._try(self._relay.release(place, keep=keep))
        finally:
            self._led.discard(place)

    async def _report(self, flight: Flight) -> None:
        """Hold the lease, and once somebody follows tell what happens, to the end.

        Silent for good once a frame may be lost: what comes after would not continue what was heard.
        """
        writer = FrameWriter(flight)
        loop = asyncio.get_running_loop()
        wanted = False
        while True:
            ended = flight.over
            standing = await self._renew(flight)
            due = loop.time() + RENEWAL
            if not standing.held:
                return
            if standing.wanted and not wanted:
                wanted = True
                flight.listeners += 1  # the call is not aborted while others wait for it
            if not wanted:
                await _at_most(RENEWAL, flight.end())
            while wanted:
                frames = writer.news()
                if frames and not await self._try(self._relay.publish(flight.place, frames)):
                    return
                if flight.over or loop.time() >= due:
                    break
                await _at_most(due - loop.time(), flight.change())
            if ended:
                return

    async def _renew(self, flight: Flight) -> Standing:
        """What the relay says of the lease; held and not wanted as far as is known when it says nothing."""
        try:
            async with asyncio.timeout(STEP):
                return await self._relay.renew(flight.place, LEASE)
        except (StoreError, TimeoutError) as error:
            log.warning("the lease of a flight was not renewed: %s", error)
            return Standing(held=True, wanted=False)

    async def _follow(self, flight: Flight) -> bool:
        """Repeat the leader's flight; False when that is not possible and no client has seen anything of it.

        True with the flight still in the air says that nobody leads any more.
        """
        heard = 0
        flight.borrowed = True
        works = True
        while not flight.over:
            try:
                async with asyncio.timeout(STEP):
                    news = await self._relay.follow(flight.place, heard)
            except (StoreError, TimeoutError) as error:
                log.warning("following another instance's call failed: %s", error)
                works = False
                break
            if not repeat(news.frames, flight):
                log.warning("another instance's call cannot be followed: does it run another version?")
                works = False
                break
            heard += len(news.frames)
            if not news.led and not news.frames:
                break
        if not flight.over and flight.head is not None:
            _lose(flight, flight.head)
        flight.borrowed = flight.over
        return works or flight.over

    async def _try(self, step: Awaitable[None]) -> bool:
        """Whether ``step`` was done."""
        try:
            async with asyncio.timeout(STEP):
                await step
        except (StoreError, TimeoutError) as error:
            log.warning("telling other instances of a call failed: %s", error)
            return False
        return True


def _lose(flight: Flight, head: Head) -> None:
    """The leader is gone, or cannot be followed any further."""
    if head.streaming:
        # Clients may have seen the beginning: another call's answer would not continue it.
        flight.lost = True
        flight.fail(UpstreamError("the instance that made the call is gone", code="upstream_cut"))
    else:
        flight.head = None


async def _at_most(seconds: float, step: Awaitable[None]) -> None:
    """Wait for ``step``, but no longer than ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await step

"""Lets requests that share a prefix nobody wrote yet wait for the first token of the one that writes it.

A provider's entry exists once the first answer begins: eight requests at once with one new prefix would write it eight
times, at more than its plain price, and read it never.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from stratacache.ports import Clock

MOST_WAITING: Final = 1000
"""Requests; more go at once."""
MOST_WARM: Final = 4096
WARM: Final = 60.0
"""Seconds that a prefix counts as written without the planner's word, which comes when its answer has ended."""


class Tally(Protocol):
    """Counts waits: ``observe.metrics``."""

    def sibling(self, result: str) -> None:
        """A request waited: ``began`` (the other's answer did), ``expired`` (too long) or ``failed`` (it did)."""
        ...


class Ticket:
    """The place of one call: others may wait for it until it :meth:`began` or is closed."""

    def __init__(self, siblings: Siblings, prefixes: Sequence[bytes]) -> None:
        self._siblings = siblings
        self.prefixes = prefixes
        self.has_begun = False
        self.over = asyncio.Event()

    def began(self) -> None:
        """The first token is here: what the call writes can be read. Idempotent."""
        if not self.over.is_set():
            self.has_begun = True
            self.close()

    def close(self) -> None:
        """The call is over; one that did not begin gives its place to the next. Idempotent."""
        if not self.over.is_set():
            self._siblings.done(self)
            self.over.set()


class Siblings:
    """The calls under way that write a prefix. For one event loop.

    Args:
        deadline: seconds that a request waits at most, in all; 0: it never does.
    """

    def __init__(self, deadline: float, clock: Clock, tally: Tally) -> None:
        self._deadline = deadline
        self._clock = clock
        self._tally = tally
        self._writing: dict[bytes, Ticket] = {}
        self._warm: OrderedDict[bytes, float] = OrderedDict()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._waiting

    async def board(self, prefixes: Sequence[bytes]) -> Ticket:
        """Wait while another call writes one of ``prefixes``; then the ticket of this call, to be closed.

        ``prefixes`` are what the call would write, the shortest first, and none that is believed to be there.
        """
        cold = self._cold(prefixes)
        end = self._clock.monotonic() + self._deadline
        while (ahead := self._ahead(cold)) is not None and self._waiting < MOST_WAITING:
            left = end - self._clock.monotonic()
            if left <= 0 or not await self._hear(ahead, left):
                self._tally.sibling("expired")
                break
            self._tally.sibling("began" if ahead.has_begun else "failed")
            cold = self._cold(cold)
            if ahead.has_begun:
                break
        mine = [one for one in cold if one not in self._writing] if self._deadline else []
        ticket = Ticket(self, mine)
        self._writing.update(dict.fromkeys(mine, ticket))
        return ticket

    def done(self, ticket: Ticket) -> None:
        """For :class:`Ticket`: nobody need wait for it any more."""
        for one in ticket.prefixes:
            self._writing.pop(one, None)
            if ticket.has_begun:
                self._warm[one] = self._clock.monotonic() + WARM
                self._warm.move_to_end(one)
        while len(self._warm) > MOST_WARM:
            self._warm.popitem(last=False)

    def check(self) -> None:
        """Raise AssertionError when a call that is over is waited for, or a bound is passed."""
        assert all(not ticket.over.is_set() for ticket in self._writing.values())
        assert 0 <= self._waiting <= MOST_WAITING
        assert len(self._warm) <= MOST_WARM

    def _cold(self, prefixes: Sequence[bytes]) -> list[bytes]:
        now = self._clock.monotonic()
        return [one for one in prefixes if self._warm.get(one, now) <= now]

    def _ahead(self, prefixes: Sequence[bytes]) -> Ticket | None:
        """The call that writes the longest of ``prefixes``."""
        return next(
            (found for one in reversed(prefixes) if (found := self._writing.get(one)) is not None), None
        )

    async def _hear(self, ahead: Ticket, left: float) -> bool:
        """Whether ``ahead`` began or failed in time."""
        self._waiting += 1
        try:
            async with asyncio.timeout(left):
                await ahead.over.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

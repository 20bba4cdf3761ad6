"""Gathers what people should look at: semantic answers that were served, and those that nearly were."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest
from typing import Protocol

import msgspec

from stratacache.dialects import wire
from stratacache.errors import StoreError
from stratacache.pipeline.labels import answer_text
from stratacache.policy.review import (
    NEARLY,
    STRATA,
    Item,
    Kind,
    Verdict,
    pair_id,
    stratum_of_hit,
    stratum_of_miss,
)
from stratacache.policy.tags import tenant_tag
from stratacache.ports import Clock
from stratacache.tiers.semantic_inquiry import Look, Near
from stratacache.types import Absent, Entry, Request

log = logging.getLogger(__name__)

MAX_UNDER_WAY = 16  # items being kept; more are left out
MAX_KNOWN = 10_000  # pairs that are not offered again
EXCERPT = 500  # characters of an answer
_FULL_FOR = 60.0  # seconds that a stratum is believed to be full: others work it off too
_MISS_LIFE = 7 * 86_400.0  # seconds that a refused pair waits at most
_TIMEOUT = 5.0  # seconds for the store
_REFUSED = frozenset({"unverified", "explored", "vetoed"})
"""Reasons that are a judgement on the pair, and not on who asks or how."""

Get = Callable[[bytes, Sequence[str]], Awaitable[Entry | Absent]]


class Shelf(Protocol):
    """Where the queue is: ``stores.review_file.ReviewFile``. Every method may raise StoreError."""

    @property
    def kept(self) -> bool:
        """Whether it survives this process, and is shared with the others on its file."""
        ...

    async def add(self, item: Item) -> float | None: ...
    async def waiting(self) -> list[Item]: ...
    async def find(self, identity: str) -> Item | None: ...
    async def settle(self, item: Item, verdict: Verdict) -> bool: ...
    async def drop(self, identities: Sequence[str]) -> None: ...
    async def verdicts(self) -> list[tuple[Item, Verdict]]: ...
    async def erase(self, tenant: str) -> int: ...
    async def close(self) -> None: ...


class Shown(msgspec.Struct, frozen=True):
    """An item with the beginning of the answer, as it stands in the store now."""

    item: Item
    answer: str


class ReviewQueue:
    """Bounded; never in the way of a request.

    Args:
        get: as ``ports.Store.get``.
        tally: counts verdicts.
    """

    def __init__(self, shelf: Shelf, get: Get, clock: Clock, tally: Callable[[str], None]) -> None:
        self.lengths: dict[str, float] = dict.fromkeys(STRATA, 0.0)
        self._shelf = shelf
        self._get = get
        self._clock = clock
        self._tally = tally
        self._full: dict[str, tuple[float, float]] = {}  # stratum → (rank, until when), monotonic seconds
        self._known: OrderedDict[str, None] = OrderedDict()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def kept(self) -> bool:
        return self._shelf.kept

    def offer(self, request: Request, near: Near, *, shadow: bool = False) -> None:
        """A look-up came to ``near``: people may be asked about it."""
        looks = near.trace.looks
        if near.hit is not None and near.rival is not None and not near.rival.same:
            entry = near.rival.candidate.question.digest.hex()
            look = next((one for one in looks if one.entry == entry), None)
            self._consider(request, near, look, "shadow_hit" if shadow else "hit")
        elif near.hit is None and near.reason in _REFUSED and looks:
            best = max(looks, key=lambda one: (one.probability or 0.0, one.similarity))
            if best.probability is None or best.probability >= NEARLY:
                self._consider(request, near, best, "near_miss")

    async def shown(self, limit: int, *, tenant: str | None = None) -> list[Shown]:
        """At most ``limit`` items, of all strata in turn. Raises StoreError. Those without an answer are dropped."""
        waiting = await self._shelf.waiting()
        self._counted(waiting)
        strata = [[one for one in waiting if one.stratum == name] for name in STRATA]
        shown: list[Shown] = []
        gone: list[str] = []
        for item in chain.from_iterable(zip_longest(*strata)):
            if item is None or (tenant is not None and item.tenant != tenant):
                continue
            if len(shown) == limit:
                break
            answer = await self._answer(item)
            if answer is None:
                gone.append(item.id)
            else:
                shown.append(Shown(item, answer))
        if gone:
            await self._shelf.drop(gone)
            self._counted([one for one in waiting if one.id not in set(gone)])
        return shown

    async def find(self, identity: str) -> Item | None:
        """The item that waits under ``identity``. Raises StoreError."""
        return await self._shelf.find(identity)

    async def settle(self, item: Item, verdict: Verdict) -> bool:
        """``verdict`` is known; False when one was known already. Raises StoreError."""
        if not await self._shelf.settle(item, verdict):
            return False
        self._full.clear()
        self.lengths[item.stratum] = max(0.0, self.lengths[item.stratum] - 1)
        self._tally(verdict)
        return True

    async def verdicts(self) -> list[tuple[Item, Verdict]]:
        """The last verdicts, oldest first. Raises StoreError."""
        return await self._shelf.verdicts()

    async def erase(self, tenant: str) -> int:
        """Forget all pairs of ``tenant``; returns how many. Raises StoreError."""
        await self.settled()
        erased = await self._shelf.erase(tenant)
        self._counted(await self._shelf.waiting())
        return erased

    async def settled(self) -> None:
        """Return when all that was offered is kept."""
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        """Idempotent."""
        await self.settled()
        await self._shelf.close()

    def _consider(self, request: Request, near: Near, look: Look | None, kind: Kind) -> None:
        if look is None:
            return
        trace, tenant = near.trace, request.scope.tenant
        identity = pair_id(tenant, trace.question, look.entry)
        if kind == "near_miss":
            stratum, rank = stratum_of_miss(look.probability, look.similarity)
        else:
            stratum, rank = stratum_of_hit(identity, look.probability or 0.0)
        known = kind + identity  # what was refused may be served one day
        if known in self._known or self._is_full(stratum, rank) or len(self._under_way) >= MAX_UNDER_WAY:
            return
        now = self._clock.now()
        item = Item(
            id=identity,
            kind=kind,
            stratum=stratum,
            rank=rank,
            reason=near.reason,
            tenant=tenant,
            scene=request.control.scene,
            language=trace.language,
            risk=trace.risk,
            asked=trace.question,
            stored=look.question,
            entry=look.entry,
            similarity=look.similarity,
            probability=look.probability,
            guards=look.findings,
            at=now,
            expires_at=near.hit.entry.gone_at if near.hit is not None else now + _MISS_LIFE,
        )
        self._known[known] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        task = asyncio.create_task(self._keep(item), name="review item")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _is_full(self, stratum: str, rank: float) -> bool:
        worst, until = self._full.get(stratum, (0.0, float("-inf")))
        return self._clock.monotonic() < until and rank >= worst

    async def _keep(self, item: Item) -> None:
        try:
            worst = await self._shelf.add(item)
        except StoreError as error:
            log.warning("a pair is not in the review queue: %s", error)
            return
        if worst is not None:
            self._full[item.stratum] = (worst, self._clock.monotonic() + _FULL_FOR)
        most = STRATA[item.stratum]
        self.lengths[item.stratum] = most if worst is not None else min(most, self.lengths[item.stratum] + 1)

    def _counted(self, waiting: Sequence[Item]) -> None:
        counts = Counter([one.stratum for one in waiting])
        self.lengths = {name: float(counts[name]) for name in STRATA}

    async def _answer(self, item: Item) -> str | None:
        """The beginning of the stored answer, None when it is gone: it is read under the item's own tenant only."""
        try:
            async with asyncio.timeout(_TIMEOUT):
                found = await self._get(bytes.fromhex(item.entry), (tenant_tag(item.tenant),))
        except TimeoutError as error:
            raise StoreError("the store does not answer") from error
        if isinstance(found, Absent) or found.tenant != item.tenant:
            return None
        return (answer_text(wire.decode_answer(found.body)) or "")[:EXCERPT]

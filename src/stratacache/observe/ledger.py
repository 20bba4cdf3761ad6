"""The usage ledger: per day, tenant and model what was spent and saved, in tokens and in US dollars."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from stratacache.errors import StoreError
from stratacache.policy.prices import Bill
from stratacache.ports import Clock
from stratacache.stores.ledger_file import REST, Account, LedgerFile, Sheet
from stratacache.types import Call, Decision, Saving

log = logging.getLogger(__name__)

DAY = 86400.0
FLUSH_SECONDS = 5.0  # what a killed process had counted since the last time is lost
MAX_OPEN = 2000  # accounts between two writes; a client may choose model names

CheapTier = Literal["prompt", "kv"]
"""Whose cache read a prompt's tokens: a provider's, or an engine's of one's own."""

# Made once: putting names together at each hit would cost more than counting.
_ANSWERED = {"exact": "exact.requests", "semantic": "semantic.requests"}
_TOKENS = {"exact": "exact.tokens", "semantic": "semantic.tokens"}
_USD = {"exact": "exact.usd", "semantic": "semantic.usd"}


class UsageLedger:
    """Counts in memory and writes to ``file`` every ``seconds``. A file that fails costs figures, and no answer."""

    def __init__(self, file: LedgerFile, clock: Clock, *, seconds: float = FLUSH_SECONDS) -> None:
        self._file = file
        self._clock = clock
        self._seconds = seconds
        self._open: dict[Account, dict[str, float]] = {}
        self._today, self._tomorrow = 0, 0.0  # of the last figure, and when the next day begins
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._settle: Callable[[], None] = lambda: None

    def settle_with(self, settle: Callable[[], None]) -> None:
        """``settle`` counts what waits to be; it is called before anything is written."""
        self._settle = settle

    def decided(self, decision: Decision) -> None:
        """A request was answered or refused."""
        sheet = self._sheet(decision.tenant, decision.model)
        sheet["requests"] += 1
        if decision.tier is not None:
            sheet[_ANSWERED[decision.tier]] += 1

    def saved(self, saving: Saving, usd: float | None) -> None:
        """A tier saved tokens that would have cost ``usd``; None: nobody knows."""
        sheet = self._sheet(saving.tenant, saving.model)
        tokens, tier = saving.prompt + saving.completion, saving.tier
        if not tokens:
            sheet[f"{tier}.uncounted"] += 1
        sheet[_TOKENS[tier]] += tokens
        if usd is None:
            sheet[f"{tier}.unpriced"] += tokens
        else:
            sheet[_USD[tier]] += usd

    def called(self, call: Call, bill: Bill | None, tier: CheapTier) -> None:
        """A call is paid for, as ``bill`` says (None: nobody knows). ``tier`` read what was read of its prompt."""
        sheet, usage = self._sheet(call.tenant, call.model), call.usage
        sheet["calls"] += 1
        if call.status != 200:
            sheet["calls_refused"] += 1
            return
        sheet[f"{tier}.calls"] += 1  # that could have told what was read
        if usage.prompt is None:
            sheet["calls_uncounted"] += 1
        sheet["completion"] += usage.completion or 0
        sheet["fresh"] += usage.fresh or 0
        if usage.written is not None:
            sheet["calls_telling_write"] += 1
            sheet["write"] += usage.written
        if usage.cached_prompt is not None:
            sheet["calls_telling_read"] += 1
            sheet["read"] += usage.cached_prompt
            sheet[f"{tier}.requests"] += usage.cached_prompt > 0
            sheet[f"{tier}.tokens"] += usage.cached_prompt
        self._pay(sheet, call, bill, tier)

    def _pay(self, sheet: dict[str, float], call: Call, bill: Bill | None, tier: CheapTier) -> None:
        if bill is None:
            sheet["unpriced"] += call.usage.total
            sheet[f"{tier}.unpriced"] += call.usage.cached_prompt or 0
            if call.purpose != "answer":
                sheet[f"{call.purpose}.unpriced"] += call.usage.total
            return
        sheet["spent_usd"] += bill.spent
        sheet["write_premium.usd"] += bill.write_premium
        if call.usage.cached_prompt is not None:
            sheet[f"{tier}.usd"] += bill.read_saved
        if call.purpose != "answer":
            # The premium is counted once, by itself.
            sheet[f"{call.purpose}.usd"] += bill.spent - bill.write_premium

    def start(self) -> None:
        """Begin to write. Call once, in the event loop."""
        self._task = asyncio.create_task(self._run(), name="ledger")

    async def read(self, days: int) -> tuple[int, list[tuple[Account, Sheet]]]:
        """Today, as a day since the epoch, and the accounts of the last ``days`` days, today included.

        Other processes' last seconds are missing. Raises StoreError.
        """
        await self.flush()
        today = int(self._clock.now() // DAY)
        return today, await self._file.read(today - days + 1, today)

    async def erase(self, tenant: str) -> int:
        """Forget all accounts of ``tenant``, but for other processes' last seconds. Raises StoreError."""
        await self.flush()
        return await self._file.erase(tenant)

    async def flush(self) -> None:
        """Write what was counted; what the file refuses is kept for the next time."""
        self._settle()
        counted, self._open = self._open, {}
        if not counted:  # also after the close
            return
        try:
            await self._file.add([*counted.items()])
        except StoreError as error:
            for account, sheet in counted.items():
                mine = self._place(account)
                for name, number in sheet.items():
                    mine[name] += number
            if not self._failing:
                log.warning("the ledger is not kept (%s); it is tried again", error)
            self._failing = True
        else:
            self._failing = False

    async def close(self) -> None:
        """Write a last time. Idempotent."""
        self._ending.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self.flush()
        await self._file.close()

    async def _run(self) -> None:
        # Ended by the event and never cancelled: what was taken to be written would be lost.
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._ending.wait()
            await self.flush()

    def _sheet(self, tenant: str, model: str) -> dict[str, float]:
        now = self._clock.now()
        if not self._tomorrow - DAY <= now < self._tomorrow:
            self._today = int(now // DAY)
            self._tomorrow = (self._today + 1) * DAY
        account = (self._today, tenant, model)
        return self._open.get(account) or self._place(account)

    def _place(self, account: Account) -> dict[str, float]:
        if account not in self._open and len(self._open) >= MAX_OPEN:
            account = (account[0], account[1], REST)
        return self._open.setdefault(account, defaultdict(float))

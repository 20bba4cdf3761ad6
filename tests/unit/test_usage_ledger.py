"""The ledger: what it adds up, what it calls unknown, and that it outlives processes and survives a failing disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import FakeClock

from stratacache.errors import StoreError
from stratacache.observe.ledger import DAY, UsageLedger
from stratacache.observe.ledger_report import report
from stratacache.observe.metrics import Metrics
from stratacache.observe.recorder import Observer
from stratacache.policy.prices import PriceTable, bill, worth
from stratacache.settings import Price
from stratacache.stores import ledger_file
from stratacache.stores.ledger_file import Account, LedgerFile, Sheet
from stratacache.types import Call, Decision, Purpose, Saving, TierName, Usage

PRICE = Price(model="dear*", input=2.0, output=10.0, read=0.1, write_5m=1.25, write_1h=2.0)
PRICES = PriceTable([PRICE])
M = 1_000_000


class Books:
    """A ledger on a file with the recorder that feeds it."""

    def __init__(self, path: Path | None, clock: FakeClock) -> None:
        self.ledger = UsageLedger(LedgerFile(path, clock.now()), clock)
        self.metrics = Metrics()
        self.recorder = Observer(self.metrics, self.ledger, PRICES, {"engine": "kv"})

    def call(
        self,
        usage: Usage,
        *,
        model: str = "dear-1",
        tenant: str = "acme",
        purpose: Purpose = "answer",
        upstream: str = "u",
        status: int = 200,
    ) -> None:
        self.recorder.called(Call(upstream, model, usage, tenant, purpose, status=status))

    def hit(
        self, tier: TierName, prompt: int, completion: int, *, model: str = "dear-1", tenant: str = "acme"
    ) -> None:
        self.recorder.decided(
            Decision("chat.completions", model, "default", "hit", "equal", tier, tenant=tenant)
        )
        self.recorder.saved(Saving(tier, tenant, model, prompt, completion))

    async def told(self, days: int = 7) -> dict[str, Any]:
        today, accounts = await self.ledger.read(days)
        return report(accounts, PRICES, today=today, days=days)


@asynccontextmanager
async def books(path: Path | None = None, clock: FakeClock | None = None) -> AsyncIterator[Books]:
    one = Books(path, clock or FakeClock())
    try:
        yield one
    finally:
        await one.ledger.close()


async def test_net_is_what_was_saved_less_what_caching_cost() -> None:
    async with books() as kept:
        kept.call(Usage(M, 100_000, 0, M, 0))  # writes: 2.50 prompt (0.50 of it the premium) + 1.00
        kept.call(Usage(M, 0, M, 0, 0))  # reads: 0.20 instead of 2.00
        kept.call(Usage(M, 0, M), upstream="engine")
        kept.call(Usage(100_000, 0), purpose="check")
        kept.call(Usage(200_000, 0), purpose="refresh")
        kept.call(Usage(50_000, 0), purpose="judge", tenant="")
        total = (await kept.told())["total"]
    assert total["spent_usd"] == pytest.approx(2.5 + 1.0 + 0.2 + 0.2 + 0.2 + 0.4 + 0.1)
    assert total["saved"]["prompt"] == {
        "requests": 1, "requests_uncounted": 0, "tokens": M, "usd": pytest.approx(1.8), "unpriced_tokens": 0,
    }  # fmt: skip
    assert total["saved"]["kv"]["usd"] == pytest.approx(1.8)
    assert total["costs_usd"] == {
        "write_premium": pytest.approx(0.5), "refresh": pytest.approx(0.4), "check": pytest.approx(0.2),
        "judge": pytest.approx(0.1), "embedding": 0.0,
    }  # fmt: skip
    assert total["net_usd"] == pytest.approx(3.6 - 1.2)
    assert total["prompt_tokens"] == {"fresh": 350_000, "read": 2 * M, "write": M}


async def test_a_hit_is_worth_what_the_model_s_prompts_cost_on_average() -> None:
    async with books() as kept:
        kept.hit("exact", M, 100_000)
        assert (await kept.told())["total"]["saved"]["exact"]["usd"] == pytest.approx(2.0 + 1.0)
        kept.call(Usage(M, 0, M))  # the provider reads all of it: a tenth of the list price
        kept.hit("semantic", M, 0)
        told = (await kept.told())["total"]
    assert told["saved"]["semantic"]["usd"] == pytest.approx(0.2)
    assert told["saved"]["exact"]["tokens"] == 1_100_000
    assert (told["requests"], told["saved"]["exact"]["requests"]) == (2, 1)


async def test_without_a_price_money_is_unknown_and_tokens_are_counted() -> None:
    async with books() as kept:
        kept.call(Usage(1000, 10, 600), model="odd")
        kept.hit("exact", 70, 7, model="odd")
        total = (await kept.told())["total"]
        assert (total["spent_usd"], total["saved_usd"], total["net_usd"]) == (None, 0.0, 0.0)
        assert total["saved"]["exact"] == {
            "requests": 1, "requests_uncounted": 0, "tokens": 77, "usd": None, "unpriced_tokens": 77,
        }  # fmt: skip
        assert total["saved"]["prompt"]["usd"] is None
        assert total["saved_tokens"] == 677
        kept.hit("exact", M, 0)
        mixed = await kept.told()
    assert mixed["total"]["saved"]["exact"]["usd"] == pytest.approx(2.0)
    assert mixed["total"]["saved"]["exact"]["unpriced_tokens"] == 77
    models = {one["model"]: one for one in mixed["models"]}
    assert models["odd"]["price"] is None
    assert models["dear-1"]["price"]["input"] == 2.0
    assert kept.metrics.figures().amounts["saved_usd"] == {"exact": pytest.approx(2.0)}


async def test_what_a_provider_did_not_tell_is_null_and_a_told_zero_is_zero() -> None:
    async with books() as kept:
        kept.call(Usage(10, 1))
        kept.call(Usage())
        kept.hit("exact", 0, 0)
        kept.call(Usage(), status=429)
        silent = (await kept.told())["total"]
        kept.call(Usage(10, 1, 0, 0))
        telling = (await kept.told())["total"]
    assert silent["prompt_tokens"] == {"fresh": 10, "read": None, "write": None}
    assert (silent["saved"]["prompt"]["tokens"], silent["saved"]["prompt"]["usd"]) == (None, None)
    assert (silent["saved"]["kv"]["tokens"], silent["saved"]["kv"]["usd"]) == (0, 0.0)
    assert (silent["calls"], silent["calls_refused"], silent["calls_uncounted"]) == (3, 1, 1)
    assert silent["saved"]["exact"]["requests_uncounted"] == 1
    assert telling["prompt_tokens"] == {"fresh": 20, "read": 0, "write": 0}
    assert telling["saved"]["prompt"]["tokens"] == 0


async def test_days_tenants_and_models_are_told_apart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with books(tmp_path / "ledger", clock) as kept:
        kept.hit("exact", 10, 0, tenant="a")
        await kept.ledger.flush()
        clock.advance(DAY)
        kept.hit("semantic", 5, 0, tenant="b", model="dear-2")
        kept.hit("semantic", 5, 0, tenant="b", model="dear-2")
        told = await kept.told(3)
        assert [day["saved_tokens"] for day in told["days"]] == [0, 10, 10]
        assert told["days"][-1]["day"] == told["to"]
        assert [(one["tenant"], one["requests"]) for one in told["tenants"]] == [("b", 2), ("a", 1)]
        assert [one["model"] for one in told["models"]] == ["dear-2", "dear-1"]
        assert (await kept.told(1))["total"]["saved_tokens"] == 10


async def test_several_processes_and_runs_keep_one_ledger(tmp_path: Path) -> None:
    path, clock = tmp_path / "cache.db.ledger", FakeClock()
    async with books(path, clock) as one, books(path, clock) as other:
        one.hit("exact", 10, 0)
        other.hit("exact", 20, 0)
        await one.ledger.flush()
        assert (await other.told())["total"]["saved_tokens"] == 30
        one.hit("exact", 5, 0)  # written by the close
    async with books(path, clock) as later:
        assert (await later.told())["total"]["saved_tokens"] == 35


async def test_a_disk_that_fails_costs_no_figures_once_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with books(tmp_path / "ledger") as kept:
        kept.hit("exact", 10, 0)

        async def refuse(self: LedgerFile, sheets: object) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(LedgerFile, "add", refuse)
            await kept.ledger.flush()
            await kept.ledger.flush()
        kept.hit("exact", 1, 0)
        assert (await kept.told())["total"]["saved_tokens"] == 11
    assert caplog.text.count("the ledger is not kept") == 1


async def test_it_writes_by_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    ledger = UsageLedger(LedgerFile(tmp_path / "ledger", clock.now()), clock, seconds=0.001)
    ledger.start()
    ledger.saved(Saving("exact", "a", "m", 3, 0), None)
    reader = LedgerFile(tmp_path / "ledger", clock.now())
    async with asyncio.timeout(10):
        while not await reader.read(0, 100_000):  # noqa: ASYNC110 - another connection has no event for it
            await asyncio.sleep(0)
    await reader.close()
    await ledger.close()


async def test_accounts_and_days_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "MAX_ACCOUNTS", 3)
    file = LedgerFile(None, 0.0)
    await file.add([((1000, "t", f"model-{number}"), {"requests": 1.0}) for number in range(10)])
    held = await file.read(0, 2000)
    assert len(held) == 4
    assert dict(held)[(1000, "other", "other")] == {"requests": 7.0}
    await file.add([((1000 + ledger_file.KEPT_DAYS, "t", "m"), {"requests": 1.0})])
    assert [account[0] for account, _ in await file.read(0, 10_000)] == [1000 + ledger_file.KEPT_DAYS]
    await file.close()


numbers = st.dictionaries(
    st.sampled_from(["requests", "exact.tokens", "spent_usd"]), st.integers(0, 9), max_size=3
)
accounts = st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.sampled_from("mn"))


@given(st.lists(st.lists(st.tuples(accounts, numbers), max_size=5), max_size=5))
def test_what_is_read_is_the_sum_of_what_was_written(batches: list[list[tuple[Account, Sheet]]]) -> None:
    expected: dict[Account, dict[str, float]] = {}
    for account, sheet in (row for batch in batches for row in batch):
        place = expected.setdefault(account, {})
        for name, number in sheet.items():
            place[name] = place.get(name, 0) + number

    async def run() -> list[tuple[Account, Sheet]]:
        file = LedgerFile(None, 0.0)
        for batch in batches:
            await file.add(batch)
        held = await file.read(1, 3)
        await file.close()
        return held

    assert dict(asyncio.run(run())) == expected


def test_the_first_row_that_fits_is_the_price_and_a_model_without_one_has_none() -> None:
    table = PriceTable([Price(model="a-mini", input=1, output=1)], [Price(model="a-*", input=9, output=9)])
    mini, other = table.of("a-mini"), table.of("a-large")
    assert mini is not None
    assert other is not None
    assert (mini.input, other.input, table.of("b")) == (1, 9, None)
    assert (table.is_example(mini), table.is_example(other)) == (False, True)
    assert worth(mini, M, M) == 2.0
    assert bill(mini, Usage(None, 5)) is None

"""Makes the answer of ``/admin/ledger`` from the ledger's sheets. Pure.

What is not known is null, never 0: money where no price is, what a cache read where no provider told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from stratacache.policy.prices import PriceTable
from stratacache.stores.ledger_file import Account, Sheet
from stratacache.types import JSON

TIERS = ("exact", "semantic", "prompt", "kv")
COSTS = ("write_premium", "refresh", "check", "judge", "embedding")
"""What caching itself costs: it is taken off what was saved."""

_EPOCH = date(1970, 1, 1)


def report(
    accounts: Iterable[tuple[Account, Sheet]], prices: PriceTable, *, today: int, days: int
) -> dict[str, JSON]:
    """Totals, and the same by day, tenant and model; days in UTC, money in US dollars."""
    total: dict[str, float] = defaultdict(float)
    by_day: dict[int, dict[str, float]] = {d: defaultdict(float) for d in range(today - days + 1, today + 1)}
    by_tenant: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    by_model: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (day, tenant, model), sheet in accounts:
        for place in (total, by_day[day], by_tenant[tenant], by_model[model]):
            for name, number in sheet.items():
                place[name] += number
    return {
        "currency": "USD",
        "from": day_name(today - days + 1),
        "to": day_name(today),
        "total": statement(total),
        "days": [{"day": day_name(day), **statement(sheet)} for day, sheet in by_day.items()],
        "tenants": [{"tenant": name, **statement(sheet)} for name, sheet in _largest(by_tenant)],
        "models": [
            {"model": name, "price": _price(prices, name), **statement(sheet)}
            for name, sheet in _largest(by_model)
        ],
    }


def statement(sheet: Mapping[str, float]) -> dict[str, JSON]:
    """One account, or several added up, as JSON."""
    tiers = {tier: _tier(sheet, tier) for tier in TIERS}
    costs = {cost: _money(sheet, cost, "usd") for cost in COSTS}
    priced = [one["usd"] for one in tiers.values() if one["usd"] is not None]
    spent = sheet.get("spent_usd", 0.0) if "spent_usd" in sheet or not sheet.get("unpriced") else None
    saved = sum(priced) if priced else None
    paid = sum(cost for cost in costs.values() if cost is not None)
    return {
        "requests": _count(sheet, "requests"),
        "calls": _count(sheet, "calls"),
        "calls_refused": _count(sheet, "calls_refused"),
        "calls_uncounted": _count(sheet, "calls_uncounted"),
        "prompt_tokens": {
            "fresh": _count(sheet, "fresh"),
            "read": _told(sheet, "read"),
            "write": _told(sheet, "write"),
        },
        "completion_tokens": _count(sheet, "completion"),
        "spent_usd": spent,
        "saved": tiers,
        "saved_tokens": sum(one["tokens"] or 0 for one in tiers.values()),
        "saved_usd": saved,
        "costs_usd": costs,
        "net_usd": None if saved is None else saved - paid,
        "unpriced_tokens": _count(sheet, "unpriced") + sum(one["unpriced_tokens"] for one in tiers.values()),
    }


def day_name(day: int) -> str:
    """``20790`` → ``2026-12-03``."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def _tier(sheet: Mapping[str, float], tier: str) -> dict[str, JSON]:
    told = not sheet.get(f"{tier}.calls") or f"{tier}.tokens" in sheet
    return {
        "requests": _count(sheet, f"{tier}.requests"),
        "requests_uncounted": _count(sheet, f"{tier}.uncounted"),
        "tokens": _count(sheet, f"{tier}.tokens") if told else None,
        "usd": _money(sheet, tier, "usd") if told else None,
        "unpriced_tokens": _count(sheet, f"{tier}.unpriced"),
    }


def _money(sheet: Mapping[str, float], what: str, unit: str) -> float | None:
    """None where all of it is of models without a price."""
    name = f"{what}.{unit}"
    return sheet.get(name, 0.0) if name in sheet or not sheet.get(f"{what}.unpriced") else None


def _told(sheet: Mapping[str, float], what: str) -> int | None:
    return _count(sheet, what) if sheet.get(f"calls_telling_{what}") else None


def _count(sheet: Mapping[str, float], name: str) -> int:
    return round(sheet.get(name, 0.0))


def _largest(sheets: Mapping[str, Mapping[str, float]]) -> list[tuple[str, Mapping[str, float]]]:
    return sorted(sheets.items(), key=lambda item: (-item[1].get("requests", 0.0), item[0]))


def _price(prices: PriceTable, model: str) -> JSON:
    price = prices.of(model)
    if price is None:
        return None
    return {
        "input": price.input,
        "output": price.output,
        "read": price.read,
        "write_5m": price.write_5m,
        "write_1h": price.write_1h,
        "source": price.source,
        "date": price.date.isoformat() if price.date is not None else None,
        "example": prices.is_example(price),
    }

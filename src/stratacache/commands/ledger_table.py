"""The ledger as tables: what was saved day by day, by which tier, and what that cost."""

from __future__ import annotations

from rich.table import Table

from stratacache.types import JSON


def ledger_tables(ledger: JSON) -> list[Table]:
    """By day, and by tier over all days."""
    return [_days(ledger), _tiers(ledger)]


def dollars(amount: float | None) -> str:
    """``1.5`` → ``$1.50``, ``0.000012`` → ``$0.000012``; ``?`` for None, which is not nothing."""
    if amount is None:
        return "?"
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    return f"{sign}${size:,.2f}" if size >= 1 or size == 0 else f"{sign}${size:.2g}"


def price_notes(ledger: JSON) -> list[str]:
    """What to know before the amounts are believed."""
    priced = {one["model"]: one["price"] for one in ledger["models"]}
    unpriced = [name for name, price in priced.items() if price is None]
    examples = [name for name, price in priced.items() if price is not None and price["example"]]
    notes = []
    if unpriced:
        notes.append(f"without a price: {', '.join(unpriced)} (tokens are counted; see `prices`)")
    if examples:
        notes.append(f"priced by the packaged examples, check them: {', '.join(examples)}")
    return notes


def _days(ledger: JSON) -> Table:
    columns = (
        "day (UTC)",
        "requests",
        "answered by the cache",
        "saved tokens",
        "saved",
        "cost",
        "net",
        "spent",
    )
    table = Table(*columns, title="Ledger", title_justify="left")
    for day in ledger["days"]:
        answered = sum(day["saved"][tier]["requests"] for tier in ("exact", "semantic"))
        table.add_row(
            day["day"],
            f"{day['requests']:,}",
            f"{answered:,}",
            f"{day['saved_tokens']:,}",
            dollars(day["saved_usd"]),
            dollars(_sum(day["costs_usd"])),
            dollars(day["net_usd"]),
            dollars(day["spent_usd"]),
        )
    return table


def _tiers(ledger: JSON) -> Table:
    span = f"{ledger['from']} to {ledger['to']}"
    table = Table("of", "requests", "tokens", "US dollars", title=f"Saved, {span}", title_justify="left")
    total = ledger["total"]
    for tier, saved in total["saved"].items():
        tokens = "not told" if saved["tokens"] is None else f"{saved['tokens']:,}"
        table.add_row(tier, f"{saved['requests']:,}", tokens, dollars(saved["usd"]))
    for cost, amount in total["costs_usd"].items():
        if amount:
            table.add_row(f"less {cost.replace('_', ' ')}", "", "", dollars(-amount))
    table.add_row("net", "", "", dollars(total["net_usd"]))
    return table


def _sum(amounts: JSON) -> float | None:
    known = [amount for amount in amounts.values() if amount is not None]
    return sum(known) if known else None

"""Show what a running gateway has done since it started, and what it saved day by day."""

from __future__ import annotations

import argparse
import sys
from urllib.parse import urlencode

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.commands.shadow_table import show_shadow
from stratacache.commands.words import duration
from stratacache.errors import StrataError
from stratacache.stores.ledger_file import KEPT_DAYS
from stratacache.types import JSON

EXAMPLE = """example:
  stratacache stats
  stratacache stats --days 30 --tenant acme
  stratacache stats --shadow
  stratacache stats --url http://127.0.0.1:8900 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gateway_arguments(parser)
    parser.add_argument(
        "--days",
        type=_days,
        default=2,
        help="days of the ledger, today included, in UTC (default: %(default)s)",
    )
    parser.add_argument("--tenant", help="the ledger of one tenant (default: of all)")
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="show instead what the semantic tier would have answered in shadow mode, and how often rightly",
    )


def run(args: argparse.Namespace) -> int:
    if args.shadow:
        return show_shadow(args)
    figures = ask_gateway(args, "GET", "/admin/stats", member="version")
    figures["ledger"] = _ledger(args)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        _print_tables(figures)
    return 0


def _days(text: str) -> int:
    days = int(text) if text.isdigit() and len(text) < 6 else 0
    if not 1 <= days <= KEPT_DAYS:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {KEPT_DAYS}")
    return days


def _ledger(args: argparse.Namespace) -> JSON:
    """None, and a word on standard error, when the gateway has none: the other figures are still worth showing."""
    query = urlencode({"days": args.days, **({"tenant": args.tenant} if args.tenant else {})})
    try:
        return ask_gateway(args, "GET", f"/admin/ledger?{query}", member="days")
    except StrataError as error:
        print(f"no ledger: {error}", file=sys.stderr)
        return None


def _print_tables(figures: JSON) -> None:
    from rich.console import Console
    from rich.table import Table

    from stratacache.commands.ledger_table import ledger_tables, price_notes

    table = Table(title=f"stratacache {figures['version']}", show_header=False, title_justify="left")
    for name, value in _rows(figures):
        table.add_row(name, value)
    console = Console()
    console.print(table)
    times = Table("time of", "count", "mean", "p50 ≤", "p99 ≤", title="Times", title_justify="left")
    rows = {
        **{f"stage {name}": row for name, row in figures["stages"].items()},
        **{f"whole calls to {name}": row for name, row in figures["upstreams"].items()},
    }
    for name, row in rows.items():
        cells = ["-" if row[figure] is None else duration(row[figure]) for figure in ("mean", "p50", "p99")]
        times.add_row(name, str(row["count"]), *cells)
    console.print(times)
    if figures["ledger"] is None:
        return
    for account in ledger_tables(figures["ledger"]):
        console.print(account)
    notes = [
        f"semantic answers wrong, of late: {_errors(figures['levels'])}",
        *price_notes(figures["ledger"]),
    ]
    for note in notes:
        console.print(note, markup=False, highlight=False)


def _rows(figures: JSON) -> list[tuple[str, str]]:
    total = figures["requests"]
    hits = figures["outcomes"].get("hit", 0)
    store = figures["store"]
    tokens = figures["prompt_tokens"]
    rows = [
        ("requests", _counts({"all": total, **figures["outcomes"]})),
        ("hit rate", f"{hits / total:.1%}" if total else "-"),
        ("reasons", _counts(figures["reasons"])),
        ("saved tokens", _counts(figures["saved_tokens"])),
        ("refused by the gateway", _counts(figures["refusals"])),
        ("prompt tokens sent", f"{_counts(tokens)} (read: found in the model server's own cache)"),
        ("upstream calls", _counts(figures["upstream_calls"])),
        ("joined a running call", str(figures["singleflight_followers"])),
        ("write-backs", _counts(figures["writeback"])),
        ("answers not stored", _counts(figures["withheld"])),
        (
            "requests by worker",
            _counts({f"process {one['pid']}": one["requests"] for one in figures["workers"]}),
        ),
        ("store", "no figures" if store is None else _counts(store)),
        ("copies beside the store", f"{figures['events'].get('near_hit', 0):,} hits"),
        ("questions handled", _filter(figures["question_filter"])),
        ("dependencies", _breakers(figures["levels"].get("stratacache_breaker_state", {}))),
        *_semantic(figures),
    ]
    for name, engine in figures["engines"].items():
        rows.append((f"kv blocks of {name}", "down" if engine is None else _counts(engine["blocks"])))
    return rows


def _filter(stats: JSON) -> str:
    if stats is None:
        return "no figures"
    rate = f"takes {stats['measured']:.2%} of the new ones for known"
    return f"about {stats['questions']:,}, room for {stats['capacity']:,}; {rate}"


def _breakers(levels: JSON) -> str:
    """What is open failed too often."""
    words = {0.0: "works", 1.0: "is tried again", 2.0: "is LEFT ALONE"}
    return ", ".join(f"{name} {words.get(level, level)}" for name, level in levels.items()) or "-"


def _semantic(figures: JSON) -> list[tuple[str, str]]:
    """Of the semantic tier; hits never without what is known of wrong answers."""
    if figures["index"] is None:
        return [("semantic tier", "off")]
    levels, told = figures["levels"], figures["semantic"]
    lag = sum(levels.get("stratacache_index_lag_seconds", {}).values())
    behind = f", {lag:.0f} s behind the log" if lag else ""
    rows = [
        ("semantic look-ups", _counts(told["lookups"])),
        ("semantic answers wrong", _errors(levels)),
        ("stored answers, by question", _counts(told["learned"])),
        ("answers compared", _counts(told["labels"])),
        ("semantic index", f"{figures['index']['vectors']:,} questions{behind}"),
    ]
    alarms = [scene for scene, on in levels.get("stratacache_semantic_alarm", {}).items() if on]
    if alarms:
        rows.append(("semantic ALARM", f"{', '.join(alarms)}: answers are less right than believed"))
    state = next((name for name, on in levels.get("stratacache_reindex_state", {}).items() if on), "idle")
    if state != "idle":
        rows.append(("embedding anew", f"{state}: {_counts(levels['stratacache_reindex_questions'])}"))
    return rows


def _errors(levels: JSON) -> str:
    name = "stratacache_semantic_observed_error"
    low, high = levels.get(f"{name}_low", {}), levels.get(f"{name}_high", {})
    known = [
        f"{scene} {error:.2%} of the requests ({low[scene]:.2%} to {high[scene]:.2%})"
        for scene, error in levels.get(name, {}).items()
        if high[scene]
    ]
    return ", ".join(known) or "no semantic answers yet"


def _counts(counts: JSON) -> str:
    return ", ".join(f"{name} {count:,.0f}" for name, count in counts.items()) or "-"

"""Show what a running gateway has done since it started."""

from __future__ import annotations

import argparse

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.commands.words import duration
from stratacache.types import JSON

EXAMPLE = """example:
  stratacache stats
  stratacache stats --url http://127.0.0.1:8900 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    figures = ask_gateway(args, "GET", "/admin/stats", member="version")
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        _print_tables(figures)
    return 0


def _print_tables(figures: JSON) -> None:
    from rich.console import Console
    from rich.table import Table

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
    ]
    for name, engine in figures["engines"].items():
        rows.append((f"kv blocks of {name}", "down" if engine is None else _counts(engine["blocks"])))
    return rows


def _counts(counts: JSON) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "-"

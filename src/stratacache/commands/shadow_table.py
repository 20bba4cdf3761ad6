"""Shows the report of shadow mode."""

from __future__ import annotations

import argparse

import msgspec

from stratacache.commands.client import ask_gateway
from stratacache.types import JSON

ADVICE = {
    "serve": "serve: even the lower limit keeps to max_error",
    "calibrate": "calibrate, or a stricter max_error: too many were wrong",
    "more_traffic": "more traffic: too few were compared to tell",
}


def show_shadow(args: argparse.Namespace) -> int:
    """Print ``GET /admin/shadow``; 0."""
    told = ask_gateway(args, "GET", "/admin/shadow", member="lookups")
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return 0
    print(f"mode {told['mode']}: {told['hits']:,} of {told['lookups']:,} look-ups would have been answered")
    if told["scenes"]:
        _print_scenes(told["scenes"])
    return 0


def _print_scenes(scenes: JSON) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "scene", "would answer", "right", "wrong", "open", "precision", "wrong per request", "advice"
    )
    for one in scenes:
        known = one["precision"] is not None
        table.add_row(
            one["scene"],
            f"{one['hits']:,}",
            f"{one['agree']:,}",
            f"{one['disagree']:,}",
            f"{one['open']:,}",
            f"{one['precision']:.1%} ({one['low']:.1%} to {one['high']:.1%})" if known else "-",
            f"at most {one['error']:.2%}, {one['max_error']:.2%} allowed",
            ADVICE[one["advice"]],
        )
    Console().print(table)

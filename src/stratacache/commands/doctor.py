"""Examine a running gateway, its store and its files: what is wrong, why, and what mends it."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway, configured_url
from stratacache.errors import StoreError, StrataError
from stratacache.settings import Settings, load
from stratacache.types import JSON

if TYPE_CHECKING:
    from stratacache.lab.doctor_evidence import Evidence, RedisFacts, Row

SAMPLE = 200  # entries

EXAMPLE = """example:
  stratacache doctor                                     the configured gateway, its store and its files
  stratacache --config prod.yaml doctor --json
  stratacache doctor --url http://10.0.0.5:8900 --beside http://10.0.0.6:8900

Nothing is changed. Exit code 0: nothing was found, 1: something was. Without a running gateway the configuration, the
store's server and its files are examined."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="URL",
        help="another instance of the gateway, whose clock is compared; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="show the checks that found nothing too")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from stratacache.lab.doctor import diagnose

    evidence, notes = gather(args)
    rows = diagnose(evidence)
    found = sum(row.state == "found" for row in rows)
    if args.json:
        told = {"found": found, "notes": notes, "checks": msgspec.to_builtins(rows)}
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        _show(rows, notes, everything=args.all)
    return 1 if found else 0


def gather(args: argparse.Namespace) -> tuple[Evidence, list[str]]:
    """The evidence, and what could not be asked.

    Raises:
        StrataError: the gateway named by ``--url`` or ``--beside`` does not answer.
    """
    from stratacache.lab.doctor_evidence import Evidence
    from stratacache.lab.doctor_probe import leftovers

    settings = load(args.config, os.environ)
    notes: list[str] = []
    stats = live = None
    expiries: list[tuple[float, float]] = []
    offsets: dict[str, float] = {}
    url = args.url or configured_url(args.config)
    try:
        stats = ask_gateway(args, "GET", "/admin/stats", member="version")
        live, offsets[url] = _ask_live(args)
        expiries = _ask_expiries(args)
    except StrataError as error:
        if args.url:
            raise
        notes.append(f"{error}; only the configuration and the store are examined")
    for other in args.beside:
        _, offsets[other] = _ask_live(argparse.Namespace(**{**vars(args), "url": other}))
    masked = settings.masked()
    in_force: Mapping[str, JSON] = masked if live is None else live["settings"]
    same = in_force["store"] == masked["store"]
    if not same:
        notes.append(
            "the gateway's store is not that of the configuration here: its server and files are not examined"
        )
    redis, unreachable = _ask_redis(settings) if same else (None, "")
    evidence = Evidence(
        settings=in_force,
        stats=stats,
        live=live,
        offsets=offsets,
        redis=redis,
        unreachable=unreachable,
        leftovers=leftovers(settings.store) if same else None,
        expiries=expiries,
        hosts=[urlsplit(one).hostname or "" for one in offsets],
    )
    return evidence, notes


def _ask_live(args: argparse.Namespace) -> tuple[JSON, float]:
    """What ``GET /admin/config`` says, and by how many seconds that gateway's clock is ahead of this one."""
    before = time.time()
    live = ask_gateway(args, "GET", "/admin/config", member="now")
    return live, live["now"] - (before + time.time()) / 2


def _ask_expiries(args: argparse.Namespace) -> list[tuple[float, float]]:
    """When some of the entries were made and when they end; none where the store cannot list them."""
    try:
        told = ask_gateway(args, "GET", f"/admin/entries?limit={SAMPLE}", member="entries")
    except StrataError:
        return []
    return [(one["created_at"], one["expires_at"]) for one in told["entries"] if not one["negative"]]


def _ask_redis(settings: Settings) -> tuple[list[RedisFacts] | None, str]:
    """What the store's servers say, or why they do not; None where they are no Redis."""
    from stratacache.lab.doctor_probe import redis_facts

    if not settings.store.startswith("redis"):
        return None, ""
    try:
        return list(asyncio.run(redis_facts(settings.store))), ""
    except StoreError as error:
        return None, str(error)


def _show(rows: list[Row], notes: list[str], *, everything: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("symptom", "evidence", "cause", "fix", title="stratacache doctor", title_justify="left")
    table.show_lines = True
    for row in rows:
        if row.state == "found":
            table.add_row(row.symptom, f"{row.check}: {row.evidence}", row.cause, row.fix)
    console = Console()
    if table.row_count:
        console.print(table)
    for note in notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    counts = {state: [row for row in rows if row.state == state] for state in ("found", "ok", "unknown")}
    if everything:
        for state in ("ok", "unknown"):
            for row in counts[state]:
                console.print(f"{state:<8} {row.check}: {row.evidence}", markup=False, highlight=False)
    told = f"{len(counts['found'])} found, {len(counts['ok'])} well, {len(counts['unknown'])} not to be seen"
    unseen = ", ".join(row.check for row in counts["unknown"])
    console.print(f"{told}{f' ({unseen})' if unseen else ''}", markup=False, highlight=False)

"""Send real traffic through a gateway and a real small model, and show what each tier did."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stratacache.commands.words import duration
from stratacache.errors import StrataError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from stratacache.lab.demo import Result

EXAMPLE = """example:
  stratacache demo               starts a gateway and an engine of its own, takes a few minutes
  stratacache demo --json        the raw figures; progress goes to stderr"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the raw figures as JSON")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    console = Console(stderr=args.json)
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or the gateway would outlive the demo
    with _gateway() as url:
        result = _run(url, console)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        _show(console, result)
    for fault in result.faults:
        console.print(f"FAILED: {fault}", style="bold red", highlight=False)
    console.print(f"Finished in {time.monotonic() - started:.0f} s.")
    return 1 if result.faults else 0


@contextlib.contextmanager
def _gateway() -> Iterator[str]:
    """A gateway process with an empty store and the embedded model; its base URL."""
    with tempfile.TemporaryDirectory(prefix="stratacache-demo-") as folder:
        config = Path(folder) / "demo.yaml"
        settings = {
            "server": {"port": 0},
            "store": f"sqlite:///{folder}/cache.db",
            "audit": {"path": f"{folder}/audit.jsonl"},
            # The model keeps every core busy here: store and semantic tier may have to wait for their turn.
            "tiers": {"exact": {"budget": "500ms"}, "semantic": {"budget": "2s"}},
        }
        config.write_bytes(msgspec.json.encode(settings))  # JSON is YAML
        command = [sys.executable, "-m", "stratacache.cli", "--config", str(config), "serve", "--json"]
        # Settings of the caller's own gateway must not leak into the demo's.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("STRATACACHE__")}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)  # noqa: S603 - our own command
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise StrataError("the gateway did not start; its message is above")
            yield str(msgspec.json.decode(line)["url"])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class _Steps:
    """Shows each step with its time while it runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._current: TaskID | None = None

    def __call__(self, text: str) -> None:
        self.finish()
        self._current = self._progress.add_task(text, total=1)

    def finish(self) -> None:
        if self._current is not None:
            self._progress.update(self._current, completed=1)


def _run(url: str, console: Console) -> Result:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from stratacache.lab.demo import run_demo

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        steps = _Steps(progress)
        result = asyncio.run(run_demo(url, steps))
        steps.finish()
    return result


def _show(console: Console, result: Result) -> None:
    from rich import box
    from rich.table import Table

    # Narrow: all of it must fit into the 80 columns that a pipe and many a terminal have.
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("tier", no_wrap=True)
    table.add_column("traffic", no_wrap=True)
    for name in (
        "hits", "p50\nwith", "p50\nwithout", "p99\nwith", "p99\nwithout", "calls\nsaved", "tokens\nsaved",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        times = [
            duration(_quantile(values, q))
            for q in (0.5, 0.99)
            for values in (row.with_cache, row.without_cache)
        ]
        hits = f"{row.hits}/{row.lookups}"
        table.add_row(row.tier, row.what, hits, *times, str(row.calls_saved), f"{row.tokens_saved:,}")
    console.print(table)
    _show_pairs(
        console,
        ("answered from the cache", "sure", "with the answer to"),
        [(kin.question, kin.confidence, kin.stored) for kin in result.kin],
    )
    _show_pairs(
        console,
        ("near-miss, left to the model", "reason", "what was found"),
        [(refusal.question, refusal.reason, refusal.why) for refusal in result.refusals],
    )
    calls = sum(row.calls_saved for row in result.rows)
    tokens = sum(row.tokens_saved for row in result.rows)
    for line in (
        f"Saved {calls} model calls and {tokens:,} tokens.",
        f"Wrong answers: {result.wrongly_served} of {result.near_misses} near-misses came from the cache.",
        f"Stale answers: {result.stale} of {result.asked_after} after an invalidation, which took "
        f"{duration(result.invalidation)}.",
        "Times: exact and semantic, the whole answer; kv, the first token.",
        "Without: the same requests in this run with Cache-Control: no-store",
        "(kv: and with a prefix that no earlier request has computed).",
    ):
        console.print(line, highlight=False)


def _show_pairs(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(*head, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.columns[1].no_wrap = True  # a word or a number; texts may take two lines
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _quantile(values: Sequence[float], q: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

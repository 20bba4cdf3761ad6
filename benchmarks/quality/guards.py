"""What the guards veto of labelled pairs: false vetoes (label 1) and wrong pairs caught (label 0), per set and guard.

    python -m benchmarks.quality.guards --data DIR [--limit N] [--show GUARD] [--seed N]

``--data``: a folder of ``<set>/*.jsonl`` with rows of q1, q2 and label (default: $STRATACACHE_DATA/pairs). Labels are
noisy, so ``--show`` prints the label-1 pairs that a guard vetoed, to be judged by eye.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stratacache.policy.guards import Examination, examine

COMMAND = "python -m benchmarks.quality.guards"


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Rows with a label of 0 or 1."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("label") in (0, 1):
                yield row


def measure(name: str, rows: Sequence[dict[str, Any]], show: str | None) -> None:
    """Print one line for a set, and one for each guard that vetoed in it."""
    total: Counter[int] = Counter()
    vetoed: Counter[int] = Counter()
    by_guard: dict[str, Counter[int]] = {}
    for row in rows:
        label = row["label"]
        total[label] += 1
        vetoing = vetoing_guards(examine(row["q1"], row["q2"]))
        vetoed[label] += bool(vetoing)
        for guard, detail in vetoing.items():
            by_guard.setdefault(guard, Counter())[label] += 1
            if label == 1 and show in (guard, "all"):
                print(f"  {guard}: {detail} | {row['q1']} | {row['q2']}")
    print(f"{name:42} {_shares(vetoed, total)}")
    for guard, counts in sorted(by_guard.items()):
        print(f"    {guard:38} {_shares(counts, total)}")


def vetoing_guards(examination: Examination) -> dict[str, str]:
    return {found.guard: found.detail for found in examination.findings if found.verdict == "veto"}


def _shares(counts: Counter[int], total: Counter[int]) -> str:
    parts = [
        f"{counts[label]:5}/{total[label]:<6} {100 * counts[label] / max(1, total[label]):6.2f} %"
        for label in (1, 0)
    ]
    return "  ".join(parts)


def slices(name: str, rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A set as a whole, or by its column ``slice``."""
    for part in sorted({row.get("slice", "") for row in rows}):
        yield f"{name}:{part}".rstrip(":"), [row for row in rows if row.get("slice", "") == part]


def speed(pairs: Sequence[tuple[str, str]]) -> None:
    """Median and 99th percentile of one examination in microseconds of CPU time, each pair seen for the first time."""
    taken = []
    for q1, q2 in pairs:
        begun = time.thread_time()
        examine(q1, q2)
        taken.append((time.thread_time() - begun) * 1e6)
    taken.sort()
    print(f"one pair: median {statistics.median(taken):.0f} us, p99 {taken[int(len(taken) * 0.99)]:.0f} us")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("STRATACACHE_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) / "pairs" if data else None)
    parser.add_argument("--limit", type=int, default=4000, help="rows of each file, drawn by --seed")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--show", help="print label-1 pairs vetoed by this guard, or by all")
    arguments = parser.parse_args()
    if arguments.data is None:
        print("no --data: nothing measured")
        return
    draw = random.Random(arguments.seed)
    seen: list[tuple[str, str]] = []
    print(f"{'set':42} {'label 1 vetoed':>22}  {'label 0 vetoed':>22}")
    for path in sorted(arguments.data.glob("*/*.jsonl")):
        rows = list(rows_of(path))
        rows = draw.sample(rows, min(arguments.limit, len(rows)))
        for name, part in slices(path.parent.name + ("/" + path.stem if path.stem != "pairs" else ""), rows):
            measure(name, part, arguments.show)
        seen += [(row["q1"], row["q2"]) for row in rows[:300]]
    speed(draw.sample(seen, min(2000, len(seen))))


if __name__ == "__main__":
    main()

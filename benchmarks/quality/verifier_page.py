"""The quality report as a page: tables per set, language, source and kind, and precision over recall as plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]
Curve = Sequence[tuple[float, float]]

TITLES = {
    "dev": "Natural pairs",
    "evaluate": "Sets that were not trained on",
    "synthetic": "Rewrites by rule",
}
LEGENDS = {
    "dev": "Pairs of the training sets' domains that share no question with those trained on.",
    "evaluate": "Whole sets left out of the training; `hard_slices` are the near-misses of the natural sets.",
    "synthetic": "Words, rewrites and intents that the training did not contain. Each kind has one label: see which "
    "column is filled.",
}
ACCEPTED = (
    "Pairs that no guard vetoes and whose probability is at least so high, in percent of all pairs of that label:\n"
    "same ones, and different ones, which are the wrong answers."
)
COLOURS = {"verifier": "#1f77b4", "guarded": "#2ca02c", "cosine": "#999999"}
NAMES = {"verifier": "verifier", "guarded": "guards and verifier", "cosine": "e5 cosine"}
WIDTH, HEIGHT, MARGIN = 320, 220, 34
LEAST_PAIRS = 20  # of a kind, for a line of its own


def page(figures: Mapping[str, Any], command: str) -> str:
    """Markdown that shows the files of :func:`plots`, which stand beside it."""
    parts = [
        "# The verifier's quality\n\n"
        f"Made by `{command}`; raw figures: `benchmarks/results/verifier.json`. *+ cosine*: with the default\n"
        "embedder's, as the tier combines them. *Guarded*: and a pair that a guard vetoes counts as refused.\n"
        "*Accepted*: the calibrated probability is a half or more, which says how verifier and guards tell meanings\n"
        "apart; what is *served* is decided by the error bound, far above a half (`docs/guide/error-bound.md`).\n"
        "R98: recall at 98 % precision.\n"
    ]
    for name in ("dev", "evaluate", "synthetic"):
        lines = [line for line in figures["measured"] if line["set"] == name]
        parts.append(f"## {TITLES[name]}\n\n{LEGENDS[name]}\n\n{_table(lines)}\n")
        if name != "synthetic":
            shown = [f"![{TITLES[name]}: {group}]({name}-{group}.svg)" for group in figures["curves"][name]]
            parts.append(" ".join(shown) + "\n")
    parts.append(f"## What the cosine changes\n\n{ACCEPTED}\n\n{_accepted(figures['accepted'])}\n")
    return "\n".join(parts)


def plots(figures: Mapping[str, Any]) -> dict[str, str]:
    """SVG by file name: precision over recall for each set and language."""
    return {
        f"{name}-{group}.svg": _plot(f"{TITLES[name]}: {group}", curves)
        for name, groups in figures["curves"].items()
        for group, curves in groups.items()
        if name != "synthetic"
    }


def _table(lines: Sequence[Line]) -> str:
    rows = [
        "| group | pairs | AUC | + cosine | guarded | e5 | R98 | + cosine | guarded | e5 "
        "| accepted: same | guarded | different | guarded |",
        f"|{'---|' * 14}",
    ]
    fields = (
        *("auc", "combined_auc", "guarded_auc", "cosine_auc"),
        *("recall", "combined_recall", "guarded_recall", "cosine_recall"),
        *("accepted_same", "guarded_accepted_same", "accepted_different", "guarded_accepted_different"),
    )
    shown = [line for line in lines if line["pairs"] >= LEAST_PAIRS and not line["group"].endswith(": ")]
    for line in shown:
        cells = [_figure(line[field]) for field in fields]
        if not 0 < line["positives"] < line["pairs"]:
            cells[:8] = [""] * 8  # neither is defined for one label
        group = line["group"].removeprefix("synthetic: ")
        rows.append(f"| {group} | {line['pairs']:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _accepted(lines: Sequence[Line]) -> str:
    rows = [
        "| set | language | probability | same: verifier | + cosine | different: verifier | + cosine |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        title = "Near-misses (`hard_slices`)" if line["hard"] else TITLES[line["set"]]
        cells = [
            f"{line[kind][which] / line[of]:.1%}" if line[of] else ""
            for which, of in enumerate(("same", "different"))
            for kind in ("verifier", "combined")
        ]
        rows.append(f"| {title} | {line['language']} | ≥ {line['floor']:g} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _figure(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def _plot(title: str, curves: Mapping[str, Curve]) -> str:
    """Precision (up) over recall (right), both from 0 to 1."""

    def at(point: tuple[float, float]) -> str:
        recall, precision = point
        x = MARGIN + recall * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - precision * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    corners = " ".join(map(at, ((0, 1), (0, 0), (1, 0))))
    drawn = [
        f'<polyline fill="none" stroke="{COLOURS[kind]}" stroke-width="2" points="{" ".join(map(at, curve))}"/>'
        for kind, curve in curves.items()
    ]
    names = [
        f'<text x="{WIDTH - 2 * MARGIN - 70}" y="{MARGIN + 14 * n}" fill="{COLOURS[kind]}">{NAMES[kind]}</text>'
        for n, kind in enumerate(curves)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-size="11" '
        f'font-family="sans-serif"><title>{title}</title>'
        f'<polyline fill="none" stroke="#333" points="{corners}"/>'
        f'<text x="{MARGIN}" y="16">{title}</text><text x="{WIDTH // 2 - 20}" y="{HEIGHT - 10}">recall</text>'
        f'<text x="2" y="{MARGIN}">1</text><text x="2" y="{HEIGHT - MARGIN}">0</text>'
        f"{''.join(drawn)}{''.join(names)}</svg>\n"
    )

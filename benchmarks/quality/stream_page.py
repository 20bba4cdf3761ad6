"""Puts the stream test's figures into the guide: a table between its marks, and a plot beside it.

python -m benchmarks.quality.stream_page
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.stream_methods import BOUNDS, THRESHOLDS
from benchmarks.report import RESULTS

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "error-bound.md"
BEGIN, END = "<!-- stream test -->\n", "<!-- end of the stream test -->"
PLOT = "\n![Hits over wrong answers for each method and stream](error-bound.svg)\n\n"
STREAMS = {"en": "English pairs", "zh": "Chinese pairs", "intents": "banking intents"}
SERIES = {"cosine": "#6b7280", "vCache": "#c2410c", "ours": "#1d4ed8"}
PANEL, LEFT, TOP, WIDTH, HEIGHT = 260, 44, 28, 200, 190
ERRORS = (0.0002, 0.2)
"""The ends of the logarithmic axis."""

Figures = Mapping[str, Any]


def table(streams: Mapping[str, Figures]) -> str:
    """Medians over the seeds; hits never without wrong answers, both in percent of the requests."""
    lines = [
        "| stream | `max_error` | ours: hits / wrong | seeds never above | vCache: hits / wrong | ours by vCache |"
        " best cosine, chosen afterwards: hits / wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for stream, figures in streams.items():
        methods = figures["methods"]
        for bound in BOUNDS:
            ours, vcache = methods[f"ours {bound}"], methods[f"vCache {bound}"]
            allowed = [methods[f"cosine >= {t}"] for t in THRESHOLDS]
            allowed = [one for one in allowed if one["error_per_request"] <= bound]
            best = max(allowed, key=lambda one: one["hits"], default=None)
            lines.append(
                f"| {STREAMS[stream]} | {bound:.1%} | **{_both(ours)}** | {ours['seeds_never_above']:.0%}"
                f" | {_both(vcache)} | {ours['hits_by_vcache']:.1f} × | {_both(best) if best else 'none'} |"
            )
    return "\n".join(lines) + "\n"


def _both(figures: Figures) -> str:
    return f"{figures['hits']:.1%} / {figures['error_per_request']:.2%}"


def plot(streams: Mapping[str, Figures]) -> str:
    """A panel for each stream: hits over wrong answers per request, of every method, as SVG."""
    width, height = PANEL * len(streams), TOP + HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11"><title>Hits over wrong answers per request</title>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, (stream, figures) in enumerate(streams.items()):
        parts += _panel(number * PANEL + LEFT, STREAMS[stream], figures["methods"])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: float, title: str, methods: Figures) -> list[str]:
    names = {
        "cosine": [f"cosine >= {t}" for t in THRESHOLDS],
        "vCache": [f"vCache {b}" for b in BOUNDS],
        "ours": [f"ours {b}" for b in BOUNDS],
    }
    highest = 1.1 * max(methods[name]["hits"] for group in names.values() for name in group)
    base = TOP + HEIGHT
    parts = [
        f'<text x="{left}" y="16" font-weight="bold">{title}</text>',
        f'<path d="M{left} {TOP}V{base}H{left + WIDTH}" fill="none" stroke="#374151"/>',
        f'<text x="{left + WIDTH / 2}" y="{base + 34}" text-anchor="middle">wrong answers, % of requests</text>',
    ]
    if left == LEFT:
        parts.append(
            f'<text transform="translate(11 {TOP + HEIGHT / 2}) rotate(-90)" text-anchor="middle">hits, %</text>'
        )
    for error in (0.001, 0.01, 0.1):
        x = left + _along(error)
        parts.append(f'<path d="M{x:.1f} {TOP}V{base}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{base + 15}" text-anchor="middle">{error * 100:g}</text>')
    for share in (0.0, 0.5, 1.0):
        y = base - share * HEIGHT
        parts.append(
            f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{share * highest * 100:.0f}</text>'
        )
    for name, group in names.items():
        points = [
            (left + _along(methods[one]["error_per_request"]), base - methods[one]["hits"] / highest * HEIGHT)
            for one in group
        ]
        parts += _line(points, SERIES[name], name)
    return parts


def _along(error: float) -> float:
    low, high = map(math.log, ERRORS)
    return (math.log(min(max(error, ERRORS[0]), ERRORS[1])) - low) / (high - low) * WIDTH


def _line(points: Sequence[tuple[float, float]], colour: str, name: str) -> list[str]:
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in points]
    x, y = max(points, key=lambda point: -point[1])
    label = f'<text x="{x - 6:.1f}" y="{y - 5:.1f}" text-anchor="end" fill="{colour}">{name}</text>'
    return [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>', *dots, label]


def main() -> None:
    streams = {
        stream: json.loads((RESULTS / f"stream_{stream}.json").read_text("utf-8")) for stream in STREAMS
    }
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n" + table(streams) + PLOT + END + after, "utf-8")
    PAGE.with_suffix(".svg").write_text(plot(streams), "utf-8")
    print(table(streams))


if __name__ == "__main__":
    main()

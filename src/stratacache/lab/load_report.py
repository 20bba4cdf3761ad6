"""A load test as one HTML page that needs nothing else: figures, a chart of latency over rate, the steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from stratacache.lab.load import Hits, Load, Times

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}
th,td{padding:.25rem .75rem;border-bottom:1px solid #8886;text-align:right}
th:first-child,td:first-child{text-align:left}
.broke{color:#c33;font-weight:600}
svg{width:100%;height:auto}
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 260, 60, 30


def html_report(load: Load) -> str:
    """The whole page."""
    steps = load.steps
    objective = f"p{load.objective.share * 100:g} within {milliseconds(load.objective.latency)}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Load test</title><style>{_STYLE}</style>",
        f"<h1>Load test of {escape(load.url)}</h1>",
        f"<p>{objective}, at most {load.objective.errors:.1%} errors: kept up to "
        f"<strong>{load.sustained:,.0f} requests a second</strong>.</p>",
        "<h2>Hits and wrong answers</h2>",
        _table(("", "share", "of"), hit_rows(load.total)),
        f"<p>Saved: {saved_words(load)}.</p>",
        _table(("asked", "got the answer to"), [(one.asked, one.answered) for one in load.examples])
        if load.examples
        else "",
        "<h2>Latency</h2>",
        _chart([(step.rate, step.times) for step in steps], load.objective.latency),
        _table(("answered by", "requests", "p50", "p90", "p99"), tier_rows(load)),
        "<h2>Steps</h2>",
        _table(("rate", "done", "errors", "p50", "p90", "p99", "sent late", "hits", ""), step_rows(load)),
        "<p>Times run from when a request was due, whether or not it could be sent then. Sent late: p99.</p>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def hit_rows(hits: Hits) -> list[tuple[str, str, str]]:
    """Hit rate, the bound on it, and wrong answers, each with what it is a share of; only an echo tells wrong ones."""
    return [
        ("answered from cache", _share(hits.answered, hits.requests), f"{hits.requests:,} requests"),
        ("could have been", _share(hits.possible, hits.requests), f"{hits.requests:,} requests"),
        (
            "wrong answers",
            _share(hits.wrong, hits.judged, 2),
            f"{hits.judged:,} hits that an echo model answered",
        ),
    ]


def saved_words(load: Load) -> str:
    """Tokens that no model had to compute, and what they would have cost when a price was given."""
    tokens = f"{load.saved.prompt:,} prompt and {load.saved.completion:,} answer tokens"
    return tokens if load.saved_money is None else f"{tokens}, {load.saved_money:,.2f} at the given price"


def tier_rows(load: Load) -> list[tuple[str, ...]]:
    """Of the fastest step that kept the objective, or else the first; then the baseline."""
    kept = [step for step in load.steps if step.broke is None] or list(load.steps[:1])
    rows = [(tier, *_times(times)) for step in kept[-1:] for tier, times in step.tiers.items()]
    if load.baseline is not None:
        rows.append(("without cache", *_times(load.baseline)))
    return rows


def step_rows(load: Load) -> list[tuple[str, ...]]:
    return [
        (
            f"{step.rate:,.0f}/s",
            f"{step.throughput:,.0f}/s",
            f"{step.errors:,}",
            *_times(step.times)[1:],
            milliseconds(step.late),
            _share(step.hits.answered, step.hits.requests),
            step.broke or "kept",
        )
        for step in load.steps
    ]


def milliseconds(seconds: float) -> str:
    """At least two digits: ``0.84 ms``, ``7.3 ms``, ``240 ms``, ``2,400 ms``."""
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def _times(times: Times) -> tuple[str, ...]:
    return (f"{times.requests:,}", *(milliseconds(each) for each in (times.p50, times.p90, times.p99)))


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{part / whole:.{digits}%}" if whole else "-"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<table><tr>", *(f"<th>{escape(head)}</th>" for head in heads), "</tr>"]
    for row in rows:
        lines += ["<tr>", *(f"<td>{escape(cell)}</td>" for cell in row), "</tr>"]
    return "".join([*lines, "</table>"])


def _chart(points: Sequence[tuple[float, Times]], limit: float) -> str:
    """p50 and p99 over the rate, the objective as a dashed line."""
    fastest = max((rate for rate, _ in points), default=1.0) or 1.0
    top = max([limit * 1.2, *(min(times.p99, limit * 3) for _, times in points)])

    def place(rate: float, seconds: float) -> str:
        x = _LEFT + rate / fastest * (_WIDTH - _LEFT - 10)
        return f"{x:.0f},{_HEIGHT - _BOTTOM - min(seconds, top) / top * (_HEIGHT - _BOTTOM - 10):.0f}"

    lines = [
        f"<polyline fill=none stroke='{colour}' stroke-width=2 points='"
        + " ".join(place(rate, getattr(times, name)) for rate, times in points)
        + "'/>"
        for name, colour in (("p50", "#38c"), ("p99", "#c60"))
    ]
    (left, height), (right, _) = (place(rate, limit).split(",") for rate in (0.0, fastest))
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role=img aria-label='Latency over rate'>"
        f"<line x1={left} x2={right} y1={height} y2={height} stroke=#c33 stroke-dasharray=5 />"
        + "".join(lines)
        + f"<g fill=currentColor font-size=12><text x=4 y={height}>{milliseconds(limit)}</text>"
        f"<text x={_LEFT} y={_HEIGHT - 8}>0</text>"
        f"<text x={_WIDTH - 10} y={_HEIGHT - 8} text-anchor=end>{fastest:,.0f} requests/s</text>"
        "<text x=70 y=20 fill=#38c>p50</text><text x=110 y=20 fill=#c60>p99</text></g></svg>"
    )

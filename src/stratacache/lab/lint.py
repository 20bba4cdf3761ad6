"""Finds what breaks a provider's prompt cache in a log of prompts, and counts what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from stratacache.lab.lint_input import Prompt, Skipped
from stratacache.lab.lint_rules import CODES, RULES, Evidence, Limits, Severity, alone
from stratacache.policy.prompt.divergence import Divergence, masked
from stratacache.policy.prompt.lineage import Lineages
from stratacache.policy.prompt.segments import Segment, segments_of
from stratacache.policy.prompt.stable import Options, stabilise, without_note
from stratacache.policy.prompt.volatile import volatile_in

MAX_SKIPPED: Final = 5  # told one by one
_WIDE: Final = 60  # characters of an excerpt

Saving = Callable[[str], float | None]
"""US dollars that a token of a model's prompt costs more when it is not read from the cache; None when unknown."""


class Finding(msgspec.Struct, frozen=True):
    """A rule that is broken in one part of the prompts: how often, the first evidence, and what it costs.

    ``lost`` are the tokens of all times, None where one prompt alone does not tell; ``usd`` what they cost more.
    """

    code: str
    severity: Severity
    title: str
    times: int
    first: Evidence
    lost: int | None
    usd: float | None
    fix: str


class Report(msgspec.Struct, frozen=True):
    """What lint says of ``prompts`` prompts with about ``tokens`` tokens in all."""

    prompts: int
    tokens: int
    findings: tuple[Finding, ...]
    skipped: int
    first_skipped: tuple[Skipped, ...]

    @property
    def found(self) -> bool:
        """Whether something ought to be mended."""
        return any(one.severity != "note" for one in self.findings)


class _Tally(msgspec.Struct):
    first: Evidence
    times: int = 0
    lost: int | None = None
    usd: float | None = None


def lint(
    prompts: Iterable[Prompt | Skipped], limits: Limits, saving: Saving, options: Options | None = None
) -> Report:
    """Check each prompt by itself and against the earlier one that it should go on from.

    With ``options`` as the gateway would send it with them on.
    """
    tallies: dict[tuple[str, str, str], _Tally] = {}
    lineages = Lineages()
    count = tokens = skipped = 0
    first_skipped: list[Skipped] = []
    for one in prompts:
        if isinstance(one, Skipped):
            skipped += 1
            if len(first_skipped) < MAX_SKIPPED:
                first_skipped.append(one)
            continue
        body, _ = stabilise(one.body, one.form, options or Options())
        segments = without_note(segments_of(body, one.form))
        count += 1
        tokens += sum(each.tokens for each in segments)
        for evidence in alone(one, segments, limits):
            # Each volatile text is told once, not at each value that it has.
            what = masked(evidence.excerpt) if evidence.excerpt else ""
            _add(tallies, (evidence.code, _part(evidence.segment), what), evidence)
        found = lineages.follow("", one.conversation, segments, one.body, one.line)
        if found is not None:
            evidence = _diverged(one, segments, found)
            price = saving(str(one.body.get("model", "")))
            _add(tallies, (evidence.code, found.part, "diverged"), evidence, price)
    return Report(count, tokens, _findings(tallies), skipped, tuple(first_skipped))


def _add(
    tallies: dict[tuple[str, str, str], _Tally],
    key: tuple[str, str, str],
    evidence: Evidence,
    price: float | None = None,
) -> None:
    tally = tallies.setdefault(key, _Tally(evidence))
    tally.times += 1
    if evidence.lost is not None:
        tally.lost = (tally.lost or 0) + evidence.lost
        if price is not None:
            tally.usd = (tally.usd or 0.0) + evidence.lost * price


def _findings(tallies: dict[tuple[str, str, str], _Tally]) -> tuple[Finding, ...]:
    """The dearest first. What a prompt alone made likely is left out where the log shows it happen."""
    shown = {(code, part) for code, part, what in tallies if what == "diverged"}
    made = [
        Finding(
            code,
            RULES[code].severity,
            RULES[code].title,
            one.times,
            one.first,
            one.lost,
            one.usd,
            RULES[code].fix,
        )
        for (code, part, what), one in tallies.items()
        if what == "diverged" or (code, part) not in shown
    ]
    return tuple(
        sorted(made, key=lambda one: (one.severity != "error", -(one.lost or 0), one.code, one.first.line))
    )


def _diverged(prompt: Prompt, segments: list[Segment], found: Divergence) -> Evidence:
    detail = f"about {found.kept} tokens before it are as they were"
    return Evidence(
        CODES[found.cause],
        prompt.line,
        found.segment,
        found.offset,
        _excerpt(segments, found),
        detail,
        found.since,
        found.lost,
    )


def _excerpt(segments: list[Segment], found: Divergence) -> str:
    """The text at the first difference; of a clock or an id just that."""
    content = next((one.content for one in segments if one.name == found.segment), b"")
    text = content[max(0, found.offset - 48) : found.offset + 240].decode("utf-8", "ignore")
    exact = next((one.text for one in volatile_in(text) if one.kind == found.cause), None)
    return exact if exact is not None else text[:_WIDE] if found.cause != "model" else ""


def _part(segment: str) -> str:
    return segment.partition("[")[0]

"""The rules of ``stratacache lint``: what breaks a provider's prompt cache, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from stratacache.lab.lint_input import Prompt
from stratacache.policy.prompt.divergence import Cause
from stratacache.policy.prompt.segments import MARK, Segment
from stratacache.policy.prompt.volatile import volatile_in
from stratacache.types import JSON

Severity = Literal["error", "warning", "note"]


class Rule(msgspec.Struct, frozen=True):
    """What a code means, and the fix."""

    title: str
    fix: str
    severity: Severity = "warning"


_RELOCATE = "or set tiers.prompt.relocate_volatile: true"
_CANONICAL = "or set tiers.prompt.canonicalise: true"
RULES: Final[Mapping[str, Rule]] = {
    "P001": Rule("a clock in the prefix", f"tell the time in the last message of the user, {_RELOCATE}"),
    "P002": Rule("an id in the prefix that each request makes anew", f"send it in a header or metadata, {_RELOCATE}"),
    "P003": Rule("the order of the tools varies", f"sort the tools by name before sending, {_CANONICAL}"),
    "P004": Rule(
        "the order of members in a tool's schema varies",
        f"serialise schemas (also their required) in one order, {_CANONICAL}",
    ),
    "P005": Rule(
        "thinking of earlier turns is dropped",
        "send assistant messages back as they came, thinking blocks with them, or take a template that keeps them",
    ),
    "P006": Rule(
        "shorter than what the provider caches", "put what all requests share in front, or leave the mark out"
    ),
    "P007": Rule("more marks than the provider takes", "mark tools, system and the last message only", "error"),
    "P008": Rule("a mark for 1h after one for 5m", "give tools the longest life: a bare ephemeral is 5m", "error"),
    "P009": Rule(
        "a turn does not go on from the turn before", "only append to the history; cut it in big steps, seldom"
    ),
    "P010": Rule(
        "arguments or results are serialised in another order than before",
        "keep the JSON text of calls as it came, or sort its members every time",
    ),
    "P011": Rule(
        "more parallel tool results than the provider looks back over",
        "put a mark among them, at most 15 positions from the last one",
    ),
    "P012": Rule("the user's name in the prefix", f"tell it in the last message of the user, {_RELOCATE}"),
    "P013": Rule(
        "tools, model or settings change within a conversation",
        "send all tools every time and steer with tool_choice seldom; keep model and thinking as they are",
    ),
    "P014": Rule("the system prompt varies", "move what varies behind what does not, or into the last message"),
}  # fmt: skip
CODES: Final[Mapping[Cause, str]] = {
    "clock": "P001", "id": "P002", "tool_order": "P003", "schema_order": "P004", "thinking": "P005",
    "history": "P009", "argument_order": "P010", "name": "P012", "tools": "P013", "model": "P013",
    "settings": "P013", "system": "P014",
}  # fmt: skip
_OF_KIND: Final = {"clock": "P001", "id": "P002", "name": "P012"}
MANY_RESULTS: Final = 10
"""With a call for each they are two positions; more leave a window of 20."""


class Limits(msgspec.Struct, frozen=True):
    """What the provider's cache takes: the fewest tokens of a prefix, and the most marks."""

    minimum: int = 1024
    marks: int = 4


class Evidence(msgspec.Struct, frozen=True):
    """One break of rule ``code``. ``segment``, ``offset`` (bytes or characters from its start) and ``excerpt`` say
    where; ``since`` is the line of the prompt that it parts from, and ``lost`` the tokens that are read anew."""

    code: str
    line: int
    segment: str
    offset: int = 0
    excerpt: str = ""
    detail: str = ""
    since: int | None = None
    lost: int | None = None


def alone(prompt: Prompt, segments: Sequence[Segment], limits: Limits) -> Iterator[Evidence]:
    """What is wrong with one prompt by itself."""
    yield from _volatile(prompt, segments)
    yield from _lengths(prompt, segments, limits)
    yield from _marks(prompt, segments, limits)
    yield from _results(prompt, segments)


def _volatile(prompt: Prompt, segments: Sequence[Segment]) -> Iterator[Evidence]:
    behind = sum(one.tokens for one in segments)
    for one in segments:
        behind -= one.tokens
        text = _text_of(one) if one.kind == "system" else None
        for found in volatile_in(text) if text is not None else ():
            kept = round(one.tokens * found.start / max(1, len(text or "")))
            detail = f"about {behind + one.tokens - kept} tokens stand behind it"
            yield Evidence(_OF_KIND[found.kind], prompt.line, one.name, found.start, found.text, detail)


def _text_of(segment: Segment) -> str | None:
    value = msgspec.json.decode(segment.content)
    text = value.get("text") if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def _lengths(prompt: Prompt, segments: Sequence[Segment], limits: Limits) -> Iterator[Evidence]:
    total = 0
    for one in segments:
        total += one.tokens
        if one.mark is not None and total < limits.minimum:
            detail = f"the mark ends a prefix of about {total} tokens; the least is {limits.minimum}"
            yield Evidence("P006", prompt.line, one.name, detail=detail)


def _marks(prompt: Prompt, segments: Sequence[Segment], limits: Limits) -> Iterator[Evidence]:
    marks = sum(_count(prompt.body.get(name)) for name in ("tools", "system", "messages"))
    marks += isinstance(prompt.body.get(MARK), dict)
    if marks > limits.marks:
        last = [one.name for one in segments if one.mark is not None][-1:]
        detail = f"{marks} marks, and at most {limits.marks} are taken: the request is refused"
        yield Evidence("P007", prompt.line, last[0] if last else "", detail=detail)
    short = ""
    for one in segments:
        if one.mark is None:
            continue
        if one.mark.get("ttl") != "1h":
            short = short or one.name
        elif short:
            detail = f"{short} is marked for 5m before it: the request is refused"
            yield Evidence("P008", prompt.line, one.name, detail=detail)
            return


def _count(value: JSON) -> int:
    """Marks on tools and blocks, and on blocks in tool results; members of schemas and arguments are none."""
    if isinstance(value, list):
        return sum(_count(one) for one in value)
    if not isinstance(value, dict):
        return 0
    return isinstance(value.get(MARK), dict) + _count(value.get("content")) + _count(value.get("function"))


def _results(prompt: Prompt, segments: Sequence[Segment]) -> Iterator[Evidence]:
    if prompt.form == "chat" and not any(one.mark is not None for one in segments):
        return  # its provider caches by itself and looks back as far as it likes
    run: list[Segment] = []
    for one in [*segments, None]:
        if one is not None and _is_result(one) and one.mark is None:
            run.append(one)
            continue
        if len(run) > MANY_RESULTS:
            yield Evidence(
                "P011", prompt.line, run[0].name, detail=f"{len(run)} results and no mark among them"
            )
        run = []


def _is_result(segment: Segment) -> bool:
    return segment.role == "tool" or b'"type":"tool_result"' in segment.content[-40:]

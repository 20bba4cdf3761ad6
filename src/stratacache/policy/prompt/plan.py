"""Where a request's prefix is marked for the provider's prompt cache, for how long, and whether at all. Pure.

Costs are in plain input tokens. A token whose prefix comes again with chance p within the life of an entry costs, in
the long run and per request, ``p * read + (1 - p) * write`` when it is marked and about 1 when it is not; the same
bound follows from one decision: writing now costs ``write - 1`` more and saves ``write - read`` if the prefix comes
again. So with Anthropic's prices five minutes pay from p = 0.22 on, an hour from p = 0.53 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from stratacache.policy.prompt.reuse import Kind, Reuse
from stratacache.settings import CacheRule

ANCHOR_EVERY = 15
"""Positions between anchors in the history: a provider looks back 20, and one turn may add several."""

NEVER = 1e9  # cost of a token, as against about 1

Part = Literal["tools", "system", "messages"]
Decision = Literal[
    "marked", "keyed", "no_gain", "short", "own_marks", "automatic", "unknown", "refused", "failed"
]


class Layout(msgspec.Struct, frozen=True):
    """A request as positions in the provider's order: tools, system, messages.

    ``sums[i]`` are the tokens up to and including position i (estimated), ``digests[i]`` stands for that prefix,
    ``markable[i]`` tells whether the position can carry a mark. ``tools`` and ``system`` are the numbers of positions
    up to the end of each. ``marked``: the client's own marks are in it. ``answered``: it holds an answer of the model.
    """

    sums: Sequence[int]
    digests: Sequence[bytes]
    markable: Sequence[bool]
    tools: int
    system: int
    marked: bool
    answered: bool

    @property
    def family(self) -> bytes:
        """The prefix of tools and system, b"" without."""
        return self.digests[self.system - 1] if self.system else b""


class Mark(msgspec.Struct, frozen=True):
    """A mark at a position. ``tokens`` of its prefix; ``chances`` for each life of the rule that it comes again."""

    position: int
    ttl: str
    seconds: float
    part: Part
    tokens: int
    chances: tuple[float, ...]


class Plan(msgspec.Struct, frozen=True):
    """What is done with one request, and why.

    ``gain`` is the expected gain in plain input tokens, against the request without marks. ``implicit`` is False when
    the provider is told to write nothing but what is marked.
    """

    decision: Decision
    why: str
    marks: tuple[Mark, ...] = ()
    gain: float = 0.0
    implicit: bool = True


class Seen(msgspec.Struct, frozen=True):
    """Where a request leaves what was sent before: the last position that was, and the last up to there that an entry
    may end at; -1 for none."""

    known: int
    near: int


AUTOMATIC = Plan("automatic", "the provider caches by itself and takes no marks")


class Candidate(msgspec.Struct):
    """A position that may get a mark; ``live``: an entry of its prefix is believed to be there."""

    position: int
    tokens: int
    chances: list[float]
    live: bool
    implicit: bool = False


def look(layout: Layout, reuse: Reuse) -> Seen:
    """What of the request was seen before. Mutates nothing."""
    known = reuse.longest(layout.digests)
    near = known
    while near >= 0 and reuse.node(layout.digests[near]) is None:
        near -= 1
    return Seen(known, near)


def consider(layout: Layout, seen: Seen, rule: CacheRule, reuse: Reuse, scope: bytes, now: float) -> Plan:
    """The plan for a request of ``scope``. Mutates nothing: :func:`record` does, once the request is sent."""
    if rule.style == "automatic":
        return AUTOMATIC
    if layout.marked and rule.style != "key":
        return Plan("own_marks", "the client set marks of its own, which stay as they are")
    total = layout.sums[-1] if layout.sums else 0
    if total < max(1, rule.minimum):
        return Plan("short", f"about {total} tokens, fewer than the {rule.minimum} that this model caches")
    if rule.style == "key":
        return Plan("keyed", "the provider caches by itself; a key keeps the prefix on one machine")
    candidates = _candidates(layout, seen, rule, reuse, scope, now)
    lives, least = _best(candidates, rule)
    saved = _as_it_is(candidates, rule) - least
    marks = tuple(
        _mark(layout, rule, one, life)
        for one, life in zip(candidates, lives, strict=True)
        if life is not None and not one.implicit
    )
    implicit = not any(life is None and one.implicit for one, life in zip(candidates, lives, strict=True))
    if rule.style == "cache_control":
        if not marks:
            return Plan("no_gain", _no_gain(candidates, rule))
        marks = _with_anchors(layout, rule, marks)
    why = f"saves about {saved:.0f} plain tokens a request in the long run"
    return Plan("marked" if marks or not implicit else "keyed", why, marks, saved, implicit)


def record(layout: Layout, seen: Seen, rule: CacheRule, reuse: Reuse, scope: bytes, now: float) -> None:
    """Note that the request is sent: what it needs again, and where it goes on from what was seen."""
    if not layout.sums:
        return
    lives = [life.seconds for life in rule.lives]
    known, near = seen.known, seen.near
    shared = _shared(layout)
    deep = reuse.node(layout.digests[near]) if near not in shared and near >= 0 else None
    family, end = layout.family, _last(layout, rule)
    for position in shared:
        # What is read at a deeper point does not need these, and their time goes on.
        if deep is None or deep.until <= now or position > near:
            reuse.begin("shared", layout.digests[position], scope, b"", now, lives)
    for position in sorted({known, near} - {-1, *shared}):
        reuse.begin("branch", layout.digests[position], scope, family, now, lives)
    reuse.between(layout.digests[known + 1 :])
    if end > known:
        reuse.begin(_kind_of_end(layout), layout.digests[end], scope, family, now, lives)


def expected_read(layout: Layout, plan: Plan, rule: CacheRule, reuse: Reuse, now: float) -> int:
    """The tokens that should have been read: of the longest prefix with a mark that is believed to be there."""
    ends = [(tokens, reuse.node(layout.digests[at])) for at, tokens, _ in _ends(layout, plan, rule)]
    return max((tokens for tokens, node in ends if node is not None and node.until > now), default=0)


def settle(layout: Layout, plan: Plan, rule: CacheRule, reuse: Reuse, now: float) -> None:
    """The answer to a request with ``plan`` began: what it marked is there from now on."""
    deepest = True
    for position, _, seconds in reversed(_ends(layout, plan, rule)):
        node = reuse.node(layout.digests[position])
        if node is None:
            continue
        if node.until > now:
            # Only the longest entry is read, and a read is what keeps it.
            if deepest:
                node.wrote(now, node.life)
            deepest = False
        else:
            node.wrote(now, seconds)


def _ends(layout: Layout, plan: Plan, rule: CacheRule) -> list[tuple[int, int, float]]:
    """Where entries of the request end, in order: position, tokens, seconds of life."""
    ends = [(mark.position, mark.tokens, mark.seconds) for mark in plan.marks]
    if rule.style == "breakpoints" and plan.implicit and (last := _last(layout, rule)) >= 0:
        ends.append((last, layout.sums[last], rule.lives[0].seconds))
    return ends


def _shared(layout: Layout) -> list[int]:
    """The last positions of tools and system."""
    tools, system = layout.tools - 1, layout.system - 1
    return [i for i in (tools, system) if i >= 0] if tools != system else [system] * (system >= 0)


def _last(layout: Layout, rule: CacheRule) -> int:
    """The last position of the messages that an entry can end at, -1 without."""
    end = len(layout.sums) - 1
    if rule.style == "breakpoints":  # the implicit one is at the newest message, whatever that is
        return end if end >= layout.system else -1
    return next((i for i in range(end, layout.system - 1, -1) if layout.markable[i]), -1)


def _kind_of_end(layout: Layout) -> Kind:
    return "continued" if layout.answered else "opening"


def _candidates(
    layout: Layout, seen: Seen, rule: CacheRule, reuse: Reuse, scope: bytes, now: float
) -> list[Candidate]:
    """The positions worth a mark, in order; no more than the request may carry."""
    n, family = len(rule.lives), layout.family

    def candidate(position: int, kind: Kind, *, implicit: bool = False) -> Candidate | None:
        if (
            position < 0
            or not (implicit or layout.markable[position])
            or layout.sums[position] < rule.minimum
        ):
            return None
        digest = layout.digests[position]
        node = reuse.node(digest)
        chances = reuse.chances(node.kind if node else kind, digest, scope, family, now, n)
        return Candidate(
            position, layout.sums[position], chances, node is not None and node.until > now, implicit
        )

    last = _last(layout, rule)
    tail = candidate(last, _kind_of_end(layout), implicit=rule.style == "breakpoints")
    system = candidate(layout.system - 1, "shared") if layout.system > layout.tools else None
    # Whoever shares the tools with another system finds them from there; a system that is known needs no such mark.
    fresh = system is None or reuse.node(layout.digests[layout.system - 1]) is None
    tools = candidate(layout.tools - 1, "shared") if fresh else None
    parted = sorted({seen.known, seen.near} - {last, *_shared(layout)}, reverse=True)
    # In the order of need; the end comes first, as all before it is written with it at no further cost.
    wanted = [
        one for one in (tail, system, *(candidate(i, "branch") for i in parted), tools) if one is not None
    ]
    return sorted(wanted[: rule.breakpoints], key=lambda one: one.position)


def _best(candidates: Sequence[Candidate], rule: CacheRule) -> tuple[list[int | None], float]:
    """For each candidate the life to mark it with, None for no mark, and the cost of all of them.

    Lives may only get shorter along the request, and after the last mark there is none. Least cost by dynamic
    programming over (candidate, longest life still allowed).
    """
    n = len(rule.lives)
    # States: 0 no mark, k the life k - 1. cost[k]: the least cost of all so far that ends in state k.
    cost = [0.0] * (n + 1)
    came: list[list[int]] = []
    before = 0
    for one in candidates:
        tokens, before = one.tokens - before, one.tokens
        sources, source = [0] * (n + 1), n
        for k in range(n, -1, -1):
            source = k if cost[k] <= cost[source] else source
            sources[k] = source
        states = [_plain(one, rule), *[_marked(one, rule, k) for k in range(n)]]
        cost = [cost[i] + tokens * own for i, own in zip(sources, states, strict=True)]
        came.append(sources)
    state = cost.index(min(cost))
    least = cost[state]
    lives: list[int | None] = []
    for sources in reversed(came):
        lives.append(state - 1 if state else None)
        state = sources[state]
    return lives[::-1], least


def _as_it_is(candidates: Sequence[Candidate], rule: CacheRule) -> float:
    """The cost of the same tokens in the request as the client wrote it."""
    if rule.style == "breakpoints" and candidates and candidates[-1].implicit:
        return candidates[-1].tokens * _written(candidates[-1], rule, 0)
    before = [0, *(one.tokens for one in candidates)]
    return sum(
        (one.tokens - earlier) * _plain(one, rule) for earlier, one in zip(before, candidates, strict=False)
    )


def _plain(one: Candidate, rule: CacheRule) -> float:
    """The cost of a token that no mark covers; some providers cache requests without any by themselves."""
    again = one.chances[0]
    return again * rule.unmarked_read + (1 - again) if rule.style == "cache_control" else 1.0


def _marked(one: Candidate, rule: CacheRule, life: int) -> float:
    """The cost of a marked token."""
    if one.implicit and life > 0:
        return NEVER
    written = _written(one, rule, life)
    # What is there is read whatever life the mark says: it says the one that pays if the entry is gone after all.
    return rule.read + written / 1000 if one.live else written


def _written(one: Candidate, rule: CacheRule, life: int) -> float:
    again = one.chances[life]
    return again * rule.read + (1 - again) * rule.lives[life].write


def _mark(layout: Layout, rule: CacheRule, one: Candidate, life: int) -> Mark:
    chosen = rule.lives[life]
    part: Part = (
        "tools" if one.position < layout.tools else "system" if one.position < layout.system else "messages"
    )
    return Mark(one.position, chosen.ttl, chosen.seconds, part, one.tokens, tuple(one.chances))


def _with_anchors(layout: Layout, rule: CacheRule, marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Marks that are left go to the last multiples of 15 in the history: whoever saw nothing of the conversation, such
    as another process, finds by them what was written. What they stand on is written anyway."""
    end = marks[-1]
    start = max([mark.position for mark in marks[:-1]] + [layout.system])
    if end.part != "messages":
        return marks
    made = list(marks)
    for position in range((end.position - 1) // ANCHOR_EVERY * ANCHOR_EVERY, start, -ANCHOR_EVERY):
        if len(made) >= rule.breakpoints:
            break
        if layout.markable[position] and layout.sums[position] >= rule.minimum:
            anchor = msgspec.structs.replace(end, position=position, tokens=layout.sums[position])
            made.append(anchor)
    return tuple(sorted(made, key=lambda mark: mark.position))


def _no_gain(candidates: Sequence[Candidate], rule: CacheRule) -> str:
    if not candidates:
        return f"no place for a mark has the {rule.minimum} tokens that this model caches before it"
    best = max(one.chances[-1] for one in candidates)
    return f"a prefix that comes again with chance {best:.2f} would cost more to write than it saves"

"""Guard: direction. From X to Y in whatever order it is said; the way back, converting and translating back differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise

from stratacache.policy.guards import lexicon, relations
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import STOP_STEMS, Reading, Token
from stratacache.policy.guards.relations import Relation, side
from stratacache.policy.guards.stem import stem

_WORDS = lexicon.sections("direction.txt")
_TO = frozenset(("to", "into", "onto", "toward"))
_ENDS = frozenset(stem(word) for word in lexicon.words(_WORDS["ends"]))
_MOVERS = frozenset(stem(word) for word in lexicon.words(_WORDS["movers"]))
_NO_SOURCE = frozenset(stem(word) for word in lexicon.words(_WORDS["no source"]))
_PLACE = r"[^\s,，。?？!！从由往到去至、的]{1,8}?"
_AFTER = r"(?=出发|走|[\s,，。?？!！的怎要多有几坐需火高飞机票路车是开可能如]|$)"
_MOVE = r"(?:(?<![找收看遇得达不拿学受感])到|去|往|至|回|飞往|开往|飞|换成|转成|变成|换|转|变)"
_ZH_FROM_TO = re.compile(
    rf"(?:从|由|自)(?P<left>{_PLACE})(?:出发|坐车|坐高铁|开车|直飞)?{_MOVE}(?P<right>{_PLACE}){_AFTER}"
)
_ZH_TO_FROM = re.compile(
    rf"(?:到|去|往|至|飞往)(?P<right>{_PLACE})(?:怎么|如何)?(?:从|由)(?P<left>{_PLACE}){_AFTER}"
)
_ZH_TO = re.compile(
    r"(?P<left>[A-Za-z0-9.+#]+|[^\s,，。?？!！从由往到去至、的把将]{1,6}?)"
    r"(?:转换成|转换为|转换|转成|转为|转化成|转化为|翻译成|翻译为|换算成|换成|变成|改成|兑换成|兑换|兑|译|化|飞|至|转|换算|换"
    r"|(?<![找收看遇得达不拿学受感])到)"
    rf"(?P<right>[A-Za-z0-9.+#]+|[^\s,，。?？!！的]{{1,6}}?){_AFTER}"
)
_ALIKE = 0.8
_ZH_START = re.compile(r"(?:从|由|自)(\w{2})")
_ZH_GOAL = re.compile(r"(?:(?<![找收看遇得达不拿学受感])到|飞往|前往|往|向|去)(\w{2})")


def directions(reading: Reading) -> tuple[Relation, ...]:
    """The directed relations of a text: left is where it begins."""
    found = chain(_english(reading), _chinese(reading) if reading.has_han else ())
    return tuple(islice(found, relations.MOST))


def _english(reading: Reading) -> Iterator[Relation]:
    tokens = reading.tokens
    came = [at for at, token in enumerate(tokens) if token.stem == "from"][: relations.MOST]
    went = [at for at, token in enumerate(tokens) if token.stem in _TO][: relations.MOST]
    for start in came:
        for goal in went:
            if abs(start - goal) <= relations.NEAR + 2:
                yield Relation("to", 0, side(tokens[start + 1 :], _ENDS), side(tokens[goal + 1 :], _ENDS))
    if not came and (len(tokens) <= 4 or not _MOVERS.isdisjoint(reading.stems)):
        for goal in went:
            source = _before(tokens[:goal])
            if source:
                yield Relation("to", 0, source, side(tokens[goal + 1 :], _ENDS))


def _before(tokens: Sequence[Token]) -> frozenset[str]:
    """What "to" leads away from without a "from": usd to eur, London to Paris."""
    if (
        not tokens
        or tokens[-1].kind == "mark"
        or tokens[-1].stem in _NO_SOURCE
        or tokens[-1].stem in STOP_STEMS
    ):
        return frozenset()
    return frozenset((tokens[-1].stem,))


def _chinese(reading: Reading) -> list[Relation]:
    found = [
        _of(match) for pattern in (_ZH_FROM_TO, _ZH_TO_FROM) for match in pattern.finditer(reading.lower)
    ]
    return found or [_of(match) for match in _ZH_TO.finditer(reading.lower)]


def _of(match: re.Match[str]) -> Relation:
    return Relation("to", 0, _bag(match["left"]), _bag(match["right"]))


def _bag(text: str) -> frozenset[str]:
    return frozenset((text,)) if text.isascii() else frozenset(text)


def check(pair: Pair) -> list[Finding]:
    """Veto when start and goal are exchanged, pass when they agree; nothing when neither can be told."""
    couples = [(one, other) for one in pair.asked.fact(directions) for other in pair.stored.fact(directions)]
    orders = {relations.order(one, other): (one, other) for one, other in couples}
    if "same" in orders:
        return [Finding("direction", "pass", _shown(orders["same"][0]))]
    if "swapped" in orders:
        one, other = orders["swapped"]
        return [Finding("direction", "veto", f"{_shown(one)} / {_shown(other)}")]
    return _one_end(pair)


def ends(reading: Reading) -> frozenset[tuple[str, str]]:
    """Places after a word for start or goal: ("from", "德国"), ("to", "germany")."""
    found = {
        ("from" if token.stem == "from" else "to", following.stem)
        for token, following in pairwise(reading.tokens)
        if token.stem in ("from", *_TO) and following.kind == "word" and following.stem not in STOP_STEMS
    }
    if reading.has_han:
        found.update(("from", match[1]) for match in _ZH_START.finditer(reading.lower))
        found.update(("to", match[1]) for match in _ZH_GOAL.finditer(reading.lower))
    return frozenset(found)


def _one_end(pair: Pair) -> list[Finding]:
    """A transfer to Germany is none from Germany: veto when a place is start here and goal there and the rest alike."""
    asked, stored = pair.asked.fact(ends), pair.stored.fact(ends)
    turned = {"from": "to", "to": "from"}
    for way, place in sorted(asked - stored):
        back = (turned[way], place)
        if back in stored - asked and pair.likeness() >= _ALIKE:
            return [Finding("direction", "veto", f"{way} {place} / {back[0]} {place}")]
    return []


def _shown(relation: Relation) -> str:
    return f"{' '.join(sorted(relation.left))} → {' '.join(sorted(relation.right))}"

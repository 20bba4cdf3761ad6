"""Guard: direction. From X to Y in whatever order it is said; the way back, converting and translating back differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stratacache.policy.guards import relations
from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import STOP_STEMS, Reading, Token
from stratacache.policy.guards.relations import Relation, side

_TO = frozenset(("to", "into", "onto", "toward", "towards"))
_AWAY = frozenset(
    (
        "from",
        "with",
        "by",
        "for",
        "at",
        "on",
        "in",
        "via",
        "through",
        "and",
        "or",
        "is",
        "be",
        "i",
        "you",
        "we",
    )
)
_ENDS = _TO | _AWAY | {"how", "what", "do", "can", "which", "when", "using", "without"}
# What "to" does not lead away from: the verb of "need to go", the noun of "way to".
_NO_SOURCE = frozenset(
    ("how", "need", "want", "way", "have", "like", "go", "get", "try", "be", "us", "abl", "best", "safe", "good", "travel"
    , "move", "fly", "driv", "train", "flight", "bus", "ticket", "due", "relat", "similar", "compar", "thing", "it", "me")
)  # fmt: skip
_PLACE = r"[^\s,，。?？!！从由往到去至、的]{1,8}?"
_AFTER = r"(?=出发|走|[\s,，。?？!！的怎要多有几坐需火高飞机票路车是开可能如]|$)"
_ZH_FROM_TO = re.compile(
    rf"(?:从|由|自)(?P<left>{_PLACE})(?:出发|坐车|坐高铁|开车|飞|直飞)?"
    rf"(?:到|去|往|至|回|飞往|飞|开往|换成|换|转成|转|变成)(?P<right>{_PLACE})(?=[\s,，。?？!！的怎要多有几坐需火高飞机票路车是开可能]|$)"
)
_ZH_TO_FROM = re.compile(
    rf"(?:到|去|往|至|飞往)(?P<right>{_PLACE})(?:怎么|如何)?(?:从|由)(?P<left>{_PLACE})(?=出发|走|坐|[\s,，。?？!！的怎要多有几需火高飞开]|$)"
)
_ZH_TO = re.compile(
    r"(?P<left>[A-Za-z0-9.+#]+|[^\s,，。?？!！从由往到去至、的把将]{1,6}?)"
    r"(?:转换成|转换为|转换|转成|转为|转化成|转化为|翻译成|翻译为|换算成|换成|变成|改成|兑换成|兑换|兑|译|化|到|飞|至|转|换算|换)"
    rf"(?P<right>[A-Za-z0-9.+#]+|[^\s,，。?？!！的]{{1,6}}?){_AFTER}"
)


def directions(reading: Reading) -> tuple[Relation, ...]:
    """The directed relations of a text: left is where it begins."""
    found = list(_english(reading))
    if reading.has_han:
        found += _chinese(reading)
    return tuple(found)


def _english(reading: Reading) -> Iterator[Relation]:
    tokens = reading.tokens
    came = [at for at, token in enumerate(tokens) if token.stem == "from"]
    went = [at for at, token in enumerate(tokens) if token.stem in _TO]
    for start in came:
        for goal in went:
            if abs(start - goal) <= relations.NEAR + 2:
                yield Relation("to", 0, side(tokens[start + 1 :], _ENDS), side(tokens[goal + 1 :], _ENDS))
    if not came:
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
    return []


def _shown(relation: Relation) -> str:
    return f"{' '.join(sorted(relation.left))} → {' '.join(sorted(relation.right))}"

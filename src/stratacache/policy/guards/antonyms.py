"""Guard: opposites. Enabling is not disabling, 注册 not 注销; of two lists of several hundred pairs each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from stratacache.policy.guards import comparison, conditions, lexicon
from stratacache.policy.guards.finding import Finding, Verdict
from stratacache.policy.guards.negators import asks_yes_or_no, negators
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading
from stratacache.policy.guards.stem import stem

_ALIKE = 0.6
"""Likeness of the rest from which on two questions are about one thing."""


class Opposite(NamedTuple):
    """``asked`` stands on one side only, ``stored`` on the other. ``scale``: ends of one scale."""

    asked: str
    stored: str
    scale: bool


def _table(name: str, key: bool) -> dict[str, dict[str, bool]]:
    """Word → its opposites → whether they end one scale. English words as stems joined by spaces."""
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for lines in lexicon.sections(name).values():
        for line in lines:
            left, right = line.removeprefix("?").split("/")
            for one in left.split():
                for other in right.split():
                    a, b = (_stems(one), _stems(other)) if key else (one, other)
                    if a != b:
                        found[a].setdefault(b, line.startswith("?"))
                        found[b].setdefault(a, line.startswith("?"))
    return dict(found)


def _stems(word: str) -> str:
    return " ".join(stem(part) for part in word.split("_"))


ENGLISH = _table("antonyms_en.txt", True)
CHINESE = _table("antonyms_zh.txt", False)
_SMALL_WORDS = frozenset(
    _stems(w) for line in lexicon.sections("antonyms_en.txt")["prepositions"] for w in line.split()
)
_LONGEST = max(len(word) for word in CHINESE)


def _english_words(reading: Reading) -> Iterator[str]:
    previous = ""
    for token in reading.tokens:
        if token.kind != "word":
            previous = ""
            continue
        if not (token.stem == "old" and previous == "year"):
            yield token.stem
        if previous:
            yield f"{previous} {token.stem}"
        for ending in ("er", "est", "r", "st", "ly"):
            if token.stem.endswith(ending) and token.stem[: -len(ending)] in ENGLISH:
                yield token.stem[: -len(ending)]
        previous = token.stem


def _chinese_words(reading: Reading) -> Iterator[str]:
    text = reading.text
    for start in range(len(text)):
        if text[start] > "\u3400":
            for length in range(1, _LONGEST + 1):
                if text[start : start + length] in CHINESE:
                    yield text[start : start + length]


def known_words(reading: Reading) -> frozenset[str]:
    """The words of a text that have opposites in the lexicon."""
    found = {word for word in _english_words(reading) if word in ENGLISH}
    if reading.has_han:
        found.update(_chinese_words(reading))
    return frozenset(found)


def opposites(pair: Pair) -> list[Opposite]:
    """Words of one side whose opposite stands on the other, neither of them on both sides."""
    asked, stored = pair.asked.fact(known_words), pair.stored.fact(known_words)
    only_asked = {word for word in asked - stored if not _ends_both(word, asked)}
    only_stored = {word for word in stored - asked if not _ends_both(word, stored)}
    found = []
    for word in sorted(only_asked):
        for table in (ENGLISH, CHINESE):
            for other, scale in table.get(word, {}).items():
                if other in only_stored and not _within(word, other):
                    found.append(Opposite(word, other, scale))
    return found


def _ends_both(word: str, known: frozenset[str]) -> bool:
    """Pros and cons: who names both ends asks for neither."""
    others = known.intersection((*ENGLISH.get(word, ()), *CHINESE.get(word, ())))
    return any(other not in word and word not in other for other in others)


def _within(word: str, other: str) -> bool:
    """不推荐 holds 推荐: the negation guard's matter unless it says more."""
    return (len(word) == 1 and word in other) or (len(other) == 1 and other in word)


def check(pair: Pair) -> list[Finding]:
    """Veto when the rest is alike and nothing turns the meaning back; a changed negation beside it may do so."""
    found = opposites(pair)
    if not found or comparison.turned(pair) or conditions.turned(pair):
        return []
    best = max(found, key=lambda one: (len(one.asked) + len(one.stored), sorted(one[:2])))
    return [
        Finding(
            "antonyms",
            _judge(pair, found, best),
            f"{_surface(best.asked, pair.asked)} / {_surface(best.stored, pair.stored)}",
        )
    ]


def _judge(pair: Pair, found: list[Opposite], best: Opposite) -> Verdict:
    denied = {best.asked, best.stored} in ({word, f"不{word}"} for word in best[:2])
    if not denied and len(pair.asked.fact(negators)) % 2 != len(pair.stored.fact(negators)) % 2:
        return "unsure"
    if best.scale and (asks_yes_or_no(pair.asked) or asks_yes_or_no(pair.stored)):
        return "unsure"
    if best.scale and _how(pair.asked, best.asked) and _how(pair.stored, best.stored):
        return "unsure"
    asked, stored = _units(best.asked), _units(best.stored)
    if len(best.asked) == 1 or len(best.stored) == 1 or {best.asked, best.stored} & _SMALL_WORDS:
        return "veto" if pair.differ_only_in(asked, stored) else "unsure"
    if _mentions_both(pair, best):
        return "unsure"
    return "veto" if pair.likeness(asked, stored) >= _ALIKE else "unsure"


def _how(reading: Reading, word: str) -> bool:
    """How hard is it, how easy is it: the answer to one tells the other."""
    return f"how {_surface(word, reading).lower()}" in reading.lower


def _surface(word: str, reading: Reading) -> str:
    """The word as the text has it, for its stem is no word."""
    first = word.partition(" ")[0]
    token = next((token for token in reading.tokens if token.stem.startswith(first)), None)
    if word in CHINESE or token is None:
        return word
    return reading.text[token.start :].split(" ")[0].strip("?.,!:;") if " " not in word else word


def _complains(reading: Reading, word: str) -> bool:
    """被冻结了怎么办 wishes for the opposite of what it names."""
    return f"被{word}" in reading.text or (word in reading.text and "了怎么办" in reading.text)


def _mentions_both(pair: Pair, best: Opposite) -> bool:
    """花呗开通了怎么关 has 关 of 关闭, in short: what opens may be named beside what is asked."""
    if best.asked not in CHINESE:
        return False
    if _complains(pair.asked, best.asked) or _complains(pair.stored, best.stored):
        return True
    own, other = set(best.asked), set(best.stored)
    return any(char in pair.asked.text for char in other - own) or any(
        char in pair.stored.text for char in own - other
    )


def _units(word: str) -> list[str]:
    return list(word) if word in CHINESE else word.split()

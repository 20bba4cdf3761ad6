"""What ``stratacache load`` asks: repeated, similar and new questions in a mix; which answer is right is known."""

from __future__ import annotations

import itertools
import random
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stratacache.errors import StrataError
from stratacache.lab import traffic
from stratacache.lab.labelled import LabelledPair

Kind = Literal["repeated", "similar", "new"]

_SUBJECTS = (
    "apples", "bread", "candles", "clouds", "coral", "cotton", "deserts", "dolphins", "earthquakes", "feathers",
    "glaciers", "glass", "honey", "iron", "lightning", "magnets", "mountains", "mushrooms", "opals", "paper",
)  # fmt: skip
_FORMS = (
    ("How are {} formed?", "In what way do {} form?"),
    ("Why are {} important?", "What makes {} important?"),
    ("Where in the world are {} found?", "In which parts of the world are there {}?"),
    ("What are {} used for?", "For what purposes are {} used?"),
    ("Which colours can {} have?", "What are the possible colours of {}?"),
    ("Which animals live near {}?", "What animals are living close to {}?"),
    ("Which words sound like {}?", "What words have a similar sound to {}?"),
)
_CHINESE_SUBJECTS = (
    "苹果",
    "面包",
    "蜡烛",
    "珊瑚",
    "棉花",
    "沙漠",
    "海豚",
    "冰川",
    "玻璃",
    "蜂蜜",
    "磁铁",
    "蘑菇",
)
_CHINESE_FORMS = (
    ("{}是怎么形成的？", "{}是如何形成的？"),
    ("{}有什么用处？", "{}可以用来做什么？"),
    ("世界上哪里有{}？", "在世界哪些地方可以找到{}？"),
)
_NEW = "What does report {} of {} say about {}?"

Share = Annotated[float, Meta(ge=0, le=1)]


class Mix(msgspec.Struct, frozen=True):
    """Shares of what is asked; the rest is new. ``zipf``: exponent of how often the bank's questions are asked."""

    repeated: Share = 0.7
    similar: Share = 0.2
    zipf: Annotated[float, Meta(ge=0, le=4)] = 1.0
    seed: int = 1


class Ask(NamedTuple):
    """``family``: the question in the bank whose answer serves this one; a new question is its own."""

    kind: Kind
    family: str
    text: str


class Bank:
    """Families of questions that one answer serves: the first text of each is the repeated one, others are similar."""

    def __init__(self, families: Sequence[tuple[str, ...]]) -> None:
        if not families:
            raise StrataError("the question bank is empty")
        self.families = families
        self._family_of = {text: family[0] for family in families for text in family}

    def family_of(self, text: str) -> str:
        return self._family_of.get(text, text)


def built_in_bank() -> Bank:
    """Questions in English and Chinese, each in two wordings, many of them close to one another."""
    made = [
        tuple(form.format(subject) for form in forms)
        for forms_of, subjects in ((_FORMS, _SUBJECTS), (_CHINESE_FORMS, _CHINESE_SUBJECTS))
        for forms in forms_of
        for subject in subjects
    ]
    kin: dict[str, list[str]] = {text: [text] for text in traffic.QUESTIONS}
    for other, text in traffic.PARAPHRASES.items():
        kin[text].append(other)
    return Bank([*made, *map(tuple, kin.values())])


def bank_of(pairs: Iterable[LabelledPair]) -> Bank:
    """From labelled pairs: questions that one answer serves are joined, over several pairs too; others stand alone."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            parent[text] = text = parent[parent[text]]
        return text

    for pair in pairs:
        asked, stored = root(pair.asked), root(pair.stored)
        if pair.same and asked != stored:
            parent[stored] = asked
    families: dict[str, list[str]] = {}
    for text in parent:
        families.setdefault(root(text), []).append(text)
    return Bank([tuple(family) for family in families.values()])


def asks(bank: Bank, mix: Mix) -> Iterator[Ask]:
    """Without end; the same for the same seed. What is repeated or similar may be the first of its family."""
    if mix.repeated + mix.similar > 1:
        raise StrataError("the shares of repeated and similar questions add up to more than 1")
    rng = random.Random(mix.seed)  # noqa: S311 - traffic, not secrets
    families = list(bank.families)
    rng.shuffle(families)
    several = [family for family in families if len(family) > 1]
    popular, popular_several = _cumulated(len(families), mix.zipf), _cumulated(len(several), mix.zipf)
    for number in itertools.count():
        draw = rng.random()
        if draw < mix.repeated:
            family = families[_drawn(rng, popular)]
            yield Ask("repeated", family[0], family[0])
        elif draw < mix.repeated + mix.similar and several:
            family = several[_drawn(rng, popular_several)]
            yield Ask("similar", family[0], rng.choice(family[1:]))
        else:
            text = _NEW.format(number, mix.seed, rng.choice(_SUBJECTS))
            yield Ask("new", text, text)


class _Line(msgspec.Struct):
    timestamp: float
    input: str


def read_questions(path: Path, bank: Bank, unit: float) -> list[tuple[float, Ask]]:
    """A trace: JSONL with ``timestamp`` (``unit`` of them to the second) and ``input``, the text; in order of time.

    A text that is in the bank is of its family there, any other is its own. Raises StrataError that names the line.
    """
    found: list[tuple[float, Ask]] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    told = _line(line, f"{path}: line {number}")
                    found.append(
                        (told.timestamp / unit, Ask("repeated", bank.family_of(told.input), told.input))
                    )
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from None
    if not found:
        raise StrataError(f"{path}: no questions in it")
    found.sort(key=lambda one: one[0])
    return [(at - found[0][0], ask) for at, ask in found]


def _line(line: bytes, where: str) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        raise StrataError(f"{where}: {error}") from None


def answerable(asked: Iterable[Ask]) -> list[bool]:
    """For each in turn whether its family was asked before: what a cache that knows all could have answered."""
    seen: set[str] = set()
    found = []
    for ask in asked:
        found.append(ask.family in seen)
        seen.add(ask.family)
    return found


def _cumulated(count: int, exponent: float) -> list[float]:
    return list(itertools.accumulate(1 / rank**exponent for rank in range(1, count + 1)))


def _drawn(rng: random.Random, cumulated: Sequence[float]) -> int:
    return min(bisect(cumulated, rng.random() * cumulated[-1]), len(cumulated) - 1)

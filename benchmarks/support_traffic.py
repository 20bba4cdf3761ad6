"""Generated conversations with a support bot, in which the right answer to every turn is known.

First questions are real ones, handed in by topic. What follows them, how long callers stay and how popular each text
is are assumptions, all of them in this file.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeVar

from stratacache.policy.normalise import normalise_all

T = TypeVar("T")
Language = Literal["en", "zh"]
Kind = Literal["question", "about the topic", "about the last answer", "about the caller", "thanks"]
Topics = Sequence[Sequence[str]]

TOPICS = 77
PHRASINGS = 12
SKEW = 1.0
MOST_TURNS = 12
GOES_ON = 0.75
"""The chance that a caller sends another turn: four turns on average before the bound."""
MATTERS = 0.25
"""How many of a topic's answers depend on a fact that the caller has stated."""
NEXT: dict[Kind, float] = {
    "question": 0.35,
    "about the topic": 0.40,
    "about the last answer": 0.15,
    "thanks": 0.10,
}

TEXTS: dict[Language, dict[Kind, tuple[str, ...]]] = {
    "en": {
        "about the topic": (
            "How much is it?",
            "How long does it take?",
            "How do I do that in the app?",
            "Is there a fee?",
            "Who do I contact about it?",
            "Can I do it abroad?",
            "What do I need for that?",
            "Can I cancel it?",
            "Is there a limit?",
            "Does it work at weekends?",
        ),
        "about the last answer": (
            "Why?",
            "Are you sure?",
            "What does that mean?",
            "Can you explain that again?",
            "And if that does not work?",
            "Can you give me an example?",
        ),
        "about the caller": (
            "I have a business account.",
            "I live outside the UK.",
            "I am under 18.",
            "I joined last week.",
            "I am on the premium plan.",
            "I am asking for my mother, it is her account.",
        ),
        "thanks": ("Thanks", "Thank you!", "OK, thanks", "Great"),
    },
    "zh": {
        "about the topic": (
            "多少钱?",
            "要多久?",
            "怎么操作?",
            "要手续费吗?",
            "找谁办理?",
            "在国外可以吗?",
            "需要什么材料?",
            "可以取消吗?",
            "有限额吗?",
            "周末可以吗?",
        ),
        "about the last answer": (
            "为什么?",
            "确定吗?",
            "什么意思?",
            "能再说一遍吗?",
            "还是不行怎么办?",
            "能举个例子吗?",
        ),
        "about the caller": (
            "我是企业用户",
            "我人在国外",
            "我未满18岁",
            "我上周刚注册",
            "我是会员",
            "我帮我妈妈问的,是她的账户",
        ),
        "thanks": ("谢谢", "好的,谢谢", "好的", "明白了"),
    },
}


@dataclass(frozen=True)
class Turn:
    """One user message; two turns have the same right answer exactly when their ``truth`` is equal."""

    kind: Kind
    text: str
    truth: str


Conversation = tuple[Turn, ...]


class Zipf:
    """Draws items, the n-th most popular in proportion to n^-SKEW."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def pick(self, items: Sequence[T]) -> T:
        weights = list(accumulate((rank + 1) ** -SKEW for rank in range(len(items))))
        return self._chance.choices(items, cum_weights=weights)[0]


def conversations(
    topics: Topics, language: Language, count: int, facts: float, seed: int
) -> Iterator[Conversation]:
    """``count`` conversations; the share ``facts`` of them opens with a fact about the caller."""
    chance = random.Random(f"{seed} {language}")
    for _ in range(count):
        yield tuple(_turns(topics, TEXTS[language], chance, facts))


def _turns(
    topics: Topics, texts: dict[Kind, tuple[str, ...]], chance: random.Random, facts: float
) -> Iterator[Turn]:
    zipf = Zipf(chance)
    fact = zipf.pick(texts["about the caller"]) if chance.random() < facts else ""
    if fact:
        yield Turn("about the caller", fact, f"fact {fact}")
    kind: Kind = "question"
    topic, last = 0, ""
    for _ in range(MOST_TURNS - bool(fact)):
        if kind == "question":
            topic = zipf.pick(range(len(topics)))
            text, last = zipf.pick(topics[topic]), _truth(fact, f"topic {topic}")
        else:
            text = zipf.pick(texts[kind])
            if kind == "about the topic":
                last = _truth(fact, f"topic {topic} {text}")
            elif kind == "about the last answer":
                last = f"{last} > {text}"
        # Thanks need no history, and what is asked after them is still about the answer before.
        yield Turn(kind, text, "thanks" if kind == "thanks" else last)
        if chance.random() >= GOES_ON:
            return
        kind = chance.choices(list(NEXT), weights=list(NEXT.values()))[0]


def _truth(fact: str, asked: str) -> str:
    lot = zlib.crc32(f"{fact}/{asked}".encode()) / 2**32
    return f"{asked}, {fact}" if fact and lot < MATTERS else asked


def english_topics(data: Path, seed: int) -> list[list[str]]:
    """Bank questions by intent (BANKING77), most popular topic first by the seed's lot."""
    groups: dict[str, list[str]] = {}
    for row in _rows(data / "queries/banking77/queries.jsonl"):
        groups.setdefault(row["intent"], []).append(row["text"])
    return _chosen(list(groups.values()), seed)


def chinese_topics(data: Path, seed: int) -> list[list[str]]:
    """Loan questions by the groups that BQ Corpus's "same question" labels join.

    Groups of 6 to 20: in the few larger ones loose labels have chained different questions together.
    """
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while (above := parent.setdefault(text, text)) != text:
            text = above
        return text

    for row in _rows(data / "pairs/bq_corpus/pairs.jsonl"):
        if row["label"] == 1:
            parent[root(row["q1"])] = root(row["q2"])
    groups: dict[str, list[str]] = {}
    for text in list(parent):
        groups.setdefault(root(text), []).append(text)
    return _chosen([group for group in groups.values() if 6 <= len(group) <= 20], seed)


def _chosen(groups: list[list[str]], seed: int) -> list[list[str]]:
    """``TOPICS`` groups of at most ``PHRASINGS`` texts, no text in two of them: labels are not free of errors."""
    chance = random.Random(seed)
    seen: set[str] = set()
    chosen = []
    for group in chance.sample(groups, min(TOPICS, len(groups))):
        texts = {normalise_all([text])[0]: text for text in group}
        own = [text for form, text in texts.items() if form not in seen]
        seen |= texts.keys()
        chosen.append(chance.sample(own, min(PHRASINGS, len(own))))
    return [group for group in chosen if group]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)

"""The features of a question: named signals from lexicons, and hashed n-grams of its words or characters."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import Final
from unicodedata import normalize
from zlib import crc32

from stratacache.policy.cacheability.lexicon import PATTERNS

LATE: Final = 5
"""Words before a pronoun from which on it may well stand for one of them."""

BUCKETS: Final = 16_384
"""Hashed n-grams share so many weights; a power of two."""

# Each signal is one weight: it carries over to words and domains that were not in the training questions.
SIGNALS: Final = (
    *PATTERNS,
    "words_2",
    "words_3",
    "words_4",
    "words_6",
    "words_9",
    "words_14",
    "words_many",
    "chinese",
    "pronoun_early",
    "pronoun_late",
    "names",
)
_COMPILED: Final = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}
# What is asked of code or of a thing that many people have is no work of art and no record of the one who asks.
_HIDES: Final = {
    "code_request": frozenset({"creative", "work", "act"}),
    "mine_device": frozenset({"mine", "i_did", "i_state"}),
    "policy_i": frozenset({"i_did", "mine", "own_name"}),
    "bare_question": frozenset({"definition", "how_to", "starts_how", "generic_i", "wh_fact", "policy"}),
}
_NUMBER_OF: Final = {name: number for number, name in enumerate(SIGNALS)}
_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[\u3400-\u9fff]|\d+|[?!]")
_LENGTHS: Final = (
    (2, "words_2"),
    (3, "words_3"),
    (4, "words_4"),
    (6, "words_6"),
    (9, "words_9"),
    (14, "words_14"),
)
# "Is it safe to …", "how long does it take", "are there": these stand for nothing that was said before, and neither do
# "our solar system" and a game's name (我的世界, Minecraft) speak of the one who asks.
_EXPLETIVE = re.compile(
    r"\b(?:(?:is|was|does|will|would|can|if|that|think|makes?|why is|when is|how is) )?it(?:'s| is| was| be)? "
    r"(?:really |always |ever |ok |okay |still |too |so )?"
    r"(?:takes?|normal|rude|wrong|true|safe|legal|illegal|possible|impossible|necessary|better|best|worth|ok|okay|bad"
    r"|good|hard|easy|difficult|cheaper|healthy|dangerous|like (?:to|for|being)|feel (?:like )?(?:to|being)"
    r"|mean (?:to|when|if)|costs? to|happen|matter|important|called|rains?|snows?"
    r"|[a-z]{3,}er|(?:\w+ ){1,2}to)\b(?: that\b)?"
    r"|\b(?:is|are|was|were|will|has|have) there\b|\bthere(?:'s| is| are| was| were| will be)\b|那(?:么|些)"
    r"|\bour (?=solar|planet|galaxy|bod|society|world|universe|ancestors|brain)|我的世界"
)
_RELATIVE = re.compile(r"\b(?!does|is|was|did|do|about|of|than|like|for|with)[a-z]{3,} that (?=[a-z]+ [a-z])")
_PRONOUN = re.compile(
    r"\b(?:it|its|this|that|these|those|they|them|their|he|him|his|she|her|there)\b"
    r"|(?:这|那)(?!些年|周|月)|它|(?<![吉其])他(?!国|人)|她"
)
_MAKE: Final = frozenset(
    {"write", "create", "generate", "build", "make", "design", "give", "implement", "写", "编"}
)
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-zA-Z]+|[“”《》\"]")


def features_of(question: str) -> tuple[list[int], list[int]]:
    """``(signals, ngrams)``: numbers into :data:`SIGNALS`, and distinct buckets below :data:`BUCKETS`."""
    plain = " ".join(normalize("NFKC", question).replace("’", "'").split())
    text = _RELATIVE.sub("which ", _EXPLETIVE.sub(" be ", plain.lower()))
    found = {name for name, pattern in _COMPILED.items() if pattern.search(text)}
    for name, hidden in _HIDES.items():
        if name in found and not (name == "mine_device" and "mine_record" in found):
            found -= hidden
    tokens = _tokens(text, coding="code_request" in found)
    signals = [_NUMBER_OF[name] for name in PATTERNS if name in found]
    length = sum(word not in "?!" for word in tokens)
    chinese = any("\u3400" <= token <= "\u9fff" for token in tokens)
    size = (length + 1) // 2 if chinese else length
    extra = [next((name for limit, name in _LENGTHS if size <= limit), "words_many")]
    if chinese:
        extra.append("chinese")
    pronoun = _PRONOUN.search(text)
    if pronoun is not None:
        before = pronoun.start() / (2 if chinese else 5)
        extra.append("pronoun_early" if before < LATE else "pronoun_late")
    if _NAME.search(plain):
        extra.append("names")
    signals += [_NUMBER_OF[name] for name in extra]
    pairs = (f"& {a} {b}" for a, b in combinations(signals, 2))
    return signals, sorted(_buckets(tokens) | {crc32(pair.encode()) % BUCKETS for pair in pairs})


def _tokens(text: str, *, coding: bool) -> list[str]:
    """Words and Chinese characters.

    A pronoun that has a clause before it to stand for is marked, and so is *write* where code is to be written.
    """
    tokens = ["0" if token.isdigit() else token for token in _TOKEN.findall(text)]
    return [
        f"{token}~" if (place >= LATE and _PRONOUN.fullmatch(token)) or (coding and token in _MAKE) else token
        for place, token in enumerate(tokens)
    ]


def _buckets(tokens: list[str]) -> set[int]:
    """Words and pairs anywhere, up to four words at the beginning, the last two; the same of Chinese characters."""
    grams = [*tokens, *(f"{a} {b}" for a, b in pairwise(tokens))]
    grams += [f"{a} {b} {c}" for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False)]
    grams += ["^ " + " ".join(tokens[:count]) for count in range(1, min(len(tokens), 4) + 1)]
    grams += [" ".join(tokens[-count:]) + " $" for count in range(1, min(len(tokens), 3) + 1)]
    return {crc32(gram.encode()) % BUCKETS for gram in grams}

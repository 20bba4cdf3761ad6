"""The questions of the cacheability classifier: those written by hand, and more made of templates for training."""

from __future__ import annotations

import random
import re
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
PER_TEMPLATE = 12
TEMPLATE_WEIGHT = 0.3
_SLOT = re.compile(r"\{(\w+)\}")


class Row(msgspec.Struct, frozen=True):
    """One labelled question; ``split`` is ``train``, ``test`` or ``fresh``, and a domain is in one split only."""

    text: str
    kind: str
    risk: str
    stands_alone: bool
    domain: str
    split: str
    language: str = ""
    weight: float = 1.0


class Templates(msgspec.Struct, frozen=True):
    """``templates`` are ``kind|risk|alone or leans|text with {slots}``; ``slots`` are what to fill them with."""

    slots: dict[str, list[str]]
    templates: list[str]


def hand_written() -> list[Row]:
    """Every hand-written question of both languages."""
    rows = []
    for language in ("en", "zh"):
        for line in (HERE / f"questions_{language}.jsonl").read_text("utf-8").splitlines():
            row = msgspec.json.decode(line, type=Row)
            rows.append(msgspec.structs.replace(row, language=language))
    return rows


def templated(seed: int) -> list[Row]:
    """Templates with their slots filled at random; they count less than what was written as it stands."""
    chosen = random.Random(seed)
    rows = []
    for language in ("en", "zh"):
        source = msgspec.json.decode((HERE / f"templates_{language}.json").read_bytes(), type=Templates)
        for template in source.templates:
            kind, risk, alone, text = template.split("|", 3)
            filled = {
                _SLOT.sub(lambda slot: chosen.choice(source.slots[slot[1]]), text)  # noqa: B023
                for _ in range(PER_TEMPLATE)
            }
            for each in sorted(filled):
                row = Row(each, kind, risk, alone == "alone", "template", "train", language, TEMPLATE_WEIGHT)
                rows.append(row)
    return rows

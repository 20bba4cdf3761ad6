"""The questions of the cacheability classifier: those written by hand, and more made of templates for training."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
PER_TEMPLATE = 12
TEMPLATE_WEIGHT = 0.3
HELD_OUT = "853582cc060431ae28c56a61aa44479aac91a6aaed935ae597224dda1e30811c"
DEVELOPMENT = "b161f4a5b37a0e839754679c64938b37ce8cf4d21ef1913f106e0021a1d42ccc"
"""What :func:`digest_of` says of both sets: whoever changes one of their questions gives up all earlier figures."""

_SLOT = re.compile(r"\{(\w+)\}")


class Row(msgspec.Struct, frozen=True):
    """One labelled question; ``split`` is ``train``, ``development`` or ``test``, and a domain is in one split only.

    Development questions were held out once, and are looked at while tuning; those of ``test`` for the final figure.
    """

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


def plain(text: str) -> str:
    """What makes two questions the same: letters and digits, lower case."""
    return "".join(char for char in text.lower() if char.isalnum())


def digest_of(rows: Iterable[Row]) -> str:
    """SHA-256 of texts and labels, whatever their order."""
    lines = sorted(f"{row.language}|{row.kind}|{row.risk}|{row.stands_alone}|{row.text}" for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def hand_written() -> list[Row]:
    """Every hand-written question of both languages."""
    rows = []
    for language in ("en", "zh"):
        for line in (HERE / f"questions_{language}.jsonl").read_text("utf-8").splitlines():
            row = msgspec.json.decode(line, type=Row)
            rows.append(msgspec.structs.replace(row, language=language))
    return rows


def templated(seed: int) -> list[Row]:
    """Templates with their slots filled at random, no held-out question among them; they count less."""
    chosen = random.Random(seed)
    held_out = {plain(row.text) for row in hand_written() if row.split != "train"}
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
                if plain(each) not in held_out:
                    row = Row(each, kind, risk, alone == "alone", "template", "train", language)
                    rows.append(msgspec.structs.replace(row, weight=TEMPLATE_WEIGHT))
    return rows

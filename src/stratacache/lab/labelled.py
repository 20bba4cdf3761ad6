"""Reads labelled pairs of questions: strictly, one JSON object a line, with the line's number in every complaint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from stratacache.errors import StrataError
from stratacache.types import JSON

MAX_PAIRS = 500_000
MAX_CHARS = 8192  # of a question; the verifier reads no longer ones
_QUESTIONS = (("q1", "q2"), ("asked", "stored"))
_LABELS = ("label", "same", "right")
_YES_NO = {1: True, 0: False, "yes": True, "no": False}  # JSON's true and false equal 1 and 0


class LabelledPair(msgspec.Struct, frozen=True):
    """Two questions and whether one answer serves both. ``language`` is what the file says, "" when it does not."""

    asked: str
    stored: str
    same: bool
    scene: str = "default"
    language: str = ""


def read_labelled(path: Path) -> list[LabelledPair]:
    """The pairs of a JSONL file, blank lines left out.

    Raises:
        StrataError: it cannot be read, or a line is wrong: names the line and what is wrong.
    """
    pairs: list[LabelledPair] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    pairs.append(_pair(line, f"{path}, line {number}"))
                if len(pairs) > MAX_PAIRS:
                    raise StrataError(f"{path} has more than {MAX_PAIRS:,} pairs; give a sample of them")
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from None
    if not pairs:
        raise StrataError(f"{path} holds no pair")
    return pairs


def from_gateway(labels: Iterable[JSON]) -> list[LabelledPair]:
    """The pairs of a gateway's ``/admin/labels``. Raises StrataError when they are none."""
    return [of_object(one, f"label {number}") for number, one in enumerate(labels, start=1)]


def _pair(line: bytes, where: str) -> LabelledPair:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StrataError(f"{where}: not JSON in UTF-8: {error}") from None
    return of_object(value, where)


def of_object(value: JSON, where: str) -> LabelledPair:
    """One pair. Raises StrataError that begins with ``where``."""
    if not isinstance(value, dict):
        raise StrataError(f'{where}: must be an object such as {{"q1": "…", "q2": "…", "label": 1}}')
    names = next((two for two in _QUESTIONS if two[0] in value or two[1] in value), _QUESTIONS[0])
    asked, stored = (_text(value, name, where) for name in names)
    scene, language = value.get("scene", "default"), value.get("language", "")
    if not isinstance(scene, str) or not isinstance(language, str):
        raise StrataError(f"{where}: scene and language must be texts")
    return LabelledPair(asked, stored, _label(value, where), scene or "default", language)


def _text(value: Mapping[str, JSON], name: str, where: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text.strip():
        raise StrataError(f"{where}: {name} must be a question")
    if len(text) > MAX_CHARS:
        raise StrataError(f"{where}: {name} has more than {MAX_CHARS} characters")
    return text


def _label(value: Mapping[str, JSON], where: str) -> bool:
    given = [name for name in _LABELS if name in value]
    if len(given) != 1:
        raise StrataError(f"{where}: needs one of {', '.join(_LABELS)}: whether one answer serves both")
    label = value[given[0]]
    known = _YES_NO.get(label) if isinstance(label, (bool, int, str)) else None
    if known is None:
        raise StrataError(f"{where}: {given[0]} must be 1 or 0, true or false, yes or no")
    return known

"""What a deployment has to carry, as capacity is planned from: given by name, in a file, or measured in a log."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from stratacache.errors import SettingsError, StrataError
from stratacache.settings.units import size

SIZES = ("gpu_memory", "weights", "store_memory")
MOST_LINES = 5_000_000

_Count = Annotated[int, Meta(ge=1, le=10**12)]
_Amount = Annotated[float, Meta(gt=0, le=1e12)]


class Needs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traffic and machines; sizes in bytes, None when not known.

    ``prompt_tokens`` and ``answer_tokens`` are means of a request, ``longest`` the most of both that must fit.
    ``max_tokens``: what clients ask for, on average. ``concurrency``: requests at the model at once, at the peak.
    ``requests_per_second`` at the peak, ``token_seconds`` that a model takes for each token of one answer.
    ``question_bank``: how many different questions are worth knowing. ``cores`` and ``store_memory``: what there is.
    """

    gpu_memory: _Count | None = None
    gpus: _Count = 1
    weights: _Count | None = None
    kv_dtype: str = "auto"
    prompt_tokens: _Amount = 1024.0
    answer_tokens: _Amount = 256.0
    longest: _Count | None = None
    max_tokens: _Amount | None = None
    concurrency: _Count | None = None
    requests_per_second: _Amount = 1.0
    token_seconds: _Amount = 0.03
    daily_users: _Count = 1000
    question_bank: _Count = 10_000
    dimension: _Count = 512
    cores: _Count | None = None
    store_memory: _Count | None = None

    @property
    def at_once(self) -> int:
        """Requests at the model at once: as given, or by Little's law rate × duration of an answer."""
        if self.concurrency is not None:
            return self.concurrency
        return max(1, math.ceil(self.requests_per_second * self.answer_tokens * self.token_seconds))


def needs_of(*sources: Mapping[str, Any]) -> Needs:
    """The fields of all sources, the last one that names a field counts. Raises SettingsError that names the field."""
    merged: dict[str, Any] = {}
    for source in sources:
        merged.update({name: value for name, value in source.items() if value is not None})
    for name in SIZES:
        if name in merged:
            try:
                merged[name] = size(merged[name])
            except ValueError as error:
                raise SettingsError(f"{name}: {error}") from None
    try:
        return msgspec.convert(merged, Needs)
    except msgspec.ValidationError as error:
        what, _, name = str(error).rpartition(" - at `$.")
        raise SettingsError(f"{name.rstrip('`')}: {what}" if what else str(error)) from None


def read_needs(path: Path) -> dict[str, Any]:
    """The fields in a YAML or JSON file, not yet checked. Raises SettingsError."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: not a mapping of names to values")
    return value


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Line(msgspec.Struct):
    """One request: usage as OpenAI tells it, or the fields of Mooncake's trace."""

    usage: _Usage | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_length: int | None = None
    output_length: int | None = None
    max_tokens: int | None = None
    timestamp: float | None = None


def measure_log(path: Path, unit: float = 1.0) -> dict[str, Any]:
    """Needs as a log of requests shows them: mean and longest lengths, the busiest second's rate over a minute.

    JSONL; a line has ``prompt_tokens`` and ``completion_tokens``, by themselves or in ``usage``, and may have
    ``max_tokens`` and ``timestamp`` (``unit`` of them to the second). Raises StrataError.
    """
    prompts, answers, asked, minutes, longest = 0, 0, [0, 0], Counter[int](), Counter[int]()
    lines = 0
    for line in _lines(path):
        prompt, answer = _lengths(line)
        if prompt is None or answer is None:
            continue
        lines += 1
        prompts, answers = prompts + prompt, answers + answer
        longest[prompt + answer] += 1
        if line.max_tokens is not None:
            asked = [asked[0] + line.max_tokens, asked[1] + 1]
        if line.timestamp is not None:
            minutes[int(line.timestamp / unit // 60)] += 1
    if not lines:
        raise StrataError(f"{path}: no line has prompt_tokens and completion_tokens")
    found: dict[str, Any] = {
        "prompt_tokens": max(1.0, prompts / lines),
        "answer_tokens": max(1.0, answers / lines),
        "longest": max(1, _quantile(longest, lines, 0.99)),
    }
    if asked[1]:
        found["max_tokens"] = asked[0] / asked[1]
    if minutes:
        found["requests_per_second"] = max(minutes.values()) / 60
    return found


def _lines(path: Path) -> Any:
    decoder = msgspec.json.Decoder(_Line)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number > MOST_LINES:
                    raise StrataError(f"{path} has more than {MOST_LINES:,} lines; give a part of it")
                if line.strip():
                    try:
                        yield decoder.decode(line)
                    except msgspec.DecodeError as error:
                        raise StrataError(f"{path}: line {number}: {error}") from None
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from None


def _lengths(line: _Line) -> tuple[int | None, int | None]:
    usage = line.usage or _Usage()
    prompt = next(
        (n for n in (usage.prompt_tokens, line.prompt_tokens, line.input_length) if n is not None), None
    )
    answer = next(
        (n for n in (usage.completion_tokens, line.completion_tokens, line.output_length) if n is not None),
        None,
    )
    return prompt, answer


def _quantile(counts: Counter[int], total: int, share: float) -> int:
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= share * total:
            break
    return value

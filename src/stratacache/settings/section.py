"""What the sections of the settings are made of: their base, and values with bounds and words for both."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Meta

from stratacache.settings.units import DURATION_FORM, SIZE_FORM

KIB, MIB, GIB = 2**10, 2**20, 2**30
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def meta(text: str, expect: str, **bounds: Any) -> Meta:
    """``expect`` completes the sentence "must be …" in an error message."""
    return Meta(description=text, extra={"expect": expect}, **bounds)


def duration(text: str, low: float, high: float = 366 * DAY) -> Meta:
    # The bounds are checked after the text form became a number of seconds.
    schema = {"examples": ["30s", "10m", 2.5]}
    expect = f"{DURATION_FORM}, from {low:g} s to {high:g} s"
    extra = {"unit": "seconds", "expect": expect}
    return Meta(description=f"{text} (seconds)", ge=low, le=high, extra=extra, extra_json_schema=schema)


def size(text: str, low: int, high: int = 2**50) -> Meta:
    schema = {"examples": ["64MiB", "1GB", 1048576]}
    extra = {"unit": "bytes", "expect": f"{SIZE_FORM}, from {low} to {high} bytes"}
    return Meta(description=f"{text} (bytes)", ge=low, le=high, extra=extra, extra_json_schema=schema)


WORD = "1 to 64 letters, digits, '.', '_' or '-'"
WORD_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
MAYBE_WORD_PATTERN = r"^[A-Za-z0-9._-]{0,64}$"
MODEL = "a model name or pattern: 1 to 256 characters, no spaces"
MODEL_PATTERN = r"^\S{1,256}$"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping of the configuration file. Unknown keys are refused by ``settings.decode``."""

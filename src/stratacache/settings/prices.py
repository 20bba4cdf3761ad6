"""What models cost: the price table of a file, and the one that is packaged as an example."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from stratacache.settings.section import MODEL, MODEL_PATTERN, Section, meta

PACKAGED: Final = Path(__file__).with_name("prices.yaml")


def _dollars(text: str) -> Meta:
    expect = "a number from 0 to 100000: US dollars for a million tokens"
    return meta(f"{text}, in US dollars for a million tokens", expect, ge=0, le=100_000)


def _factor(text: str) -> Meta:
    return meta(
        f"{text} costs this many times the price of an ordinary one", "a number from 0 to 100", ge=0, le=100
    )


class Price(Section, frozen=True, kw_only=True):
    """What one model costs, or all that match a pattern."""

    model: Annotated[str, meta("model name or pattern with * ? []", MODEL, pattern=MODEL_PATTERN)]
    input: Annotated[float, _dollars("prompt tokens")]
    output: Annotated[float, _dollars("completion tokens")]
    read: Annotated[float, _factor("a prompt token that the provider's cache read")] = 1.0
    write_5m: Annotated[float, _factor("a prompt token written to that cache for five minutes")] = 1.0
    write_1h: Annotated[float, _factor("one written for an hour")] = 1.0
    source: Annotated[str, Meta(description="where the prices stand")] = ""
    date: Annotated[datetime.date | None, meta("when they stood there", "a date such as 2026-12-03")] = None


class PriceFile(Section, frozen=True, kw_only=True):
    """A file of prices. The first row whose ``model`` fits counts."""

    prices: Annotated[tuple[Price, ...], Meta(description="one row a model or pattern")]

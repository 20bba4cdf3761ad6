"""What calls cost and what answers from a tier were worth, in US dollars, by a price table. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stratacache.settings import Price, matches
from stratacache.types import Usage

_MILLION = 1_000_000
_MAX_KNOWN = (
    1000  # model names whose row is remembered; clients choose them where an upstream serves a pattern
)


class Bill(msgspec.Struct, frozen=True, gc=False):
    """``spent`` on a call; of it the ``write_premium``, what writing to the provider's cache cost beyond the ordinary
    price. ``read_saved``: what reading from it took off. ``prompt_at_list``: the prompt without that premium."""

    spent: float
    write_premium: float
    read_saved: float
    prompt_at_list: float


class PriceTable:
    """Prices by model; the first row that fits counts, and a model without one has no price: that is not 0."""

    def __init__(self, prices: Sequence[Price], examples: Sequence[Price] = ()) -> None:
        """``examples`` come after the others, and are told apart."""
        self._prices = (*prices, *examples)
        self._examples = frozenset(examples)
        self._known: dict[str, Price | None] = {}

    def of(self, model: str) -> Price | None:
        """The row for ``model``, None when there is none."""
        if model in self._known:
            return self._known[model]
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        price = next((one for one in self._prices if matches(model, one.model)), None)
        self._known[model] = price
        return price

    def is_example(self, price: Price) -> bool:
        """Whether nobody has said that this is what the model costs here."""
        return price in self._examples


def bill(price: Price, usage: Usage) -> Bill | None:
    """What a call costs; None when its prompt was not counted. An uncounted part counts as fresh, the dearer one,
    and an uncounted completion as nothing."""
    if usage.prompt is None or usage.fresh is None:
        return None
    each = price.input / _MILLION
    read, short, long = usage.cached_prompt or 0, usage.written_5m or 0, usage.written_1h or 0
    listed = (usage.fresh + short + long + read * price.read) * each
    premium = (short * (price.write_5m - 1) + long * (price.write_1h - 1)) * each
    return Bill(
        spent=listed + premium + (usage.completion or 0) * price.output / _MILLION,
        write_premium=premium,
        read_saved=read * (1 - price.read) * each,
        prompt_at_list=listed,
    )


def worth(price: Price, prompt: int, completion: int, *, share: float = 1.0) -> float:
    """What answering cost that was not asked for. ``share``: of the list price that the model's prompts cost on
    average, since the provider's cache would have read some of this one too."""
    return (prompt * price.input * share + completion * price.output) / _MILLION

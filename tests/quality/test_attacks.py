"""Crafted questions catch no victim: a part of the attack suite, with the packaged models and default settings."""

from __future__ import annotations

from benchmarks.quality.attack_texts import attacks, victims
from benchmarks.quality.attacks import GOAL, Result, run

EVERY = 29  # texts; a prime, so that every template meets some victims


async def test_next_to_nobody_is_hijacked_at_default_settings() -> None:
    crafted = list(attacks(victims()))[::EVERY]
    result = await run(crafted, 0, apart=False)
    assert len(crafted) >= 80
    assert result.share <= GOAL, result.found
    assert sum(result.live.values()) <= GOAL * len(crafted)
    assert sum(result.honest) >= 0.2 * 2 * result.questions  # a cache that answers nobody is safe too


async def test_corroboration_keeps_one_callers_answers_from_others_until_they_agree() -> None:
    crafted = list(attacks(victims()))[3 :: EVERY * 3]
    result: Result = await run(crafted, 1, apart=True)
    assert result.share == 0
    assert sum(result.live.values()) == 0
    assert result.honest[1] > 0  # the first friend's answer is the corroboration that the second needs

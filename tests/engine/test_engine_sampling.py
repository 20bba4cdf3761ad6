"""Sampling: greedy, seeds, and distributions that follow temperature, top-k and top-p."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.engine.engine_kit import Answers, tiny_engine, words

from stratacache.engine.sampling import Sampler
from stratacache.engine.sequence import Generation, Sampling, Sequence

LOGITS = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))


def one(name: str, sampling: Sampling) -> Sequence:
    return Sequence(Generation(name, (1,), sampling=sampling))


def draw(sampling: Sampling, count: int = 2000) -> dict[int, float]:
    sampler = Sampler(seed=1)
    found = Counter(sampler.sample(LOGITS[None].clone(), [one("x", sampling)])[0][0] for _ in range(count))
    return {token: number / count for token, number in found.items()}


def test_temperature_zero_is_greedy() -> None:
    assert draw(Sampling(temperature=0), 20) == {0: 1.0}


def test_temperature_one_draws_the_models_own_distribution() -> None:
    assert draw(Sampling()) == pytest.approx({0: 0.5, 1: 0.25, 2: 0.15, 3: 0.1}, abs=0.03)


def test_temperature_sharpens() -> None:
    squares = [0.5**2, 0.25**2, 0.15**2, 0.1**2]
    wanted = {token: value / sum(squares) for token, value in enumerate(squares)}
    assert draw(Sampling(temperature=0.5)) == pytest.approx(wanted, abs=0.03)


def test_top_k_keeps_the_k_likeliest() -> None:
    assert draw(Sampling(top_k=2)) == pytest.approx({0: 2 / 3, 1: 1 / 3}, abs=0.03)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.5, {0}), (0.51, {0, 1}), (0.8, {0, 1, 2}), (0.0, {0}), (1.0, {0, 1, 2, 3})]
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(top_p: float, kept: set[int]) -> None:
    assert set(draw(Sampling(top_p=top_p))) == kept


def test_top_p_counts_within_top_k() -> None:
    assert set(draw(Sampling(top_k=2, top_p=0.6))) == {0}


def test_a_row_never_takes_its_neighbours_settings() -> None:
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    sampler = Sampler(seed=1)
    for _ in range(50):
        pair = [one("a", Sampling(top_k=1)), one("b", Sampling(temperature=0))]
        assert sampler.sample(rows.clone(), pair)[0] == [0, 3]


def answer(seed: int | None, *others: Generation, **changes: int) -> list[int]:
    request = Generation("x", words(9), 10, Sampling(temperature=1.0, seed=seed), ignore_eos=True)
    return Answers(tiny_engine(**changes)).run(request, *others).tokens["x"]


def test_a_seed_gives_the_same_answer_alone_in_company_and_after_preemption() -> None:
    company = [
        Generation(str(index), words(7, index), 12, Sampling(seed=index), ignore_eos=True)
        for index in range(3)
    ]
    alone = answer(5)
    assert answer(5) == alone
    assert answer(5, *company) == alone
    assert answer(5, *company, num_blocks=9) == alone
    assert answer(6) != alone


def test_finished_and_aborted_requests_leave_no_random_stream() -> None:
    engine = tiny_engine()
    Answers(engine).run(Generation("x", words(5), 3, Sampling(seed=1)))
    engine.add(Generation("y", words(5), 30, Sampling(seed=1), ignore_eos=True))
    engine.step()
    engine.abort("y")
    assert engine._sampler._streams == {}

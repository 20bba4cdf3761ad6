"""Several answers to one prompt: forked after one prefill, copied on write, each as if it were alone."""

from __future__ import annotations

import pytest
from tests.engine.engine_kit import Answers, expected, greedy, step, tiny_engine, words

from stratacache.engine.errors import InvalidRequest
from stratacache.engine.sequence import Generation, Sampling


@pytest.mark.parametrize("length", [7, 8, 9])
def test_greedy_answers_are_equal_and_right(length: int) -> None:
    engine = tiny_engine()
    answers = Answers(engine).run(greedy("x", words(length), 9, n=4))
    assert list(answers.tokens.values()) == [expected(words(length), 9)] * 4
    assert engine.stats().forks == 3


def test_the_prompt_is_computed_once_and_its_blocks_are_shared() -> None:
    engine = tiny_engine()
    engine.add(greedy("x", words(9), 6, n=4))
    step(engine)
    assert (engine.stats().computed_tokens, engine.stats().blocks_active) == (9, 3)
    step(engine)
    assert engine.stats().blocks_active == 2 + 4  # the partial block was copied for three of four
    Answers(engine).run()


def test_equal_blocks_that_forks_finish_are_kept_once() -> None:
    engine = tiny_engine()
    engine.add(greedy("x", words(4), 20, n=4))
    for _ in range(9):
        step(engine)
    assert engine.stats().blocks_active == 3  # 12 computed tokens of each, all equal
    Answers(engine).run()


def seeded(n: int, tokens: int = 10, temperature: float = 1.0, name: str = "x") -> Generation:
    return Generation(name, words(9), tokens, Sampling(temperature, seed=5), ignore_eos=True, n=n)


def test_each_answer_has_a_stream_of_its_own() -> None:
    four = Answers(tiny_engine()).run(seeded(4)).tokens
    assert len(set(map(tuple, four.values()))) == 4
    assert Answers(tiny_engine()).run(seeded(2)).tokens == {name: four[name] for name in ("x", "x/1")}
    assert Answers(tiny_engine()).run(seeded(1)).tokens == {"x": four["x"]}


def test_fork_with_no_free_block() -> None:
    """Nothing is copied at the fork itself; whoever then finds no block is preempted and computed again."""
    engine = tiny_engine(num_blocks=5)
    answers = Answers(engine).run(seeded(4))
    assert answers.tokens == Answers(tiny_engine()).run(seeded(4)).tokens
    assert engine.stats().preemptions > 0


def test_abort_of_a_forked_request_leaks_nothing() -> None:
    engine = tiny_engine(num_blocks=6)
    engine.add(seeded(4))
    for _ in range(4):
        step(engine)
    assert engine.abort("x")
    engine.check()
    assert not engine.has_work
    assert engine.stats().blocks_active == 0


def test_one_answer_may_end_before_the_others() -> None:
    engine = tiny_engine()
    engine.add(greedy("x", words(9), 6, n=3))
    answers = Answers(engine)
    answers.step()
    answers.step()
    engine.abort_one("x", 0)
    engine.check()
    answers.run()
    assert [len(answers.tokens[name]) for name in ("x", "x/1", "x/2")] == [2, 6, 6]
    assert answers.tokens["x/2"] == expected(words(9), 6)


def test_answers_count_for_the_batch_before_they_exist() -> None:
    engine = tiny_engine(max_running=4, token_budget=4)
    engine.add(greedy("many", words(9), 3, n=3))
    engine.add(greedy("two", words(9, 1), 3, n=2))
    step(engine)
    assert (engine.stats().running, engine.stats().waiting) == (1, 1)
    Answers(engine).run()


def test_more_answers_than_the_batch_holds_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="'n' can be 8 at most"):
        tiny_engine().add(greedy("x", words(9), 3, n=9))


def test_without_a_prefix_cache_forks_share_as_well() -> None:
    engine = tiny_engine(prefix_cache=False)
    answers = Answers(engine).run(greedy("x", words(10), 7, n=3))
    assert list(answers.tokens.values()) == [expected(words(10), 7)] * 3

"""Faults that other engines had, each a test here: answers must equal the oracle's and nothing may leak."""

from __future__ import annotations

import pytest
from tests.engine.engine_kit import Answers, expected, greedy, step, tiny_engine, words

from stratacache.engine.errors import ContextLengthExceeded, Overloaded
from stratacache.engine.sequence import Generation

BLOCK = 4


@pytest.mark.parametrize("length", [BLOCK, 2 * BLOCK, 4 * BLOCK])
def test_prompt_of_an_exact_multiple_of_the_block_size_fully_cached(length: int) -> None:
    engine, prompt = tiny_engine(), words(length)
    Answers(engine).run(greedy("cold", prompt, 6))
    warm = Answers(engine).run(greedy("warm", prompt, 6))
    assert warm.tokens["warm"] == expected(prompt, 6)
    assert warm.cached["warm"] == length - BLOCK  # the last block is recomputed: its logits are needed


@pytest.mark.parametrize("share", [True, False])
def test_two_identical_prompts_in_one_batch(share: bool) -> None:
    engine, prompt = tiny_engine(token_budget=64, share_inflight=share), words(11)
    answers = Answers(engine).run(greedy("a", prompt, 6), greedy("b", prompt, 6))
    assert answers.tokens == {"a": expected(prompt, 6), "b": expected(prompt, 6)}
    assert (answers.cached["a"], answers.cached["b"]) == (0, 8 if share else 0)


def test_partial_match_never_exposes_another_requests_tail() -> None:
    engine, shared = tiny_engine(), words(BLOCK + 2)
    first, second = (*shared, 50, 51, 52), (*shared, 60, 61, 62)
    answers = Answers(engine).run(greedy("a", first, 5))
    answers.run(greedy("b", second, 5))
    assert answers.cached["b"] == BLOCK  # not BLOCK + 2: the half-equal block belongs to "a"
    assert answers.tokens["b"] == expected(second, 5)


def test_a_block_that_is_not_yet_computed_is_never_matched() -> None:
    engine, prompt = tiny_engine(token_budget=8, share_inflight=False), words(14)
    engine.add(greedy("a", prompt, 4))
    answers = Answers(engine)
    answers.step()  # 8 of 14 tokens have KV
    answers.run(greedy("b", prompt, 4))
    assert answers.cached["b"] == 8
    assert answers.tokens == {"a": expected(prompt, 4), "b": expected(prompt, 4)}


def test_abort_while_waiting_leaks_nothing() -> None:
    engine = tiny_engine(max_running=1)
    engine.add(greedy("runs", words(9), 8))
    engine.add(greedy("waits", words(9, 1), 8))
    step(engine)
    assert engine.abort("waits")
    assert not engine.abort("waits")
    assert Answers(engine).run().tokens["runs"] == expected(words(9), 8)[1:]


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_abort_at_any_stage_leaks_nothing(steps: int) -> None:
    engine = tiny_engine(token_budget=8)
    engine.add(greedy("a", words(20), 8))
    engine.add(greedy("b", words(9, 1), 3))
    answers = Answers(engine)
    for _ in range(steps):
        answers.step()
    engine.abort("a")
    engine.check()
    assert answers.run().tokens["b"] == expected(words(9, 1), 3)


def test_abort_of_a_preempted_request_leaks_nothing() -> None:
    engine = tiny_engine(num_blocks=8)
    for index in range(3):
        engine.add(greedy(str(index), words(7, index), 12))
    while not engine.stats().preemptions:
        step(engine)
    (victim,) = engine.scheduler.waiting
    engine.abort(victim.request.id)
    Answers(engine).run()


def test_preempt_then_hit() -> None:
    engine = tiny_engine(num_blocks=9)
    prompts = [words(7, index) for index in range(3)]
    answers = Answers(engine).run(*(greedy(str(index), prompt, 12) for index, prompt in enumerate(prompts)))
    assert engine.stats().preemptions > 0
    assert answers.tokens == {str(index): expected(prompt, 12) for index, prompt in enumerate(prompts)}
    again = Answers(engine).run(greedy("again", prompts[2], 12))
    assert again.tokens["again"] == expected(prompts[2], 12)


def test_recompute_after_preemption_is_no_hit() -> None:
    engine = tiny_engine(num_blocks=9)
    requests = [greedy(str(index), words(7, index), 12) for index in range(3)]
    answers = Answers(engine).run(*requests)
    stats = engine.stats()
    assert stats.preemptions > 0
    assert set(answers.cached.values()) == {0}
    assert (stats.prefix_queries, stats.prefix_hits) == (21, 0)


def test_chunk_fits_but_the_whole_context_does_not() -> None:
    engine = tiny_engine(num_blocks=10, token_budget=8)
    engine.add(greedy("large", words(30), 4))  # 8 blocks
    engine.add(greedy("next", words(30, 1), 4))  # its first chunk would fit beside, the rest would not
    answers = Answers(engine)
    answers.step()
    assert (engine.stats().running, engine.stats().waiting) == (1, 1)
    answers.run()
    assert engine.stats().preemptions == 0
    assert answers.tokens == {"large": expected(words(30), 4), "next": expected(words(30, 1), 4)}


def test_a_request_that_can_never_fit_is_refused_at_once() -> None:
    engine = tiny_engine(num_blocks=3)
    with pytest.raises(
        ContextLengthExceeded, match=r"maximum context length is 12 tokens.*resulted in 12 tokens"
    ):
        engine.add(greedy("x", words(12), 1))
    assert not engine.has_work
    assert len(Answers(engine).run(greedy("y", words(11), 5)).tokens["y"]) == 1


def test_an_answer_ends_at_the_context_with_length() -> None:
    answers = Answers(tiny_engine(num_blocks=3)).run(greedy("x", words(5), 100))
    assert answers.reasons["x"] == "length"
    assert answers.tokens["x"] == expected(words(5), 7)


def test_max_tokens_is_never_reserved() -> None:
    engine = tiny_engine(num_blocks=12)
    for index in range(3):
        engine.add(greedy(str(index), words(6, index), 40))
    step(engine)
    assert engine.stats().running == 3  # 3 x 46 tokens would be 36 blocks
    assert engine.stats().blocks_active == 6


@pytest.mark.parametrize(("length", "hit"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (13, 12)])
def test_cached_tokens_are_exact(length: int, hit: int) -> None:
    engine, prompt = tiny_engine(), words(length)
    answers = Answers(engine).run(greedy("cold", prompt, 1))
    answers.run(greedy("warm", prompt, 1))
    assert answers.cached == {"cold": 0, "warm": hit}
    assert engine.stats().prefix_hits == hit
    assert engine.stats().prefix_queries == 2 * length


def test_a_conversations_next_turn_reuses_the_generated_tokens_too() -> None:
    engine, prompt = tiny_engine(), words(10)
    answers = Answers(engine).run(greedy("one", prompt, 8))
    turn = (*prompt, *answers.tokens["one"], *words(5, 9))
    answers.run(greedy("two", turn, 4))
    assert answers.cached["two"] == 16  # 17 tokens have KV: the last one sampled was never fed back
    assert answers.tokens["two"] == expected(turn, 4)


def test_salts_never_share() -> None:
    engine, prompt = tiny_engine(), words(13)
    answers = Answers(engine).run(greedy("a", prompt, 1, salt="x"))
    answers.run(greedy("b", prompt, 1, salt="y"), greedy("c", prompt, 1), greedy("d", prompt, 1, salt="x"))
    assert answers.cached == {"a": 0, "b": 0, "c": 0, "d": 12}


def test_without_prefix_cache_nothing_is_kept() -> None:
    engine, prompt = tiny_engine(prefix_cache=False), words(13)
    answers = Answers(engine).run(greedy("a", prompt, 4))
    assert engine.stats().blocks_cached == 0
    answers.run(greedy("b", prompt, 4))
    assert answers.cached["b"] == 0
    assert answers.tokens["b"] == expected(prompt, 4)


def test_reset_prefix_cache_while_a_request_runs() -> None:
    engine, prompt = tiny_engine(), words(13)
    engine.add(greedy("a", prompt, 8))
    answers = Answers(engine)
    answers.step()
    engine.reset_prefix_cache()
    engine.check()
    answers.run(greedy("b", prompt, 8))
    assert answers.cached["b"] == 0
    assert answers.tokens == {"a": expected(prompt, 8), "b": expected(prompt, 8)}


def test_eviction_under_pressure_never_changes_an_answer() -> None:
    engine = tiny_engine(num_blocks=10)
    answers = Answers(engine)
    for turn in range(12):
        prompt = (*words(8, turn % 3), *words(6, turn))
        answers.run(greedy(str(turn), prompt, 5))
        assert answers.tokens[str(turn)] == expected(prompt, 5)


def test_eight_requests_behind_one_prefix_share_its_blocks_while_it_is_computed() -> None:
    engine, shared = tiny_engine(num_blocks=60, max_running=8), words(80)
    prompts = [(*shared, *words(3, index)) for index in range(8)]
    answers = Answers(engine).run(*(greedy(str(index), prompt, 3) for index, prompt in enumerate(prompts)))
    assert [answers.tokens[str(index)] for index in range(8)] == [expected(prompt, 3) for prompt in prompts]
    assert sorted(answers.cached.values()) == [0] + [80] * 7
    assert engine.stats().preemptions == 0


def test_waiting_for_a_prefix_ends_when_its_computer_is_aborted() -> None:
    engine, prompt = tiny_engine(token_budget=8), words(40)
    engine.add(greedy("first", prompt, 3))
    engine.add(greedy("second", prompt, 3))
    step(engine)
    engine.abort("first")
    answers = Answers(engine).run()
    assert answers.tokens["second"] == expected(prompt, 3)
    assert answers.cached["second"] == 8


def test_stop_token_ends_an_answer() -> None:
    engine = tiny_engine()
    engine.ends = (expected(words(9), 3)[2],)
    request = Generation("x", words(9), 8, greedy("", (), 0).sampling)
    answers = Answers(engine).run(request)
    assert answers.reasons["x"] == "stop"
    assert answers.tokens["x"] == expected(words(9), 3)


def test_a_full_waiting_line_refuses() -> None:
    engine = tiny_engine(max_waiting=1)
    engine.add(greedy("a", words(5), 1))
    with pytest.raises(Overloaded):
        engine.add(greedy("b", words(5), 1))
    Answers(engine).run()


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_no_block_is_lost_with_each_request(length: int) -> None:
    """A leak of one block a request shows after as many requests as there are blocks."""
    engine = tiny_engine(num_blocks=12)
    for number in range(40):
        Answers(engine).run(greedy(str(number), words(length, number), 2))
    stats = engine.stats()
    assert (stats.blocks_active, stats.blocks_free + stats.blocks_cached) == (0, 12)
    engine.reset_prefix_cache()
    assert engine.stats().blocks_free == 12


def test_a_chat_without_a_limit_keeps_nobody_out() -> None:
    engine = tiny_engine(max_context=96)
    engine.add(greedy("endless", words(5), 96))
    answers = Answers(engine)
    for number in range(8):
        engine.add(greedy(str(number), words(9, number), 4))
        while str(number) not in answers.reasons:
            answers.step()
        assert "endless" not in answers.reasons
        assert answers.tokens[str(number)] == expected(words(9, number), 4)
    answers.run()
    assert answers.reasons["endless"] == "length"

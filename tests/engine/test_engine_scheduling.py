"""Who goes first, how long one may wait, how large blocks are, and what an admission leaves over."""

from __future__ import annotations

import pytest
from tests.engine.engine_kit import Answers, expected, greedy, step, tiny_engine, words

from stratacache.engine.config import EngineConfig, LengthMeter, ModelConfig
from stratacache.engine.errors import SettingsError
from stratacache.engine.line import MOST_PASSED, WINDOW, WaitingLine
from stratacache.engine.sequence import Sequence


def started(engine: object, *names: str) -> list[str]:
    """Runs to the end; the order in which requests got their first token."""
    answers = Answers(engine)  # type: ignore[arg-type]
    answers.run()
    return [name for name in answers.tokens if name in names]


def test_a_likely_hit_goes_first() -> None:
    engine = tiny_engine(max_running=1, num_blocks=64)
    Answers(engine).run(greedy("warm", words(17), 1))
    for name, prompt in (("cold", words(17, 1)), ("half", (*words(8), *words(9, 2))), ("hit", words(17))):
        engine.add(greedy(name, prompt, 2))
    assert started(engine, "cold", "half", "hit") == ["hit", "half", "cold"]


def test_priority_goes_before_hits_and_lower_is_first() -> None:
    engine = tiny_engine(max_running=1, num_blocks=64)
    Answers(engine).run(greedy("warm", words(17), 1))
    engine.add(greedy("hit", words(17), 2))
    engine.add(greedy("high", words(17, 1), 2, priority=-1))
    engine.add(greedy("low", words(17), 2, priority=5))
    assert started(engine, "hit", "high", "low") == ["high", "hit", "low"]


def test_starvation_is_bounded() -> None:
    """A cold request of the lowest priority waits for MOST_PASSED others, however many keep coming."""
    engine = tiny_engine(max_running=1, num_blocks=64)
    Answers(engine).run(greedy("warm", words(9), 1))
    engine.add(greedy("cold", words(9, 1), 1, priority=9))
    answers, count = Answers(engine), 0
    while "cold" not in answers.tokens:
        for _ in range(3):
            engine.add(greedy(f"hit{count}", words(9), 1, priority=-9))
            count += 1
        answers.step()
    assert len(answers.tokens) - 1 == MOST_PASSED
    answers.run()


def test_the_line_looks_at_a_bounded_part_and_keeps_order_among_equals() -> None:
    line = WaitingLine()
    sequences = [Sequence(greedy(str(index), (1, 2), 1)) for index in range(WINDOW + 5)]
    for sequence in sequences:
        line.append(sequence)
    assert line.order(lambda one: 0.0) == sequences[:WINDOW]
    preempted = Sequence(greedy("p", (1, 2), 1))
    line.push_front(preempted)
    assert line.order(lambda one: 1.0)[0] is preempted
    line.admit(sequences[2])
    assert [one.passed for one in sequences[:4]] == [1, 1, 0, 0]


def test_decodes_and_a_chunked_prefill_share_the_token_budget() -> None:
    engine = tiny_engine(token_budget=6, max_running=6, num_blocks=64)
    engine.add(greedy("talks", words(5), 12))
    answers = Answers(engine)
    answers.step()
    engine.add(greedy("long", words(30, 1), 3))
    computed = engine.stats().computed_tokens
    for _ in range(5):
        answers.step()
        assert engine.stats().computed_tokens - computed == 6  # one decode and five tokens of the prompt
        computed = engine.stats().computed_tokens
    assert len(answers.tokens["talks"]) == 6
    answers.run()
    assert answers.tokens == {"talks": expected(words(5), 12), "long": expected(words(30, 1), 3)}


def test_a_preempted_request_resumes_mostly_from_cache() -> None:
    engine = tiny_engine(num_blocks=15, token_budget=48)
    engine.add(greedy("one", words(16), 6))
    engine.add(greedy("two", words(16, 1), 6))
    engine.add(greedy("victim", words(16, 2), 12))
    answers = Answers(engine).run()
    assert engine.stats().preemptions == 1
    assert answers.tokens["victim"] == expected(words(16, 2), 12)
    again = engine.stats().computed_tokens - (21 + 21 + 27)
    assert again == 8  # of 20 that had KV: the two others took the last two of its blocks


def test_an_admission_leaves_the_watermark_over() -> None:
    engine = tiny_engine(num_blocks=20, token_budget=64, watermark=0.5)
    engine.add(greedy("a", words(17), 2))  # 5 blocks
    engine.add(greedy("b", words(17, 1), 2))  # 5 more: 10 left
    engine.add(greedy("c", words(5, 2), 2))  # 2 more would be under half
    step(engine)
    assert (engine.stats().running, engine.stats().waiting) == (2, 1)
    Answers(engine).run()


def test_block_size_follows_the_observed_mean_length() -> None:
    meter = LengthMeter()
    for _ in range(LengthMeter.LEAST - 1):
        meter.note(2000)
    assert meter.block_size(16) == 16  # too few to say
    meter.note(2000)
    assert meter.block_size(16) == 32
    for _ in range(LengthMeter.MOST):
        meter.note(700)
    assert (meter.block_size(16), meter.block_size(32)) == (16, 32)  # between the limits it stays
    for _ in range(LengthMeter.MOST):
        meter.note(512)
    assert meter.block_size(32) == 16


def test_blocks_change_size_while_nothing_runs_and_answers_stay_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LengthMeter, "LONG", 30)
    monkeypatch.setattr(LengthMeter, "SHORT", 20)
    monkeypatch.setattr(LengthMeter, "LEAST", 2)
    engine = tiny_engine(block_size=None, num_blocks=9)
    assert (engine.stats().block_size, engine.stats().blocks_total) == (
        16,
        8,
    )  # an odd one could not be joined
    answers = Answers(engine)
    for turn in range(2):
        answers.run(greedy(f"long{turn}", words(40, turn), 3))
    answers.run(greedy("next", words(40), 3))
    assert (engine.stats().block_size, engine.stats().blocks_total) == (32, 4)
    assert answers.cached["next"] == 0  # blocks of another size are not reused
    answers.run(greedy("again", words(40), 3))
    assert answers.cached["again"] == 32
    assert answers.tokens["again"] == answers.tokens["next"] == expected(words(40), 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"watermark": 1.0},
        {"conversation_share": -0.1},
        {"block_size": 0},
        {"max_running": 0},
        {"dtype": "int8"},
    ],
)
def test_settings_that_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        EngineConfig(**changes)  # type: ignore[arg-type]


def test_the_pool_is_as_large_as_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.engine.engine_kit import TINY_MODEL

    model = ModelConfig.from_mapping(TINY_MODEL)  # 2 x 2 layers x 2 heads x 16 values x 4 bytes a token
    assert model.kv_bytes_per_token("float32") == 512
    assert EngineConfig(kv_memory=100_000, block_size=16).pool_blocks(model) == 12
    assert EngineConfig(kv_memory=110_000).pool_blocks(model) == 12

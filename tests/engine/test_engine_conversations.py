"""Conversations: what is kept for the next turn, what gives it up, and that ids survive re-tokenising."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clock import FakeClock
from tests.engine.engine_kit import Answers, expected, greedy, tiny_engine, words

from stratacache.engine.conversations import Context, digest
from stratacache.engine.engine import Engine
from stratacache.engine.sequence import Generation
from stratacache.engine.tokenizer import Tokenizer
from stratacache.engine.transcripts import Transcripts


def context(name: str = "c", fingerprint: str = "f") -> Context:
    return Context(name.encode(), fingerprint.encode())


def turn(name: str, prompt: tuple[int, ...], tokens: int = 4, **more: Any) -> Generation:
    return greedy(name, prompt, tokens, conversation=more.pop("conversation", context()), **more)


def noise(engine: Engine, count: int) -> None:
    """Other traffic, enough to evict what nobody keeps."""
    for index in range(count):
        Answers(engine).run(greedy(f"noise{index}", words(21, 500 + index), 2))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_turns_kv_outlives_other_traffic_and_only_new_tokens_are_computed(clock: FakeClock) -> None:
    engine, prompt = tiny_engine(num_blocks=16, clock=clock.monotonic), words(17)
    answers = Answers(engine).run(turn("one", prompt, 6))
    noise(engine, 8)
    history = (*prompt, *answers.tokens["one"], *words(3, 1))
    before = engine.stats().computed_tokens
    answers.run(turn("two", history, 5))
    assert answers.cached["two"] == 20  # 22 of 23 tokens have KV: five full blocks
    assert engine.stats().computed_tokens - before == len(history) - 20 + 4
    assert answers.tokens["two"] == expected(history, 5)  # positions went on after the history


def test_without_a_name_other_traffic_evicts_it(clock: FakeClock) -> None:
    engine, prompt = tiny_engine(num_blocks=16, clock=clock.monotonic), words(17)
    answers = Answers(engine).run(greedy("one", prompt, 6))
    noise(engine, 8)
    answers.run(greedy("two", prompt, 1))
    assert answers.cached["two"] == 0


@pytest.mark.parametrize("reason", ["changed", "idle", "room", "bound"])
def test_kept_blocks_are_given_up(clock: FakeClock, reason: str) -> None:
    engine = tiny_engine(num_blocks=16, clock=clock.monotonic, conversation_idle=60)
    Answers(engine).run(turn("one", words(17), 6))
    assert (engine.stats().blocks_kept, engine.stats().conversations) == (5, 1)
    if reason == "changed":
        Answers(engine).run(turn("two", words(6, 1), 1, conversation=context(fingerprint="g")))
    elif reason == "idle":
        clock.advance(59)
        assert engine.expire() == pytest.approx(1)
        assert engine.stats().blocks_kept == 5
        clock.advance(1)
        assert engine.expire() is None
    elif reason == "room":
        Answers(engine).run(greedy("large", words(50, 1), 3))
    else:
        Answers(engine).run(turn("two", words(17, 1), 6, conversation=context("d")))
    assert engine.stats().given_up == {reason: 1}
    engine.check()


def test_room_is_made_for_a_decode_before_a_request_is_preempted(clock: FakeClock) -> None:
    engine = tiny_engine(num_blocks=16, clock=clock.monotonic)
    Answers(engine).run(turn("one", words(17), 6))
    answers = Answers(engine).run(greedy("long", words(30, 1), 28))
    assert answers.tokens["long"] == expected(words(30, 1), 28)
    assert engine.stats().preemptions == 0
    assert engine.stats().given_up == {"room": 1}


def test_a_turn_touches_its_conversation(clock: FakeClock) -> None:
    engine = tiny_engine(num_blocks=32, clock=clock.monotonic, conversation_idle=60)
    Answers(engine).run(turn("a", words(9), 2), turn("b", words(9, 1), 2, conversation=context("d")))
    clock.advance(40)
    engine.add(turn("a2", words(9), 2))
    clock.advance(30)
    engine.expire()
    assert engine.stats().conversations == 1
    Answers(engine).run()


def test_several_conversations_keep_a_shared_prefix_once(clock: FakeClock) -> None:
    engine = tiny_engine(num_blocks=32, clock=clock.monotonic)
    for index in range(4):
        prompt = (*words(12), *words(4, index + 1))
        Answers(engine).run(turn(str(index), prompt, 2, conversation=context(str(index))))
    assert engine.stats().blocks_kept == 3 + 4
    assert engine.stats().conversations == 4


def test_a_topic_is_never_reused_by_another_one() -> None:
    engine, prompt = tiny_engine(), words(13)
    answers = Answers(engine).run(greedy("a", prompt, 1, topic="x"))
    answers.run(greedy("b", prompt, 1, topic="y"), greedy("c", prompt, 1), greedy("d", prompt, 1, topic="x"))
    assert answers.cached == {"a": 0, "b": 0, "c": 0, "d": 12}


@pytest.mark.parametrize("tag", ["salt", "topic", "adapter", "image"])
def test_each_tag_separates_and_equal_values_of_two_tags_differ(tag: str) -> None:
    engine, prompt = tiny_engine(), words(9)
    answers = Answers(engine).run(
        Generation("plain", prompt, 1), Generation("tagged", prompt, 1, **{tag: "x"})
    )
    for other in {"salt", "topic", "adapter", "image"} - {tag}:
        answers.run(Generation(other, prompt, 1, **{other: "x"}))
    answers.run(Generation("again", prompt, 1, **{tag: "x"}))
    assert answers.cached.pop("again") == 8
    assert set(answers.cached.values()) == {0}


def test_reset_gives_up_what_is_kept() -> None:
    engine = tiny_engine()
    Answers(engine).run(turn("one", words(17), 6))
    engine.reset_prefix_cache()
    engine.check()
    assert (engine.stats().blocks_free, engine.stats().conversations) == (32, 0)


def test_a_digest_keeps_its_parts_apart() -> None:
    texts = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("abc", None), (None, "abc")]
    assert len({digest(*parts) for parts in texts}) == len(texts)


def render(messages: Any) -> str:
    return "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages) + (
        "<|im_start|>assistant\n"
    )


def test_ids_of_an_answer_survive_although_its_text_would_be_tokenised_otherwise(
    tokenizer: Tokenizer,
) -> None:
    transcripts = Transcripts(tokenizer)
    first = [{"role": "user", "content": "hi"}]
    ids = transcripts.encode(b"f", render(first), first, render)
    assert ids == tokenizer.encode(render(first))
    spelt = [token for letter in "unhappy" for token in tokenizer.encode(letter)]
    assert spelt != tokenizer.encode("unhappy")
    transcripts.remember(b"f", render(first), "unhappy", ids, spelt)
    second = [*first, {"role": "assistant", "content": "unhappy"}, {"role": "user", "content": "why?"}]
    again = transcripts.encode(b"f", render(second), second, render)
    assert again[: len(ids) + len(spelt)] == [*ids, *spelt]
    assert tokenizer.decode(again) == tokenizer.decode(tokenizer.encode(render(second)))
    plain = tokenizer.encode(render(second))
    assert transcripts.encode(b"g", render(second), second, render) == plain
    edited = [first[0], {"role": "assistant", "content": "unhappy!"}, second[2]]
    assert transcripts.encode(b"f", render(edited), edited, render) == tokenizer.encode(render(edited))


def test_what_does_not_spell_the_answer_is_not_remembered(tokenizer: Tokenizer) -> None:
    transcripts, first = Transcripts(tokenizer), [{"role": "user", "content": "hi"}]
    second = [*first, {"role": "assistant", "content": "ab"}]
    end = tokenizer.encode("<|im_end|>")
    for generated in ([], tokenizer.encode("abc"), [*tokenizer.encode("a"), *end, *tokenizer.encode("b")]):
        transcripts.remember(b"f", render(first), "ab", [1], generated)
        assert transcripts.encode(b"f", render(second), second, render) == tokenizer.encode(render(second))


def test_transcripts_are_bounded_by_tokens(tokenizer: Tokenizer) -> None:
    transcripts = Transcripts(tokenizer, most_tokens=100)
    letters = tokenizer.encode("a b c d")
    for index in range(50):
        transcripts.remember(b"f", f"prompt {index}", "a b c d", [7] * 20, letters)
        assert transcripts._tokens == sum(map(len, transcripts._ids.values())) <= 100
    assert len(transcripts._ids) == 4

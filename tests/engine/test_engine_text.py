"""Tokenizer, incremental text and stop strings, beside transformers where transformers is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratacache.engine.convert import find_gguf
from stratacache.engine.errors import InvalidRequest, ModelUnavailable
from stratacache.engine.template import ChatTemplate
from stratacache.engine.text import StopMatcher, TextStream
from stratacache.engine.tokenizer import IncrementalDecoder, Tokenizer

TEXTS = [
    "Hello, world! It's   fine.\n\n\tTabs and  spaces  ",
    "def f(x):\n    return x ** 2  # square\n",
    "你好，世界！推荐一下北京的餐厅。",
    "Emoji 😀👩‍👩‍👧 and é é ﬁ",
    "<|im_start|>user\nhi<|im_end|>\n",
    "Привет мир; مرحبا; नमस्ते",
    "",
]


@pytest.fixture(scope="module")
def oracle_tokenizer() -> Any:
    from transformers import AutoTokenizer

    path = find_gguf()
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@pytest.mark.parametrize("text", TEXTS)
def test_encoding_equals_transformers(tokenizer: Tokenizer, oracle_tokenizer: Any, text: str) -> None:
    assert tokenizer.encode(text) == oracle_tokenizer(text)["input_ids"]


def test_digits_are_split_one_by_one_where_transformers_reader_is_wrong(
    tokenizer: Tokenizer, oracle_tokenizer: Any
) -> None:
    """`tokenizer.ggml.pre: smollm` splits at digits first, so the space run before a digit stays whole."""
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode("a  5 1234")]
    assert pieces == ["a", "  ", "5", " ", "1", "2", "3", "4"]
    theirs = [oracle_tokenizer.decode([token]) for token in oracle_tokenizer("a  5")["input_ids"]]
    assert theirs == ["a", " ", " ", "5"]  # when this fails, transformers has learnt it: compare all texts


UNKNOWN = "\x04\x06\x13\x14\x16\x1d"  # six control characters that the vocabulary lacks
ENCODABLE = st.characters(exclude_categories=["Cs"], exclude_characters=UNKNOWN, max_codepoint=0x3FFFF)


def test_bytes_that_the_vocabulary_lacks_are_dropped_as_transformers_does(
    tokenizer: Tokenizer, oracle_tokenizer: Any
) -> None:
    text = f"a{UNKNOWN}b"
    assert tokenizer.encode(text) == oracle_tokenizer(text)["input_ids"]
    assert tokenizer.decode(tokenizer.encode(text)) == "ab"


@given(st.text(ENCODABLE, max_size=60))
@settings(max_examples=200)
def test_text_survives_the_round_trip_whole_and_token_by_token(tokenizer_of: Tokenizer, text: str) -> None:
    tokens = tokenizer_of.encode(text)
    plain = [token for token in tokens if tokenizer_of.token_bytes(token)]
    if plain == tokens:
        assert tokenizer_of.decode(tokens) == text
    decoder = IncrementalDecoder(tokenizer_of)
    pieces = [decoder.push(token) for token in tokens]
    assert "".join(pieces) + decoder.flush() == tokenizer_of.decode(tokens)
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@pytest.fixture(scope="module", name="tokenizer_of")
def _tokenizer_of(tokenizer: Tokenizer) -> Tokenizer:
    return tokenizer


@given(
    st.text(ENCODABLE, max_size=80) | st.sampled_from([" " * 500, "<|im_start|>" * 20, "aa" * 99, "\n" * 300])
)
def test_the_lower_bound_is_one(tokenizer_of: Tokenizer, text: str) -> None:
    assert tokenizer_of.fewest_tokens(text) <= len(tokenizer_of.encode(text))


def test_a_character_never_comes_in_halves(tokenizer: Tokenizer) -> None:
    decoder = IncrementalDecoder(tokenizer)
    tokens = tokenizer.encode("😀好")
    assert len(tokens) > 2
    assert [piece for token in tokens if (piece := decoder.push(token))] == ["😀", "好"]


def test_a_cut_character_becomes_a_replacement_at_the_end(tokenizer: Tokenizer) -> None:
    decoder = IncrementalDecoder(tokenizer)
    assert decoder.push(tokenizer.encode("😀")[0]) == ""
    assert decoder.flush() == "\ufffd"


def test_lone_surrogates_do_not_crash(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud83db")) == "a?b"


def test_missing_tokenizer_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json is missing"):
        Tokenizer(tmp_path)


@given(
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
    st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_stop_matcher_equals_cutting_the_whole_text(stops: list[str], pieces: list[str]) -> None:
    matcher, given_text = StopMatcher(stops), ""
    for piece in pieces:
        given_text += matcher.push(piece)
    given_text += matcher.flush()
    whole = "".join(pieces)
    ends = {whole.find(stop) + len(stop): whole.find(stop) for stop in stops if stop in whole}
    assert matcher.stopped == bool(ends)
    if not ends:
        assert given_text == whole
    else:
        assert not any(stop in given_text for stop in stops)
        assert whole.startswith(given_text)
        assert any(whole.startswith(stop, len(given_text)) for stop in stops)


def test_nothing_of_a_stop_string_is_given_early() -> None:
    matcher = StopMatcher(["STOP"])
    assert [matcher.push(piece) for piece in ("a S", "TO", "x ST", "OP tail")] == ["a ", "", "STOx ", ""]
    assert matcher.stopped


def test_stream_joins_characters_and_stops(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, ["世"])
    text = "".join(stream.push(token) for token in tokenizer.encode("你好世界"))
    assert (text, stream.stopped, stream.flush()) == ("你好", True, "")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "你好"}],
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b\n"},
            {"role": "user", "content": "<b>&amp;'\""},
        ],
    ],
)
def test_template_equals_transformers(
    folder: Path, oracle_tokenizer: Any, messages: list[dict[str, str]]
) -> None:
    wanted = oracle_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ChatTemplate.from_folder(folder).render(messages) == wanted


def test_a_next_turn_extends_the_turn_before(folder: Path) -> None:
    template = ChatTemplate.from_folder(folder)
    first = [{"role": "user", "content": "a"}]
    second = [*first, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert template.render(second).startswith(template.render(first))


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_templates_that_complain_or_reach_out_of_the_sandbox_are_refused(source: str) -> None:
    with pytest.raises(InvalidRequest, match="chat template"):
        ChatTemplate(source).render([{"role": "user", "content": "x"}])

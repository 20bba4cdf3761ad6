"""Properties of the normaliser over arbitrary text: idempotent, stable under composition, never raising."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from stratacache.policy.normalise import MAX_PROSE, normalise, normalise_all, tidy

# Pieces at which rules meet: words, marks of both widths, dates, numerals, quotes, code and odd code points.
PIECES = (
    "What|Is|is| the |X|i|do|how| i |get|5|2024|March|-03|-|05|/|.|?|!|,|:|;| |  |\t|\n|\r\n|\r|\u3000|年|3月|月|日|号"
    "|中|文|三天|十分钟|后|吗|什么|是|的|。|，|？|！|（|）|：|．|Ａ|ｗ|２|＠|／|'|’|‘|\"|“|”|「|」|《|》|`|$|{|\\|http://|www."
    "|a.b|_|é|e\u0301|ｅ\u0301|\u0301|\u1fef|\u037e|\ud800|\U0001f600|\u200d|1,000|twelve| months|Mar.|th| of |please "
    "|Can| you|二〇二四年|三月|五日|GDP|①|²|＄|～|、|…|...|农历|(|)|%|translate|翻译"
)
fragments = st.lists(st.sampled_from(PIECES.split("|")), max_size=14).map("".join)
any_text = st.text(st.characters(exclude_categories=()), max_size=60)
texts = fragments | any_text


@settings(max_examples=400)
@given(texts)
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


@settings(max_examples=300)
@given(texts)
def test_composed_and_decomposed_input_have_one_form(text: str) -> None:
    # A back-tick (or the Greek mark that composes to one) starts code, which is kept to the byte.
    text = text.replace("`", "").replace("\u1fef", "")
    forms = {normalise(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert forms == {normalise(text)}


@settings(max_examples=200)
@given(texts, st.sampled_from(["", " ", "\n", "\r\n", "\t \n", "\u3000"]))
def test_white_space_at_the_end_never_matters(text: str, space: str) -> None:
    assert normalise(text + space) == normalise(text)


@settings(max_examples=200)
@given(texts)
def test_line_ends_never_matter(text: str) -> None:
    text = text.replace("\r", "")
    assert normalise(text.replace("\n", "\r\n")) == normalise(text)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["a", "  ", "x = 1", "\t", "你好 A", "1,000", "。"]), min_size=1).map("".join)
)
def test_a_fenced_block_is_kept_to_the_byte(code: str) -> None:
    text = f"Why?\n```\n{code}\n```\nThanks"
    assert normalise(text) == text


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["a", "  ", "X", "你 好", "March 5, 2024", "，", "三天", "."]), min_size=1).map(
        "".join
    )
)
def test_what_is_quoted_is_kept_to_the_byte(words: str) -> None:
    assert f'"{words}"' in normalise(f'Who said "{words}" to me ?')


@given(st.lists(fragments, max_size=4))
def test_one_question_about_form_makes_all_of_a_speakers_texts_exact(before: list[str]) -> None:
    texts = [*before, "Translate what I send you."]
    assert normalise_all(texts) == [tidy(text) for text in texts]


def test_pasted_material_is_only_tidied() -> None:
    text = "what is this ?  " * (MAX_PROSE // 16 + 1)
    assert normalise(text) == text.strip()

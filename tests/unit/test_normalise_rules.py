"""The normaliser's own rules, where a table of pairs does not show them."""

from __future__ import annotations

import unicodedata

import pytest

from stratacache.policy.normalise import NORMALISER_VERSION, is_material_prompt, normalise, tidy


def test_the_forms_are_these() -> None:
    """A golden sample. When a line here changes, raise NORMALISER_VERSION, or old entries answer new forms."""
    golden = {
        "What’s the “Best Film” of  March 2024 ？": 'what\'s the "Best Film" of 2024-M03',
        "请问 2024 年 3 月 5 日，用 Python 写什么？": "请问2024-M03-05,用Python写什么",
        "How do i move $1,000 in twelve months?": "how do I move $1000 in 12 months",
        "Translate:  It 。 ": "Translate:  It 。",
        "你喜欢猫吗？": "你喜欢猫吗",
    }
    assert {text: normalise(text) for text in golden} == golden
    assert NORMALISER_VERSION == 1


@pytest.mark.parametrize(
    "text",
    ["x² y³", "½ + ¼", "① ② ㈠", "㎏ ㎡ ℃", "ﬁ ﬂ ﬀ", "Ⅳ ⅷ", "™ ©", "ｱ ｲ", "H₂O", "…", "‼", "㍻", "﷼", "ｶﾞ"],
)
def test_compatibility_characters_are_not_folded_to_another_meaning(text: str) -> None:
    assert normalise(text) == text
    assert unicodedata.normalize("NFKC", text) != text or text == "™ ©"


@pytest.mark.parametrize(
    "text", ["＂a  ＂", "［１］", "｛ａ｝", "｀ａ｀", "ａ＿ｂ", "＜ａ＞", "ａ＾２", "～５"]
)
def test_full_width_delimiters_stay(text: str) -> None:
    kept = [c for c in text if c in "＂［］｛｝｀＿＜＞＾～"]
    assert [c for c in normalise(text) if c in kept] == kept


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\r\n \t\u3000", "?", ".", "。", "\ufffc", "\ud800", "'", '"', "`", "\0"]
)
def test_degenerate_texts_do_not_raise(text: str) -> None:
    assert normalise(text) == text.strip()


def test_tidy_keeps_the_indentation_of_the_first_of_several_lines() -> None:
    assert tidy("\n   if a:\n     b\n\n") == "   if a:\n     b"


def test_tidy_leaves_code_uncomposed() -> None:
    assert tidy("len(`e\u0301`)") == "len(`e\u0301`)"
    assert tidy("cafe\u0301") == "café"


@pytest.mark.parametrize(
    ("prompt", "material"),
    [
        ("You are a helpful assistant. Format answers as Markdown, in at most 100 words.", False),
        ("You are a translator from English to French.", True),
        ("Proofread the user's message.", True),
        ("Extract all names.", True),
        ("你是一名客服，请礼貌回答。", False),
        ("你是翻译，把用户的话译成英文。", True),
        ("对用户输入进行分类。", True),
        ("x " * 20_000 + "translate", True),
        ("x " * 20_000, False),
    ],
)
def test_system_prompts_that_work_on_the_text_itself(prompt: str, material: bool) -> None:
    assert is_material_prompt(prompt) is material

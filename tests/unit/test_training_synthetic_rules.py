"""The rules of the generator one by one: what they make, and what they leave alone because its label is not sure."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from stratacache.training.synthetic import RULES, generate, normalised
from stratacache.training.synthetic.pair import Draw, Language

BY_NAME = {(rule.language, rule.name): rule for rule in RULES}
QUALITY = Path(__file__).parent.parent / "quality"


def outcomes(language: Language, name: str, text: str) -> set[str]:
    """All that the rule makes of the text, over both parts and many draws."""
    rule = BY_NAME[language, name]
    made = (rule.rewrite(text, Draw(Random(seed), part)) for seed in range(60) for part in ("train", "eval"))
    return {new for new in made if new is not None and new != text}


@pytest.mark.parametrize(
    ("language", "name", "text", "wanted"),
    [
        ("en", "number_spelt", "What can I do in 10 days?", "What can I do in ten days?"),
        ("en", "unit_rewrite", "What can I do in 2 hours?", "What can I do in 120 minutes?"),
        ("en", "money_written", "What can I buy for $20?", "What can I buy for 20 dollars?"),
        ("en", "negation_added", "Why does my car start?", "Why doesn't my car start?"),
        ("en", "negation_removed", "Why can't I log in?", "Why can I log in?"),
        ("en", "negation_polar", "Can I pay by card?", "Can't I pay by card?"),
        ("en", "negation_expanded", "Why can't I log in?", "Why am I unable to log in?"),
        ("en", "double_negation", "Is it legal to camp here?", "Is it not illegal to camp here?"),
        ("en", "antonym", "How do I enable cookies?", "How do I disable cookies?"),
        ("en", "direction", "Is there a bus from Leeds to York?", "Is there a bus from York to Leeds?"),
        (
            "en",
            "direction_turned",
            "Is there a bus from Leeds to York?",
            "Is there a bus to York from Leeds?",
        ),
        ("en", "comparison", "Why is Rome better than Oslo?", "Why is Oslo better than Rome?"),
        ("en", "comparison_inverted", "Why is Rome better than Oslo?", "Why is Oslo worse than Rome?"),
        ("en", "role", "Why did Rome attack Carthage?", "Why did Carthage attack Rome?"),
        ("en", "role", "My boss hit me", "I hit my boss"),
        ("en", "passive", "Why did Rome attack Carthage?", "Why was Carthage attacked by Rome?"),
        ("en", "passive", "My boss hit me", "I was hit by my boss"),
        ("en", "keywords", "How do I reset a wifi router?", "reset wifi router how to"),
        ("en", "genitive", "What is the capital of Peru?", "What is Peru's capital?"),
        ("zh", "number", "三天能学会吗", "十天能学会吗"),
        ("zh", "number_written", "10天能学会吗", "十天能学会吗"),
        ("zh", "unit_rewrite", "两小时能学会吗", "120分钟能学会吗"),
        ("zh", "negation_added", "为什么能退款", "为什么不能退款"),
        ("zh", "negation_removed", "为什么不能退款", "为什么能退款"),
        ("zh", "polar_form", "花呗能退款吗", "花呗能不能退款"),
        ("zh", "direction", "从北京到上海坐什么车", "从上海到北京坐什么车"),
        ("zh", "comparison", "为什么哥哥比弟弟高", "为什么弟弟比哥哥高"),
        ("zh", "comparison_inverted", "为什么哥哥比弟弟高", "为什么弟弟比哥哥低"),
        ("zh", "role", "我被狗咬了怎么办", "狗被我咬了怎么办"),
        ("zh", "passive", "我被狗咬了怎么办", "狗咬了我怎么办"),
        ("zh", "object_fronted", "怎么修改密码", "密码怎么修改"),
        ("zh", "way_form", "怎么学好英语", "学好英语的方法"),
    ],
)
def test_a_rule_makes_what_it_is_for(language: Language, name: str, text: str, wanted: str) -> None:
    assert wanted in outcomes(language, name, text)


@pytest.mark.parametrize(
    ("language", "name", "text"),
    [
        ("en", "number", "Where is the next 7-Eleven?"),
        ("en", "number", "What happened on 9/11?"),
        ("en", "number", "What are the top 10 movies?"),
        ("en", "negation_added", "Can I pay by card?"),
        ("en", "negation_removed", "Can't I pay by card?"),
        ("en", "negation_removed", "Why not only sleep?"),
        ("en", "negation_removed", "I lost it, isn't it a pity"),
        ("en", "direction", "How far is it from Leeds to York?"),
        ("en", "direction", "How do I get from A to Z?"),
        ("en", "antonym", "How do I open or close a file?"),
        ("en", "quantifier", "How do I do it all over?"),
        ("en", "comparison", "Is Rome better than Oslo?"),
        ("en", "entity", "Where is the Bank of China?"),
        ("zh", "number", "双十一有什么活动"),
        ("zh", "number", "一个人怎么生活"),
        ("zh", "negation_removed", "不能退款吗"),
        ("zh", "negation_added", "能退款吗"),
        ("zh", "direction", "从北京到上海有多少公里"),
        ("zh", "entity", "南京路在哪里"),
        ("zh", "antonym", "开通还是关闭花呗"),
    ],
)
def test_a_rule_leaves_alone_what_it_cannot_be_sure_of(language: Language, name: str, text: str) -> None:
    assert outcomes(language, name, text) == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.language}-{rule.name}")
@pytest.mark.parametrize(
    "text", ["", "?", "？", " ", "a", "我", "12345", "🙂🙂", "how", "怎么", "from to", "从到", "($^*["]
)
def test_odd_texts_break_no_rule(rule: object, text: str) -> None:
    assert hasattr(rule, "rewrite")
    new = rule.rewrite(text, Draw(Random(3), "train"))
    assert new is None or isinstance(new, str)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_regression_pairs_are_whole_and_not_what_the_grammar_trains_on(language: str) -> None:
    lines = (QUALITY / f"pairs_{language}.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    kinds = {pair["kind"] for pair in pairs}
    assert len(pairs) >= 150
    assert len(kinds) == 15
    assert len({(pair["q1"], pair["q2"]) for pair in pairs}) == len(pairs)
    trained = {normalised(q) for pair in generate(5, (), 0, per_intent=60) for q in (pair.q1, pair.q2)}
    asked = {normalised(pair[side]) for pair in pairs for side in ("q1", "q2")}
    assert asked & trained == set()
    for pair in pairs:
        assert normalised(pair["q1"]) != normalised(pair["q2"]), pair
        assert pair["label"] == (
            pair["kind"] in {"reorder", "passive", "preamble", "synonym", "unit_rewrite"}
        )

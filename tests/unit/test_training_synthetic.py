"""The generator of synthetic pairs: seeded, in both languages, balanced, and apart from what is held out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from random import Random

import pytest

from stratacache.training.synthetic import RULES, Pair, Sourced, generate, held_out, normalised
from stratacache.training.synthetic.chinese.lists import replaced as replaced_chinese
from stratacache.training.synthetic.english.lists import replaced
from stratacache.training.synthetic.grammar import blocks
from stratacache.training.synthetic.lexicon import DATA, partners, rows
from stratacache.training.synthetic.pair import Draw, Part, is_held_out

ENGLISH = (
    "How do I lose 10 kg in 2 months?",
    "Why can't I open the file on Windows?",
    "Why do some people prefer Linux over Windows?",
    "How do I transfer money from India to China?",
    "What is the difference between a motel and a hotel?",
    "Why is Canada better than Norway?",
    "Why did Germany attack Poland?",
    "A stranger hit me, what do I do?",
    "What is the largest city in Brazil?",
    "How do I enable cookies in Firefox?",
    "Which is the best laptop under $500?",
    "How do I check my bank account balance?",
    "Can I work as a doctor in France?",
    "Is it legal to record a phone call?",
    "What should I do before an exam?",
    "What is a good book for beginners?",
    "Do I need both a passport and a photo?",
    "Does everyone in the UK always pay tax?",
    "How can I learn French quickly?",
    "What is the capital of Kenya?",
    "Who invented the telephone?",
    "How do I really get a refund?",
    "Should I learn Java and Python?",
    "What is the meaning of life?",
    "How do I cook rice in winter?",
    "I cannot log in. What is wrong?",
    "At least 5 people came, why?",
)
CHINESE = (
    "怎么在三天内瘦5公斤",
    "借呗能用两年吗",
    "为什么能开通花呗",
    "为什么不能开通花呗",
    "花呗能提前还款吗",
    "怎么修改密码",
    "如何关闭免密支付",
    "从北京到上海的火车票多少钱",
    "英语和日语哪个更难学",
    "为什么哥哥比弟弟高",
    "我被狗咬了怎么办",
    "老婆的哥哥叫什么",
    "感冒吃什么药",
    "买什么手机好",
    "昨天为什么下雪",
    "每天跑步好吗",
    "我的密码怎么修改",
    "请问怎么退货",
    "我怎么查余额",
    "所有人都要交税吗",
    "北京有什么好玩的",
    "土豆怎么做好吃",
)
QUESTIONS = tuple(Sourced(q, "en") for q in ENGLISH) + tuple(Sourced(q, "zh") for q in CHINESE)


def made(part: Part = "train", seed: int = 1, count: int = 20, per_intent: int = 6) -> list[Pair]:
    return list(generate(seed, QUESTIONS, count, part=part, per_intent=per_intent))


def test_the_same_seed_makes_the_same_pairs() -> None:
    assert made() == made()


def test_another_seed_makes_other_pairs() -> None:
    assert made(seed=1) != made(seed=2)


def test_there_are_pairs_of_both_languages_labels_and_sources() -> None:
    seen = {(pair.language, pair.label, pair.source) for pair in made()}
    assert len(seen) == 8


@pytest.mark.parametrize("part", ["train", "eval"])
def test_no_pair_of_equal_texts_is_labelled_different_and_none_is_one_text_twice(part: Part) -> None:
    for pair in made(part):
        assert pair.q1 != pair.q2
        assert pair.label == 1 or normalised(pair.q1) != normalised(pair.q2), pair


@pytest.mark.parametrize("part", ["train", "eval"])
def test_no_pair_of_the_grammar_has_both_labels(part: Part) -> None:
    labels: dict[frozenset[str], set[int]] = defaultdict(set)
    for pair in made(part, per_intent=40):
        if pair.source == "grammar":
            labels[frozenset((normalised(pair.q1), normalised(pair.q2)))].add(pair.label)
    assert [pair for pair, seen in labels.items() if len(seen) > 1] == []


def test_every_surface_with_a_negative_rule_has_a_positive_one() -> None:
    for language in ("en", "zh"):
        surfaces: dict[int, set[str]] = {0: set(), 1: set()}
        for rule in RULES:
            if rule.language == language:
                surfaces[rule.label].add(rule.surface)
        assert surfaces[0] <= surfaces[1], language


def test_rule_names_are_unique_in_a_language() -> None:
    assert max(Counter((rule.language, rule.name) for rule in RULES).values()) == 1


def test_half_of_the_grammars_pairs_are_positive() -> None:
    labels = Counter((pair.language, pair.label) for pair in made() if pair.source == "grammar")
    for language in ("en", "zh"):
        assert 0.45 < labels[language, 1] / (labels[language, 0] + labels[language, 1]) < 0.55


def test_train_and_eval_share_no_intent() -> None:
    intents = {
        part: {pair.rule for pair in made(part) if pair.source == "grammar"} for part in ("train", "eval")
    }
    assert intents["train"].isdisjoint(intents["eval"])
    assert all(held_out(name) for name in intents["eval"])
    assert not any(held_out(name) for name in intents["train"])


def test_about_a_fifth_of_the_intents_is_held_out() -> None:
    for language in ("en", "zh"):
        names = [intent.name for block in blocks(language) for intent in block.intents]  # type: ignore[arg-type]
        assert len(names) >= 150
        assert len(names) == len(set(names))
        assert 0.1 < sum(map(held_out, names)) / len(names) < 0.3


def test_siblings_are_held_out_together() -> None:
    for language in ("en", "zh"):
        for block in blocks(language):  # type: ignore[arg-type]
            assert len({held_out(intent.name) for intent in block.intents}) == 1


def test_an_edit_is_of_one_part_only() -> None:
    train, held = Draw(Random(0), "train"), Draw(Random(0), "eval")
    names = [f"name {i}" for i in range(200)]
    for one, other in zip(names, reversed(names), strict=True):
        assert train.allows(one, other) != held.allows(one, other)
    assert 20 < sum(map(is_held_out, names)) < 60


def test_every_intent_has_four_whole_surfaces_and_known_slots() -> None:
    for language in ("en", "zh"):
        for block in blocks(language):  # type: ignore[arg-type]
            for intent in block.intents:
                whole = [s for s in intent.surfaces if set(re.findall(r"\{(\w+)\}", s)) == set(intent.slots)]
                assert len(whole) >= 4, intent.name
                assert len(set(whole)) == len(whole), intent.name
                assert set(intent.slots) <= set(block.slots), intent.name


def test_surfaces_of_one_block_belong_to_one_intent() -> None:
    for language in ("en", "zh"):
        for block in blocks(language):  # type: ignore[arg-type]
            surfaces = Counter(surface for intent in block.intents for surface in intent.surfaces)
            assert [surface for surface, times in surfaces.items() if times > 1] == []


def test_every_word_list_is_well_formed() -> None:
    for path in sorted(DATA.glob("*.tsv")):
        for row in rows(path.stem):
            assert len(row) >= 2, (path.name, row)
            assert row[0] != row[1], (path.name, row)


def test_words_of_one_meaning_are_not_also_opposites() -> None:
    for language in ("en", "zh"):
        same = {frozenset(row[:2]) for row in rows(f"{language}_synonyms")}
        opposite = {frozenset(row[:2]) for row in rows(f"{language}_antonyms")}
        assert same & opposite == set()


@pytest.mark.parametrize(
    "text", ["Can I fly without an ID?", "Can I fly without an id?", "can i fly Without An Id?"]
)
def test_a_listed_word_with_capitals_is_found_in_any_case(text: str) -> None:
    assert replaced(text, Draw(Random(0), "train"), "en_modifiers_same") is not None


@pytest.mark.parametrize("name", ["times", "times_same", "quantifiers", "quantifiers_same", "modifiers_same"])
def test_every_listed_word_is_replaced_in_its_part(name: str) -> None:
    for language, by in (("en", replaced), ("zh", replaced_chinese)):
        for left, right, *_ in partners(f"{language}_{name}"):
            draws = (Draw(Random(0), "train"), Draw(Random(0), "eval"))
            new = [by(left, draw, f"{language}_{name}") for draw in draws]
            assert any(new) or right in left, (left, right)

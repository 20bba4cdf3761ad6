"""Chinese wording: preambles, question forms, synonyms, slips of the key: the meaning stays."""

from __future__ import annotations

import re

from stratacache.training.synthetic.chinese.context import ASKS, SURE_DEED
from stratacache.training.synthetic.chinese.lists import replaced
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import one_of

_PREAMBLES = (
    "请问",
    "请问一下，",
    "你好，",
    "您好，",
    "麻烦问下",
    "麻烦问一下，",
    "想问一下",
    "我想问下",
    "问一下，",
    "想知道",
    "请教一下，",
    "谁知道",
    "有人知道",
    "求助，",
    "大家好，",
    "咨询一下，",
    "急！",
    "不好意思，请问",
)
_ENDINGS = ("，谢谢", "，谢谢！", "，急", "呢", "啊", "，求解答", "，求助", "，麻烦了", "呀", "，在线等")


def add_preamble(text: str, draw: Draw) -> str | None:
    """请问, 麻烦问下, …谢谢."""
    if not ASKS.search(text) or re.search("请问|你好|您好|想问|谢谢|问一下|想知道|谁知道", text):
        return None
    if draw.rng.random() < 0.7:
        opening = draw.rng.choice(_PREAMBLES)
        return (
            None
            if opening in {"谁知道", "有人知道"} and not re.search("怎么|什么|哪", text)
            else opening + text
        )
    body = text.rstrip("?？。.! ！")
    ending = draw.rng.choice(_ENDINGS)
    if ending in {"呢", "啊", "呀"} and not re.search(
        r"(?:怎么办|什么|哪里|多少|怎么样|怎么弄|多久|为什么)$", body
    ):
        ending = "，谢谢"
    return body + ending


def drop_preamble(text: str, draw: Draw) -> str | None:
    """Without 请问, 你好, 谢谢."""
    match = re.match(
        r"(?:你好|您好|请问一下|请问|麻烦问下|我想问一下|想问一下|我想问下|我想问)[，,。！! ]*", text
    )
    if not match or len(text) - match.end() < 5 or not ASKS.search(text[match.end() :]):
        return None
    return text[match.end() :]


_HOW_WORDS = ("怎么", "如何", "怎样")
_SAME_WORDS = (
    ("为什么", ("为何", "为啥", "什么原因")),
    ("什么时候", ("何时", "啥时候")),
    ("多长时间", ("多久",)),
    ("多久", ("多长时间",)),
    ("怎么办", ("咋办", "该怎么办", "怎么处理")),
    ("哪里", ("哪儿", "什么地方")),
    ("是什么意思", ("什么意思", "的意思是什么", "是啥意思")),
    ("有什么区别", ("区别是什么", "有何区别", "有什么不同", "有啥区别")),
    ("有哪些", ("都有哪些", "有什么")),
    ("怎么样", ("如何", "咋样")),
    ("多少钱", ("什么价格", "价格是多少", "要多少钱")),
    ("是什么", ("是啥",)),
    ("怎么回事", ("是怎么回事", "什么情况", "咋回事")),
    ("什么", ("啥",)),
    ("可以", ("能",)),
    ("能够", ("可以",)),
)


def same_question_word(text: str, draw: Draw) -> str | None:
    """怎么 -> 如何, 为什么 -> 为何, 多久 -> 多长时间."""
    if draw.rng.random() < 0.4:
        pattern = re.compile(r"(?:怎么|如何|怎样)(?=(?:" + SURE_DEED + "))")
        new = one_of(
            text,
            draw,
            pattern,
            lambda m: draw.rng.choice(
                [w for w in (*_HOW_WORDS, "怎么才能", "该怎么", "要怎么") if w != m[0]]
            ),
        )
        if new and "才能" not in text and not re.search("[该要应]$", text[: max(0, text.find("怎"))]):
            return new
    table = [(old, news) for old, news in _SAME_WORDS if old in text]
    if not table:
        return None
    old, news = table[0]
    if old in {"怎么样", "可以", "什么", "怎么办"} and re.search(
        "怎么样才|怎么样可|怎么样能|怎么样[让去做把]|可以吗|不可以|可不可|没什么|什么都|什么的|可以的|该怎么办|为什么",
        text,
    ):
        return None
    if (
        (old == "有哪些" and "都有" in text)
        or (old == "怎么回事" and "是怎么" in text)
        or (old == "多少钱" and re.search("要多少|是多少|值多少", text))
    ):
        return None
    if old in {"是什么意思", "有什么区别", "多少钱"} and not re.search(rf"{old}[?？]?$", text):
        return None
    new = draw.rng.choice(news)
    return text.replace(old, new, 1)


_WAY = re.compile(
    r"^(?:怎么|如何|怎样)(?:才能|可以)?([^怎如何什么为哪谁几多，,。 ？?吗呢了样办说回会能没不]{3,14})[?？]?$"
)
_WAYS = (
    "{}的方法",
    "{}有什么方法",
    "{}有什么办法",
    "怎样才能{}",
    "想{}该怎么做",
    "{}的步骤",
    "我想{}，怎么做",
    "{}要怎么操作",
    "要怎么{}",
    "如何才能{}",
    "求{}的方法",
)
_DEEDS_FIRST = re.compile(
    SURE_DEED
    + "|让|把|用|在|快速|正确|彻底|自己|给|学|减|去|治|提|养|预防|保养|区分|制|教|赚|追|防|鉴别|判断|消除|降低|调|建|改"
)


def way_form(text: str, draw: Draw) -> str | None:
    """怎么X -> X的方法, 想X该怎么做."""
    match = _WAY.match(text)
    if not match or not _DEEDS_FIRST.match(match[1]) or match[1].startswith("在"):
        return None
    return draw.rng.choice(_WAYS).format(match[1])


def typo(text: str, draw: Draw) -> str | None:
    """A slip of a pinyin keyboard: another character of the same sound."""
    return replaced(text, draw, "zh_slips")


def punctuation(text: str, draw: Draw) -> str | None:
    """Other end or width."""
    bare = text.rstrip("?？。.! ！")
    options = [
        new
        for new in (bare, bare + "？", bare + "?", bare + "。", bare + "？？", " " + bare)
        if new.strip() != text
    ]
    return draw.rng.choice(options).strip()


def synonym(text: str, draw: Draw) -> str | None:
    """One word for another of the same meaning."""
    return replaced(
        text,
        draw,
        "zh_synonyms",
        re.compile(
            "不可以|可不可以|可以吗|没法|能不能|能够|方法论|不喜欢|有没有|买卖|现在完成|不好意思|有意思|没意思|小意思|什么意思|用户|作用|因为什么|信用|使用权"
        ),
    )


RULES = (
    Rule("question_word_same", "zh", 1, "question_word", same_question_word),
    Rule("way_form", "zh", 1, "question_word", way_form),
    Rule("preamble", "zh", 1, "wording", add_preamble),
    Rule("preamble_dropped", "zh", 1, "wording", drop_preamble),
    Rule("typo", "zh", 1, "wording", typo),
    Rule("punctuation", "zh", 1, "wording", punctuation),
    Rule("synonym", "zh", 1, "word", synonym),
)

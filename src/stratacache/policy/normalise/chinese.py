"""Chinese sentences: what is a question by its words, and what is left open."""

from __future__ import annotations

import re

# 几个人来了 (some came), 哪怕, 多少有点: not every question word asks.
_QUESTION = re.compile(
    "(?:你好,?|请问,?|想问一下,?|帮我看看,?)*+(?:什么是|什么叫|为什么|为何|怎么(?!会|都|也)|如何|怎样|哪(?!怕|里哪里)"
    "|谁(?!都|也)|多少(?!有)|是不是|能不能|会不会|有没有|可不可以|要不要)"
)
_ENDING = re.compile(
    "(?:是谁|怎么办|怎么样|怎么做|如何|多少|多少钱|多久|有哪些|什么意思|哪里|哪个|什么|是不是|行不行|好不好|对不对"
    "|什么区别)$"
)
# 什么都, 谁也, 不管怎样, 没什么, 不怎么样: a question word that asks nothing.
_NO_QUESTION = re.compile(
    "都|也|不管|无论|不论|知道|随便|总是|就|不怎么|不[^,。?!]{0,3}什么|[没无]有?(?:什么|多少|多久|为什么)"
)
_OPEN_END = "是的在和把被为叫有与及或让使给对向从到于不很最更将会能要想说"


def is_question(sentence: str) -> bool:
    """True when a question word or particle makes it one with or without its mark."""
    if sentence.isascii():
        return False
    if sentence.endswith("吗"):
        return True
    if _NO_QUESTION.search(sentence):
        return False
    return bool(_QUESTION.match(sentence) or _ENDING.search(sentence))


def is_finished(sentence: str) -> bool:
    """False when the last character leaves the sentence open, so that without its stop it asks to be continued."""
    return sentence[-1:] not in _OPEN_END

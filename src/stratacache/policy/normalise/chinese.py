"""Chinese sentences: what is a question by its words, and what is left open."""

from __future__ import annotations

import re

_QUESTION = re.compile(
    r"(?:你好,?|请问,?|想问一下,?|帮我看看,?)*+(?:什么是|什么叫|为什么|为何|怎么(?!会|都|也)|如何|怎样|哪(?!里哪里)|谁(?!都|也)|多少|几(?!乎)|是不是|能不能|会不会|有没有|可不可以|要不要)"
)
_ENDING = re.compile(
    r"(?:吗|是什么|是谁|怎么办|怎么样|怎么做|如何|多少|多少钱|多久|有哪些|什么意思|哪里|哪个|几天|几点|为什么|是不是|行不行|好不好|对不对|什么)$"
)
# 什么都, 谁也, 不管怎样: a question word that asks nothing.
_NO_QUESTION = re.compile(r"都|也|不管|无论|不论|知道|[没无]什么|随便|总是|就")
_OPEN_END = "是的在和把被为叫有与及或让使给对向从到于不很最更将会能要想说"


def is_question(sentence: str) -> bool:
    """True when a question word or particle makes it one with or without its mark."""
    if sentence.endswith("吗"):
        return True
    if _NO_QUESTION.search(sentence):
        return False
    return bool(_QUESTION.match(sentence) or _ENDING.search(sentence))


def is_finished(sentence: str) -> bool:
    """False when the last character leaves the sentence open, so that without its stop it asks to be continued."""
    return sentence[-1:] not in _OPEN_END

"""What is told without the model: texts that are no question, personal data in them, and attempts to instruct."""

from __future__ import annotations

import re
from typing import Final

from stratacache.policy.language import language_of

MAX_CHARS: Final = 600
"""A longer text carries material of its own; nobody asks it twice in other words."""

GATES: Final = frozenset({"empty", "no_words", "one_word", "language", "long", "personal_data", "injection"})
"""The reasons of what :func:`gate` refuses."""

_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+", re.ASCII)
# 9 digits or more, as in cards, phones, accounts and Chinese identity numbers; letters and digits as in passports; and
# a shorter number that is called an order, ticket, account or policy.
_LONG_NUMBER = re.compile(r"(?<![\w.])\+?\d(?:[ -]?\d){8,18}[xX]?(?![\w.])", re.ASCII)
_DOCUMENT = re.compile(r"\b[A-Z]{1,3}\d{6,10}\b")
_NAMED_NUMBER = re.compile(
    r"(?i:\b(?:orders?|tickets?|invoice|booking|reservation|account|policy|case|claim|tracking|customer|member|contract)"
    r"\s?(?:number|no\.?|id|nr\.?)?\s?(?:is|:|#)?\s?#?[a-z]{0,4}-?\d{4,})"
    r"|(?:订单|单号|工单|发票号?|保单|账号|帐号|卡号|会员|合同|案件|运单|预订)(?:编?号|号码)?[是为:：\s]{0,3}[A-Za-z]{0,4}-?\d{4,}"
)
_SECRET = re.compile(
    r"\b(?:sk|pk|ghp|gho|xoxb|AKIA)[-_]?[A-Za-z0-9-]{6,}|(?i:\b(?:password|passwd|pin|ssn)\s?(?:is|:|=)\s?\S+)"
    r"|(?:密码|身份证号?)(?:是|为|:|：)\s?\w+"
)
_ADDRESS = re.compile(r"(?i:\bI live (?:at|on) \d|\bmy address is\b)|(?:我住在|我的地址是).*\d")
_INJECTION = re.compile(
    r"(?i:\b(?:ignore|disregard|forget|override|bypass)\b[^.?!]{0,40}"
    r"\b(?:previous|prior|above|earlier|all|your|the|system)\b[^.?!]{0,20}"
    r"\b(?:instruction|prompt|rule|message|direction|context|guideline|polic|safety)"
    r"|\b(?:system prompt|developer mode|jailbreak|do anything now)\b|<\|?/?(?:im_start|im_end|system)|\[/?INST\]"
    r"|\b(?:reveal|print|show|repeat|output)\b[^.?!]{0,20}\b(?:your|the|hidden|initial)\b[^.?!]{0,12}"
    r"\b(?:system|instructions?|prompt)\b)"
    r"|(?:忽略|无视|忘记|忘掉|不要理会|跳过|绕过)[^。？！]{0,20}(?:指令|指示|提示词?|规则|设定|限制|要求|约束)"
    r"|(?:系统提示词?|开发者模式|越狱模式)"
)
_LATIN_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_HAN = re.compile(r"[\u3400-\u9fff]")


def gate(text: str) -> tuple[str, str] | None:
    """``(kind, reason)`` of a text that is not cacheable whatever the model says; None leaves it to the model.

    Linear in ``len(text)``; the reasons are :data:`GATES`.
    """
    if not text.strip():
        return "ambiguous", "empty"
    if len(text) > MAX_CHARS:
        return "context_dependent", "long"
    if _INJECTION.search(text):
        return "context_dependent", "injection"
    if any(
        found.search(text) for found in (_EMAIL, _LONG_NUMBER, _DOCUMENT, _NAMED_NUMBER, _SECRET, _ADDRESS)
    ):
        return "personal", "personal_data"
    language = language_of(text)
    if language == "none":
        return "ambiguous", "no_words"
    han, latin = len(_HAN.findall(text)), len(_LATIN_WORD.findall(text))
    if language not in ("en", "zh") and not (language == "mixed" and han):
        return "ambiguous", "language"
    return ("ambiguous", "one_word") if latin + han <= 1 else None

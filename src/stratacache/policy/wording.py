"""The plain wording of a question: without greeting and thanks, its opening in one of the forms that mean the same.

"Hi, how can I reset my password? Thanks!" and "How do I reset my password?" are one question, by rules so narrow that
no model need be asked. A rule that could change a meaning has no place here: a miss only costs a verification.
"""

from __future__ import annotations

import re

from stratacache.policy.normalise import normalise

MAX_CHARS = 300
"""A longer text is more than one plain question and is only normalised."""

_ENDING = " \t.?!,;~。？！，；～…"

_GREETINGS = (
    # A greeting needs a comma or the like behind it: "hello world in C" greets nobody.
    r"(?:hi|hello|hey|good (?:morning|afternoon|evening))(?: (?:there|all|everyone|team|guys))?\s*[,!.]+\s*"
    r"(?!world\b|kitty\b)",
    r"(?:您好|你好|嗨|大家好|早上好|下午好|晚上好)(?:啊|呀)?\s*[,，!！。.~～ ]+\s*",
)
_OPENINGS = (
    r"please,?\s+(?=(?:tell|explain|what|how|why|where|when|who|which)\b)",
    r"(?:can|could|would) you (?:please )?(?:tell|explain to) me,?\s+(?=(?:what|how|why|where|when|who|which)\b)",
    r"(?:please )?tell me,?\s+(?=(?:what|how|why|where|when|who|which)\b)",
    r"i(?: would|'d) like to know,?\s+(?=(?:what|how|why|where|when|who|which)\b)",
    r"i want to know,?\s+(?=(?:what|how|why|where|when|who|which)\b)",
    r"(?:我)?(?:想|要)?(?:请问|问)(?:一下|下)(?:子)?(?!载|单|架|周|次|午|面)[,，:： ]*(?=.{2})",
    r"请问(?!答|题)[,，:： ]*(?=.{2})",
    r"我?想(?:知道|了解|咨询)(?:一下|下(?!载|单|架|周|次|午|面))?[,，:： ]*(?=.{2})",
    r"麻烦(?:请问|问)(?:一下|下)?[,，:： ]*(?=.{2})",
)
_CLOSINGS = (
    # So does a closing: "how to say thank you" asks about the words.
    r"(?:[,.!?;]+\s*|\s+[-–]\s*)(?:(?:many |lots of )?thanks(?: a lot| so much| in advance)?"
    r"|thank you(?: so much| very much)?|thx)",
    r"[,，.。!！?？;； ~～]+(?:谢谢|多谢|感谢|谢了|麻烦了|拜托了)(?:您|你|大家|啦|了)*",
)
# What is asked of courtesies themselves: "how to say no, thanks".
_ABOUT_WORDS = re.compile(
    r"\b(?:say|said|mean|means|write|reply|respond|answer|translate|phrase|word)|[说写译]|回复|意思"
)
_START = re.compile("|".join(f"(?:{rule})" for rule in (*_GREETINGS, *_OPENINGS)), re.IGNORECASE)
_END = re.compile(f"(?:{'|'.join(_CLOSINGS)})$", re.IGNORECASE)
_PARTICLE = re.compile(r"(?<=[\u4e00-\u9fff])(?:呢|啊|呀|哦|哈)$")

_HOW = re.compile(r"^how (?:(?:do|can) i|to) (?=[a-z])")
_WHAT_IS = re.compile(r"^(what|where|how)'s (?=[a-z])")
_HOW_CHINESE = re.compile(r"如何|怎样|怎么样(?=才)")
_WHY_CHINESE = re.compile(
    r"(?:如何|怎样|怎么)(?:样|说|看|办|回事|不|没|会|还|又|了|这|那)|(?:怎么|如何|怎样|了|的|吗)$"
)


def _is_kept(text: str) -> bool:
    return len(text) > MAX_CHARS or _ABOUT_WORDS.search(text.lower()) is not None


def without_courtesies(text: str) -> str:
    """The question in ``text`` without greeting, thanks and "can you tell me"; "" when there is none.

    Without closing punctuation too. A text that is long, or about words ("how to say no, thanks"), is only that.
    Linear in ``len(text)``.
    """
    text = text.strip().rstrip(_ENDING)
    if _is_kept(text):
        return text
    text = text.replace("\u2019", "'")
    while True:
        shorter = _START.sub("", text, count=1) if _START.match(text) else text
        shorter = _PARTICLE.sub("", _END.sub("", shorter).rstrip(_ENDING))
        if shorter == text:
            return text
        text = shorter


def plain_wording(question: str) -> str:
    """The plain wording; two questions with equal ones ask the same. Pure, idempotent, linear in ``len(question)``.

    It is compared, never sent or shown. Empty when the text holds nothing but courtesies.
    """
    text = normalise(question)
    if _is_kept(text):
        return text
    text = without_courtesies(text)
    lowered = text[:24].lower()
    opening = _HOW.match(lowered) or _WHAT_IS.match(lowered)
    if opening is not None:
        new = "how to " if opening.re is _HOW else f"{opening[1]} is "
        text = new + text[opening.end() :]
    if not _WHY_CHINESE.search(text):
        text = _HOW_CHINESE.sub("怎么", text)
    return text[:1].lower() + text[1:]

"""English sentences: which capitals only mark a beginning, and what is a question by its words."""

from __future__ import annotations

import re

from stratacache.policy.normalise.chars import lexicon

# Closed-class words and plain imperatives. Left out: names and symbols in capital form (Will, May, Can, Us, In,
# As, He, No, Go, Make), which are folded only before a word that settles the reading.
_ALWAYS = lexicon(
    "What How Why When Where Which Who Whose Whom Is Are Was Were Do Does Did Has Have Should Could Would What's",
    "How's Who's Where's When's Why's It's There's That's Isn't Aren't Doesn't Don't Didn't Can't Couldn't Please",
    "Explain Describe Define Compare Discuss Calculate Summarize Summarise Suggest Recommend Provide Write Create",
    "Generate Identify Analyze Analyse Outline Solve Find There This That These Those My Your Our Their The",
)
_BEFORE = {
    "Can": lexicon("I you we they it he she the a an this that these my someone anyone people"),
    "Will": lexicon("I you we they it he she the a an this that these my there"),
    "May": lexicon("I we"),
    "In": lexicon("what which the this a an how order"),
    "List": lexicon("the all some a any three five ten out"),
    "On": lexicon("what which the"),
    "If": lexicon("I you we they it the a an my there someone"),
    "Am": lexicon("I"),
    "Tell": lexicon("me us"),
    "Give": lexicon("me us"),
    "Show": lexicon("me us"),
    "Help": lexicon("me us"),
    "Teach": lexicon("me us"),
    "Let": lexicon("me us"),
    "Make": lexicon("a an me"),
}
_FIRST = re.compile(
    r"([A-Z][a-z]*(?:'[a-z]+)?)(?![A-Za-z0-9'_-])(?! ?[:=])(?: ([A-Za-z]+)(?![A-Za-z0-9_-]))?"
)
_LATER = re.compile(r"(?:(?<=[?!] )|(?<=[a-z]{4}\. ))(?=[A-Z])")
_ASKING = lexicon("what how why when where which who")
_AFTER_ASKING = lexicon("Is Are Was Were Do Does Did To Can Should Could Would Many Much")
_DEEDS = (
    "activate add apply ask avoid become block book build buy calculate call cancel change check choose clean"
    " close connect cook create delete disable do download edit enable enter exchange export find fix get give"
    " go improve increase insert install keep know learn link log lose make move need open order pass pay prepare"
    " prevent protect reach receive recover reduce register remove renew replace report request reset return"
    " run save see sell send set share show sign start stop store study subscribe take teach tell track"
    " transfer travel try turn unblock understand unlock unsubscribe update upgrade upload use verify visit"
    " watch withdraw write"
).replace(" ", "|")
# Before a verb of doing, "i" is the speaker and not the loop variable or the imaginary unit.
_AIDED = "|".join(
    rf"(?<=\b[{w[0].upper()}{w[0]}]{w[1:]} )" for w in ("do", "can", "should", "could", "would", "did")
)
_SPEAKER = re.compile(
    rf"(?:{_AIDED})i(?= (?:{_DEEDS})\b)"
    r"|^i(?= (?:want to|need to|would like|forgot|lost|can't|don't) )|\bi(?='(?:m|ve|d|ll)\b)"
)

_SUBJECT = "i|we|he|she|they|it|the|this|that|these|those|there|my|our|his|her|its|their|anyone|people"
_AUXILIARY = "is|are|was|were|do|does|did|can|could|should|would|will|has|have|had"
_QUESTION = re.compile(
    r"(?:(?:hi|hello|hey|please|so|and|but|ok|okay),? )?(?:"
    rf"(?:what|which|who|whose|whom|why|how|where|when)(?:'s|(?: {_AUXILIARY.replace('|', '| ')}))\b"
    r"|(?:who|what) (?:happens|happened|causes|caused|makes|made|invented|discovered|wrote|painted|won|owns|founded) "
    r"|how (?:to|many|much|long|far|old|often|big|tall|fast) |(?:what|which|where|when) to "
    r"|(?:what|which) (?:kind|kinds|type|types|time|year|day|country|countries|city|language|languages|companies) "
    rf"|(?:is|was) (?:{_SUBJECT})\b|(?:are|were|does|did|can|could|would|will) (?:you|an?|{_SUBJECT})\b"
    rf"|should (?:an?|{_SUBJECT})\b|has (?:he|she|it|there|anyone)\b"
    r"|(?:do|have) (?:i|you|we|they|people)\b|do (?:these|those)\b)",
    re.IGNORECASE,
)
_UNFINISHED = lexicon(
    "a an the of to in on at by for from with and or but nor so as is are was were be been am do does did has have",
    "had can could will would shall should may might must not than that which who whose if when because very more",
    "most too my your his her its our their i you he she we they into about between this these those called named",
    "said like no such only also",
)
_LAST_WORD = re.compile(r"[A-Za-z']+$")


def fold_case(line: str, *, first: bool) -> str:
    """Lower-case capitals that only mark the beginning of a sentence; the pronoun "i" becomes "I".

    ``first``: the piece of prose begins the text, so its own first word begins a sentence.
    """
    if " i " in line or "i'" in line or line.startswith("i "):
        line = _SPEAKER.sub("I", line)
    starts = [0] if first and line[:1].isupper() else []
    if "? " in line or "! " in line or ". " in line:
        starts += [m.start() for m in _LATER.finditer(line)]
    pieces: list[str] = []
    done = 0
    for start in starts:
        opening = _lower_opening(line, start)
        pieces += [line[done:start], opening]
        done = start + len(opening)
    return "".join([*pieces, line[done:]])


def _lower_opening(line: str, start: int) -> str:
    """The lower-cased first word (with the second of "What Is") of the sentence at ``start``; "" to leave it."""
    match = _FIRST.match(line, start)
    if not match:
        return ""
    word, follower = match[1], match[2] or ""
    if word not in _ALWAYS and follower not in _BEFORE.get(word, ()):
        return ""
    lower = word.lower()
    return f"{lower} {follower.lower()}" if lower in _ASKING and follower in _AFTER_ASKING else lower


def is_question(sentence: str) -> bool:
    """True when word order makes it a question with or without its mark; "You like it?" is not one."""
    return _QUESTION.match(sentence) is not None


def is_finished(sentence: str) -> bool:
    """False when the last word leaves the sentence open, so that without a full stop it asks to be continued."""
    word = _LAST_WORD.search(sentence[-24:])
    return word is None or word[0].lower() not in _UNFINISHED

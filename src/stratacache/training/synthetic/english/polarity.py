"""English polarity: negation, antonyms, quantifiers and superlatives, and their meaning-preserving look-alikes."""

from __future__ import annotations

import re

from stratacache.training.synthetic.english.lists import replaced
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import like, one_of, spliced, words_in

_AUXILIARY = {
    "do": "don't",
    "does": "doesn't",
    "did": "didn't",
    "is": "isn't",
    "are": "aren't",
    "was": "wasn't",
    "were": "weren't",
    "can": "can't",
    "could": "couldn't",
    "should": "shouldn't",
    "would": "wouldn't",
    "has": "hasn't",
    "will": "won't",
}
_PLAIN = {negated: plain for plain, negated in _AUXILIARY.items()} | {"cannot": "can"}
_LONG_FORM = {negated: f"{plain} not" for plain, negated in _AUXILIARY.items()} | {"can't": "cannot"}
# Here a negation is not about the verb, or is no negation at all.
_NO_NEGATION = re.compile(
    r"\b(?:not only|not just|why not|or not|if not|not to mention|can't (?:help|wait|stand)|cannot (?:help|wait)"
    r"|don't (?:you|they|we) think|not yet|no one|nothing|never|neither|nor|n't any|unless)\b"
    r"|\b(?:anyone|anything|anybody|any|even|yet|either|too)\b",
    re.I,
)
_WHY = re.compile(r"^(why) (do|does|did|is|are|was|were|can|could|should|would|has|will)\b(?!n't| not)", re.I)
_HOW_TO = re.compile(r"^(how) (to) (?=[a-z]+ )", re.I)
_WHAT_SHOULD = re.compile(
    r"^((?:what|which [a-z]+|who|when|where) (?:should|can|could) (?:i|we|you|one)) (?!not\b)", re.I
)
_IF = re.compile(
    r"\b(what (?:will |would )?happens? if (?:i|we|you|they)) (?=[a-z]+ )(?!am|are|was|were|had|have|did|can|could)",
    re.I,
)
_NEGATED = re.compile(
    r"\b(can't|cannot|don't|doesn't|didn't|isn't|aren't|wasn't|won't|couldn't|hasn't)\b", re.I
)
_WITHOUT = re.compile(r"\bwithout (?=(?:a|an|the|my|your|using|any)?\b ?[a-z])", re.I)
_POLAR = re.compile(r"^(do|does|did|is|are|was|were|can|could|should|would|has|will)\b(?!n't| not)", re.I)


def _has_negation(text: str) -> bool:
    return bool(
        _NEGATED.search(text) or re.search(r"\b(?:not|no|without)\b", text, re.I) or _NO_NEGATION.search(text)
    )


def add_negation(text: str, draw: Draw) -> str | None:
    """Why does -> why doesn't; how to -> how not to; what should I -> what should I not; happens if I -> if I don't.

    Only where the negated question has another answer: "Can I" and "Can't I" ask the same.
    """
    if _has_negation(text) or re.search(r" or | and (?:how|why|what|do)\b", text):
        return None
    return (
        one_of(text, draw, _WHY, lambda m: f"{m[1]} {_AUXILIARY[m[2].lower()]}")
        or one_of(text, draw, _HOW_TO, lambda m: f"{m[1]} not {m[2]} ")
        or one_of(text, draw, _WHAT_SHOULD, lambda m: f"{m[1]} not ")
        or one_of(text, draw, _IF, lambda m: f"{m[1]} don't ")
    )


def remove_negation(text: str, draw: Draw) -> str | None:
    """Why can't I -> why can I; my card isn't -> my card is; without a passport -> with a passport."""
    if _NO_NEGATION.search(text) or len(_NEGATED.findall(text)) > 1:
        return None
    found = _NEGATED.search(text)
    if re.search(r"[,.;?!].", text):
        return None  # one clause: elsewhere the negation may not decide the answer
    polar = found and found.start() == 0
    if found and not polar and not re.search(r"\bdidn't\b|\bdo(?:es)?n't (?:have to|need)", text, re.I):
        plain = _PLAIN[found[1].lower()]
        after = text[found.end() :]
        asked = re.search(r"(?:why|how|what|who|when|where|which \w+)$", text[: found.start()].rstrip(), re.I)
        if re.match(r" (?:it|this|that|there|he|she|they|we|you|i|the|my)\b", after, re.I) and not asked:
            return None  # inverted: a polar question within
        subject_before = re.search(
            r"(?:^|[ ,.])(?:why|how|what|when|where|who|which|do|so)(?: come)?$",
            text[: found.start()].rstrip(),
            re.I,
        )
        if plain in {"do", "does", "did"} and not subject_before:
            return text[: found.start()] + after.lstrip() if plain == "do" else None
        return spliced(text, found.span(), like(found[1], plain))
    if found:
        return None
    return one_of(text, draw, _WITHOUT, lambda m: None if text[m.end() :].startswith("any") else "with ")


def negated_polar(text: str, draw: Draw) -> str | None:
    """Can I -> can't I; is it -> isn't it: a negated yes-no question asks the same."""
    if _has_negation(text) or " or " in text or not text.rstrip().endswith("?"):
        return None
    return one_of(text, draw, _POLAR, lambda m: like(m[1], _AUXILIARY[m[1].lower()]))


def expand_negation(text: str, draw: Draw) -> str | None:
    """can't -> cannot, is not able to -> cannot, unable to -> can't: negated as before."""
    why = re.compile(r"^(why) (?:can't|cannot) (i|we|you|they|he|she)\b", re.I)
    be = {"i": "am I", "we": "are we", "you": "are you", "they": "are they", "he": "is he", "she": "is she"}
    unable = one_of(
        text, draw, why, lambda m: f"{m[1]} {be[m[2].lower()]} {draw.rng.choice(['unable', 'not able'])} to"
    )
    if unable and draw.rng.random() < 0.6:
        return unable

    def long_form(match: re.Match[str]) -> str | None:
        word = match[1].lower()
        before = text[: match.start()].rstrip().lower()
        if (
            word not in _LONG_FORM
            or before == ""
            or before.endswith(("why", "how", "who", "what", "which", "where", "when"))
        ):
            return None  # inverted word order: "why do not I" is no English
        return like(match[1], _LONG_FORM[word])

    statement = re.compile(r"\b(i|we|you|they) (?:can't|cannot)(?= [a-z]+)", re.I)
    to_be = {"i": "am", "we": "are", "you": "are", "they": "are"}
    return (
        one_of(text, draw, _NEGATED, long_form)
        or one_of(text, draw, statement, lambda m: f"{m[1]} {to_be[m[1].lower()]} unable to")
        or unable
    )


def contract_negation(text: str, draw: Draw) -> str | None:
    """cannot -> can't, do not -> don't, is not -> isn't."""
    short = {long: negated for negated, long in _LONG_FORM.items()} | {"can not": "can't"}
    pattern = re.compile(r"\b(" + "|".join(short) + r")\b(?! only| just)", re.I)
    return one_of(text, draw, pattern, lambda m: like(m[1], short[m[1].lower()]))


_DOUBLE = (
    ("impossible", "not possible"),
    ("possible", "not impossible"),
    ("legal", "not illegal"),
    ("allowed", "not forbidden"),
    ("permitted", "not prohibited"),
    ("illegal", "not legal"),
    ("unsafe", "not safe"),
    ("invalid", "not valid"),
    ("unable", "not able"),
    ("incorrect", "not correct"),
    ("unavailable", "not available"),
    ("unlikely", "not likely"),
    ("not working", "failing to work"),
    ("incompatible", "not compatible"),
    ("unhealthy", "not healthy"),
    ("unnecessary", "not necessary"),
    ("always", "never not"),
    ("uncommon", "not common"),
)


def double_negation(text: str, draw: Draw) -> str | None:
    """legal -> not illegal, impossible -> not possible, after "is it" or another form of be."""
    pairs = {a: b for a, b in _DOUBLE if draw.allows(f"double {a}")}
    found = words_in(text, pairs) if pairs else []
    for match in found:
        if re.search(
            r"\b(?:is|are|was|be|am)(?: (?:it|this|that|he|she|they|i))?$",
            text[: match.start()].rstrip(),
            re.I,
        ):
            return spliced(text, match.span(), pairs[match[0].lower()])
    return None


_NO_ANTONYM = re.compile(
    (
        r"\bor\b|\bvs\b|\bversus\b|\band\b|\bboth\b|how (?:good|bad|easy|hard|safe|"
        r"big|small|fast)|difference|\bto and from"
    ),
    re.I,
)


def antonym(text: str, draw: Draw) -> str | None:
    """One verb, adjective or noun becomes its opposite. Not beside and/or: "open or close" may hold both."""
    if _NO_ANTONYM.search(text):
        return None
    return replaced(text, draw, "en_antonyms")


_NO_QUANTIFIER = re.compile(
    r"\b(?:at all|all right|after all|all of a sudden|above all|all about|all over|"
    r"of all|all in|all the time|how (?:many|much|often)"
    r"|so many|as many|too many|not all|not only|not every|if only|only one|the only|"
    r"every day|every other|any more|once and for all"
    r"|all the best|no more|or more|more or less|the most|all kinds|all sorts|not always|you all|all-|all day"
    r"|up to (?:you|me|him|her|us|them|date|now|speed|something)|you up to"
    r"|(?:sign|add|look|live|come|go|give|keep) up to|all (?:that|this|it)"
    r"|above (?:mentioned|average|ground)|once (?:upon|i|you|we|they|he|she|it|the)"
    r"|double (?:major|check|spac)|single (?:mother|father|parent)"
    r"|one day|(?:first|second|other|better|last|next) half)\b",
    re.I,
)


def quantifier(text: str, draw: Draw) -> str | None:
    """all -> some, always -> never, at least -> at most, everyone -> no one, more than -> less than (a number)."""
    return None if " or " in text else replaced(text, draw, "en_quantifiers", _NO_QUANTIFIER)


def same_quantifier(text: str, draw: Draw) -> str | None:
    """always -> at all times, at least 5 -> a minimum of 5, everyone -> everybody."""
    return replaced(text, draw, "en_quantifiers_same", _NO_QUANTIFIER)


def superlative(text: str, draw: Draw) -> str | None:
    """the largest -> the smallest, best -> worst."""
    return (
        None
        if re.search(r"\bor\b|\band\b|\bleast\b", text, re.I)
        else replaced(text, draw, "en_superlatives")
    )


def same_superlative(text: str, draw: Draw) -> str | None:
    """largest -> biggest, fastest -> quickest."""
    return replaced(text, draw, "en_superlatives_same")


RULES = (
    Rule("negation_added", "en", 0, "negation", add_negation),
    Rule("negation_removed", "en", 0, "negation", remove_negation),
    Rule("negation_polar", "en", 1, "negation", negated_polar),
    Rule("negation_expanded", "en", 1, "negation", expand_negation),
    Rule("negation_contracted", "en", 1, "negation", contract_negation),
    Rule("double_negation", "en", 1, "negation", double_negation),
    Rule("antonym", "en", 0, "word", antonym),
    Rule("quantifier", "en", 0, "quantifier", quantifier),
    Rule("quantifier_same", "en", 1, "quantifier", same_quantifier),
    Rule("superlative", "en", 0, "superlative", superlative),
    Rule("superlative_same", "en", 1, "superlative", same_superlative),
)

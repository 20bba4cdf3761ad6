"""English wording: preambles, keywords, question forms, synonyms, contractions, typos: the meaning stays."""

from __future__ import annotations

import re
from functools import cache

from stratacache.training.synthetic.english.lists import replaced
from stratacache.training.synthetic.lexicon import groups, rows
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import first_lower, first_upper, like, one_of, spliced, words_in

_QUESTION = re.compile(r"^(?:how|what|why|where|when|which|who|is|are|can|do|does|should|did|will)\b", re.I)
_SEVERAL = re.compile(r"[.!?].*[?.!]")
_DIRECT = (
    "Please tell me: ",
    "Hi, ",
    "Hello, ",
    "Quick question: ",
    "Excuse me, ",
    "Hi there! ",
    "I have a question. ",
    "Just wondering, ",
    "Sorry to bother you, but ",
    "I was wondering, ",
    "Good morning. ",
    "Hey, ",
    "Can anyone help? ",
    "Question: ",
)
_THANKS = (
    " Thanks!",
    " Thank you.",
    " Please help.",
    " Thanks in advance.",
    " Any help is appreciated.",
    " Please advise.",
)
_INDIRECT = (
    "Could you tell me ",
    "Can you please tell me ",
    "Do you know ",
    "Please explain ",
    "I'd like to know ",
    "I want to know ",
    "May I ask ",
)


def add_preamble(text: str, draw: Draw) -> str | None:
    """Hi, ... ; ... Thanks!; could you tell me how to ...: courtesy asks nothing."""
    if not _QUESTION.match(text) or len(text) > 110:
        return None
    kind = draw.rng.random()
    told = re.match(r"(how) (?:do|can|should) (?:i|you|we) (.+?)\??$", text, re.I)
    subject = re.match(
        r"(what|who|where) (is|are|was|were) ((?:the|an?|my|your) [\w' ]{3,50}?)\?$", text, re.I
    )
    if kind < 0.5 and told and not _SEVERAL.search(text):
        opening = draw.rng.choice(_INDIRECT)
        return f"{opening}how to {told[2]}{'?' if opening[0] in 'CDM' else '.'}"
    if kind < 0.5 and subject and " that " not in text and " who " not in text:
        opening = draw.rng.choice(_INDIRECT)
        return f"{opening}{subject[1].lower()} {subject[3]} {subject[2]}{'?' if opening[0] in 'CDM' else '.'}"
    if kind < 0.75:
        opening = draw.rng.choice(_DIRECT)
        return opening + (first_upper(text) if opening.rstrip()[-1] in ".!?" else first_lower(text))
    return text.rstrip() + draw.rng.choice(_THANKS)


_STOP = frozenset(
    [
        "how",
        "do",
        "does",
        "did",
        "i",
        "you",
        "we",
        "one",
        "can",
        "could",
        "should",
        "would",
        "is",
        "are",
        "was",
        "were",
        "the",
        "a",
        "an",
        "to",
        "my",
        "me",
        "it",
        "of",
        "please",
        "what",
        "there",
        "am",
        "be",
        "will",
        "some",
        "any",
        "which",
        "that",
        "this",
        "your",
        "our",
    ]
)
_CARRIES = re.compile(
    r"\b(?:not|no|never|without|or|and|than|from|to .* from|before|after|who|whom|"
    r"by|if|why|when|vs|someone|only|all|most|his|her|their|your"
    r"|against|between|over|under|while|as|but|unless|because|until|n't)\b|n't|['\"(),]",
    re.I,
)
_HOW = re.compile(
    r"^(?:how (?:do|can|could|should|would) (?:i|you|we|one)|how to|what is the (?:best )?way to) (.{6,60}?)\??$",
    re.I,
)


def keywords(text: str, draw: Draw) -> str | None:
    """How do I reset my wifi router? -> reset wifi router how to; wifi router reset stays with the grammar."""
    match = _HOW.match(text)
    if not match or _CARRIES.search(match[1]):
        return None
    kept = [word for word in match[1].split() if word.lower() not in _STOP]
    if not 2 <= len(kept) <= 7:
        return None
    phrase = " ".join(kept)
    form = draw.rng.choice(
        ("{} how to", "how to {}", "{} how", "{}?", "how {}", "{} steps", "{} guide", "help {}")
    )
    return form.format(phrase).lower() if draw.rng.random() < 0.7 else first_upper(form.format(phrase))


_WHAT_IS = re.compile(r"^what (?:is|are|was|were) (?:the |an? )?([\w' -]{4,50}?)\??$", re.I)


def keyword_fact(text: str, draw: Draw) -> str | None:
    """What is the capital of France? -> capital of France; France capital."""
    match = _WHAT_IS.match(text)
    if not match or re.search(
        r"\b(?:not|or|and|than|to|from|that|it|like|you|your|i|if|when|who|this|there|some|best|good)\b",
        match[1],
        re.I,
    ):
        return None
    phrase = match[1].strip()
    if len(phrase.split()) < 3:
        return None
    of = re.fullmatch(r"(\w+) of (?:the |an? )?(\w+(?: \w+)?)", phrase)
    options = [phrase, f"{phrase}?", f"tell me the {phrase}"] + (
        [f"{of[2]} {of[1]}", f"{of[1]} {of[2]}"] if of else []
    )
    chosen = draw.rng.choice(options)
    return chosen if draw.rng.random() < 0.5 else chosen.lower()


_TO_STEPS = re.compile(
    (
        r"^how (?:do|can|could) (?:i|you|we|one) (?!know|tell|feel|say|think|become|"
        r"love|avoid|stop|get over)([a-z]+ .{4,80}?)\?$"
    ),
    re.I,
)
_WAYS = (
    "What is the way to {}?",
    "What are the steps to {}?",
    "What do I need to do to {}?",
    "What should I do to {}?",
    "How to {}?",
    "In what way can I {}?",
    "How could I {}?",
    "What is a good way to {}?",
    "How would I go about it if I want to {}?",
    "What's the procedure to {}?",
    "I need to {}. How?",
    "Steps to {}",
    "Ways to {}",
    "How can one {}?",
    "What can I do to {}?",
)


def how_otherwise(text: str, draw: Draw) -> str | None:
    """How do I X -> what is the way to X, steps to X, how to X."""
    match = _TO_STEPS.match(text)
    if not match or _SEVERAL.search(text) or re.search(r"\bi\b(?!n)|\bor\b|\bif\b|,", match[1], re.I):
        return None
    return draw.rng.choice(_WAYS).format(match[1])


@cache
def _forms() -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    return tuple((re.compile(row[0], re.I), tuple(row[1].split(" | "))) for row in rows("en_forms"))


def question_otherwise(text: str, draw: Draw) -> str | None:
    """Other forms of one question: what does X mean -> what is the meaning of X."""
    if _SEVERAL.search(text) or "," in text:
        return None
    matching = [(match, forms) for match, forms in ((p.match(text), forms) for p, forms in _forms()) if match]
    if not matching:
        return None
    match, forms = draw.rng.choice(matching)
    if re.search(r"\bdiffer", forms[0]) and " and " not in match[1]:
        return None
    return draw.rng.choice(forms).format(*([match[0], *match.groups()]))


_CONTRACTIONS = {
    "what is": "what's",
    "how is": "how's",
    "it is": "it's",
    "i am": "I'm",
    "i have": "I've",
    "i will": "I'll",
    "who is": "who's",
    "where is": "where's",
    "that is": "that's",
    "there is": "there's",
    "you are": "you're",
    "they are": "they're",
    "we are": "we're",
    "i would": "I'd",
    "want to": "wanna",
    "going to": "gonna",
}


def contract(text: str, draw: Draw) -> str | None:
    """what is -> what's, and back."""
    expanded = {short: long for long, short in _CONTRACTIONS.items()}
    table = {**_CONTRACTIONS, **{short.lower(): long for short, long in expanded.items()}}
    table = {key: new for key, new in table.items() if key != "i have"}
    found = [
        m
        for m in words_in(text, table)
        if text[m.end() : m.end() + 1] == " "
        and not re.match(r" (?:been|got|it|going to (?:a|the|my)\b)", text[m.end() :])
    ]
    if not found or any(
        m[0].lower().endswith("going to") and re.match(r" (?:a|an|the|my|[A-Z])", text[m.end() :])
        for m in found
    ):
        return None
    match = draw.rng.choice(found)
    if match[0].lower() == "i'd" or text[: match.start()].rstrip().lower().endswith(("than", "as")):
        return None
    new = table[match[0].lower()]
    return spliced(text, match.span(), like(match[0], new if not new.startswith("i ") else "I" + new[1:]))


def synonym(text: str, draw: Draw) -> str | None:
    """One word for another of the same meaning, from a list of words with one sense."""
    return replaced(text, draw, "en_synonyms")


_LONG_WORD = re.compile(r"(?<![\w'-])[a-z]{7,}(?![\w'-])")


def typo(text: str, draw: Draw) -> str | None:
    """One letter doubled, dropped or exchanged inside a long word written small."""

    def new(match: re.Match[str]) -> str | None:
        word = match[0]
        if re.search(r"^(?:un|in|im|dis|non|de)|(?:less|ful)$", word) or words_in(word, _all_names()):
            return None  # a slip there may read as another word
        place = draw.rng.randrange(2, len(word) - 2)
        kind = draw.rng.random()
        if kind < 0.4:
            return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        return word[:place] + word[place + 1 :] if kind < 0.7 else word[:place] + word[place] + word[place:]

    return one_of(text, draw, _LONG_WORD, new)


def _all_names() -> tuple[str, ...]:
    return tuple(member for members in groups("en_entities").values() for member in members)


def punctuation(text: str, draw: Draw) -> str | None:
    """Other case, end or spacing."""
    bare = text.rstrip("?.! ")
    options = (
        text.lower(),
        bare,
        bare.lower(),
        bare + "??",
        bare + " ?",
        text.upper(),
        bare.lower() + " ?",
        bare + ".",
    )
    return draw.rng.choice([new for new in options if new != text] or [None])


_FILLERS = re.compile(
    (
        r" \b(?:really|actually|just|basically|exactly|currently|ever|please|simply|"
        r"quickly|properly)\b(?= [a-z])|^(?:so|well|ok|okay|hi|hello|hey),? "
    ),
    re.I,
)


def drop_filler(text: str, draw: Draw) -> str | None:
    """Without really, actually, just, exactly."""
    if re.search(
        (
            r"\bnot (?:really|just|exactly)|why (?:just|only)|just (?:a|one|the)\b|exactly (?:\d|"
            r"one|two)|ever (?:been|done|had|seen|wanted)|(?:is|are|was|best|worst|\w+est \w+)"
            r" ever\b"
        ),
        text,
        re.I,
    ):
        return None
    words = re.compile(r" (?:really|actually|basically|exactly|please)(?= [a-z])", re.I)
    return one_of(text, draw, words, lambda _: "")


RULES = (
    Rule("preamble", "en", 1, "wording", add_preamble),
    Rule("keywords", "en", 1, "order", keywords),
    Rule("keyword_fact", "en", 1, "order", keyword_fact),
    Rule("how_otherwise", "en", 1, "question_word", how_otherwise),
    Rule("question_otherwise", "en", 1, "question_word", question_otherwise),
    Rule("contraction", "en", 1, "wording", contract),
    Rule("synonym", "en", 1, "word", synonym),
    Rule("typo", "en", 1, "wording", typo),
    Rule("punctuation", "en", 1, "wording", punctuation),
    Rule("filler_dropped", "en", 1, "wording", drop_filler),
)

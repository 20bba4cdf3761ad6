"""English context: a modifier, time, audience, person or question word that decides, and ones that do not."""

from __future__ import annotations

import re
from collections.abc import Callable

from stratacache.training.synthetic.english.lists import replaced
from stratacache.training.synthetic.lexicon import rows
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import first_lower, like, one_of, spliced, words_in


def _ended(text: str, addition: str) -> str:
    body = text.rstrip()
    end = re.search(r"[?.!]*$", body)
    assert end
    return f"{body[: end.start()].rstrip()} {addition}{end[0]}"


_ADVICE = re.compile(
    (
        r"(?:how (?:do|can|should|to|could) |what (?:should|can|could) (?:i|we|you)"
        r" |what (?:is|are) (?:the |some )?(?:best|good|easiest|fastest|foods?)|which (?:is|"
        r"are) the|where (?:can|should|do) i )"
    ),
    re.I,
)


def _modifiers(text: str) -> list[str]:
    """The endings that change the answer, of the topics that the text is about."""
    if (
        len(text) > 90
        or re.search(r"[.!?].*[?.!]|[,:\"]", text)
        or not _ADVICE.match(text)
        or re.search(r"\b(?:for|without|while|when|if|after|during|difference)\b", text, re.I)
    ):
        return []
    return [
        addition
        for trigger, additions in rows("en_modifiers")
        if re.search(trigger, text, re.I)
        for addition in additions.split("|")
        if not set(addition.split()[-1:]) & set(text.lower().split())
    ]


def add_modifier(text: str, draw: Draw) -> str | None:
    """A condition on whom, where or with what, of a kind the topic makes decisive: medicine while pregnant."""
    options = [addition for addition in _modifiers(text) if draw.allows(f"modifier {addition}")]
    return _ended(text, draw.rng.choice(options)) if options else None


def swap_modifier(text: str, draw: Draw) -> tuple[str, str] | None:
    """Two conditions that each change the answer: while pregnant -> with diabetes."""
    options = _modifiers(text)
    if len(options) < 2:
        return None
    one, other = draw.rng.sample(options, 2)
    if one == other or not draw.allows(f"modifier {one}", f"modifier {other}"):
        return None
    return _ended(text, one), _ended(text, other)


_FRONTED = re.compile(r"(?:for|with|without|while|after|before|in|as|at|on|during|if|under)\b")


def move_modifier(text: str, draw: Draw) -> tuple[str, str] | None:
    """A condition that decides, put first or said in other words: while pregnant -> during pregnancy."""
    options = [addition for addition in _modifiers(text) if draw.allows(f"modifier {addition}")]
    if not options:
        return None
    addition = draw.rng.choice(options)
    ended = _ended(text, addition)
    said = replaced(addition, Draw(draw.rng, "train"), "en_modifiers_same")
    if said and draw.rng.random() < 0.6:
        return ended, _ended(text, said)
    if not _FRONTED.match(addition):
        return None
    return ended, f"{addition[0].upper()}{addition[1:]}, {first_lower(text)}"


def add_adjective(text: str, draw: Draw) -> str | None:
    """best laptop -> best gaming laptop: the noun is narrowed to another answer."""
    kinds = {noun: adjectives.split("|") for noun, adjectives in rows("en_narrowed")}
    for match in words_in(text, kinds):
        before = text[: match.start()].rstrip().lower()
        usable = [
            a
            for a in kinds[match[0].lower()]
            if draw.allows(f"narrowed {a} {match[0].lower()}") and a not in text.lower()
        ]
        if usable and re.search(
            (
                r"\b(?:best|buy|good|cheap|rent|sell|cook|make|choose|clean|fix|open|apply for|"
                r"insure|hire|pay for)(?: an?| the| my)?$"
            ),
            before,
        ):
            new = draw.rng.choice(usable)
            if before.endswith((" a", " an")) and (new[0] in "aeiou") != before.endswith(" an"):
                continue
            return spliced(text, match.span(), f"{new} {match[0]}")
    return None


_EMPTY_ENDS = (
    "exactly",
    "please",
    "step by step",
    "these days",
    "actually",
    "if possible",
    "in general",
    "in detail",
    "nowadays",
    "do you think",
    "as of now",
    "in your opinion",
    "for me",
)


def add_nothing(text: str, draw: Draw) -> str | None:
    """An ending that asks nothing more: exactly, in general, step by step."""
    if (
        len(text) > 90
        or re.search(r"[.!?].*[?.!]|[,:\"]", text)
        or not re.match(r"(?:how|what|which|where)\b", text, re.I)
    ):
        return None
    how = ("step by step", "exactly", "in general", "if possible", "in detail", "please")
    return _ended(
        text,
        draw.rng.choice(
            how
            if re.match(r"how (?:do|can|to)\b", text, re.I)
            else ("exactly", "in general", "please", "actually")
        ),
    )


_NO_TIME = re.compile(
    (
        r"day after|after all|before and after|look after|named after|day before|after effects|"
        r"soon after|shortly after|(?:should|would|could|might|must|may|not|to) have been|good (?:morning|night)|may\b"
    ),
    re.I,
)


def change_time(text: str, draw: Draw) -> str | None:
    """before -> after, last week -> next week, Monday -> Thursday."""
    return None if re.search(r"\bor\b|\band\b", text, re.I) else replaced(text, draw, "en_times", _NO_TIME)


def same_time(text: str, draw: Draw) -> str | None:
    """before -> prior to, every day -> daily, Monday -> on Monday's short form."""
    return replaced(text, draw, "en_times_same", _NO_TIME)


def change_audience(text: str, draw: Draw) -> str | None:
    """for beginners -> for experts, for kids -> for adults."""
    return (
        None
        if re.search(r"\bor\b|\band\b|\bto\b.*\bfrom\b", text, re.I)
        else replaced(text, draw, "en_audiences")
    )


def same_audience(text: str, draw: Draw) -> str | None:
    """beginners -> newbies, kids -> children."""
    return replaced(text, draw, "en_audiences_same")


_MAY_I = re.compile(
    r"^(can|may|should|must|am i allowed to|could) (i)\b(?! (?:ask|please|get some|have some|know))", re.I
)
_OTHERS = (
    "my landlord",
    "my employer",
    "my doctor",
    "the police",
    "my parents",
    "my bank",
    "a stranger",
    "my teacher",
    "the seller",
    "my husband",
    "my roommate",
    "my tenant",
    "my ex-wife",
    "a tourist",
    "my neighbor",
    "a minor",
    "my school",
    "the government",
    "an airline",
    "my insurance company",
    "my customers",
    "a debt collector",
    "my grandmother",
)
_OWNERS = (
    "someone else's",
    "my boss's",
    "my neighbor's",
    "my ex's",
    "a stranger's",
    "my daughter's",
    "my late father's",
    "my client's",
    "my employee's",
    "my girlfriend's",
    "a friend's",
    "my tenant's",
)
_MY_DATA = re.compile(
    (
        r"\bmy (?=(?:\w+ )?(?:account|password|pin|card|balance|passcode|phone|email|"
        r"address|statement|salary|passport|bank details)\b)"
    ),
    re.I,
)


_ACCESS = re.compile(
    r"^(?:how|where|can|what) .*\b(?:access|check|see|view|read|reset|change|log|close|get into|find out)\b",
    re.I,
)


def change_person(text: str, draw: Draw) -> str | None:
    """Can I -> can my landlord; my password -> someone else's password: who asks decides the answer."""
    if re.search(r"\b(?:me|mine|myself|i'm|i've)\b", text, re.I):
        return None
    usable = [other for other in _OTHERS if draw.allows(f"person {other}")]
    if len(re.findall(r"\b(?:i|my)\b", text, re.I)) == 1 and usable:
        moved = one_of(
            text,
            draw,
            _MAY_I,
            lambda m: None if m[1].lower().startswith("am") else f"{m[1]} {draw.rng.choice(usable)}",
        )
        if moved:
            return moved
    if not _ACCESS.search(text):
        return None  # a fault is explained alike whosever it is; access is not
    owners = [owner for owner in _OWNERS if draw.allows(f"owner {owner}")]
    if not owners or len(re.findall(r"\bmy\b", text, re.I)) > 1:
        return None
    return one_of(text, draw, _MY_DATA, lambda m: f"{draw.rng.choice(owners)} ")


_ONE = re.compile(
    r"^(how|where|when|what) (do|can|should|could) i\b(?! should)(?! (?:get|make|stop) (?:my|over|rid))", re.I
)


def same_person(text: str, draw: Draw) -> str | None:
    """How do I -> how do you, how does one: nobody in particular is meant."""
    if (
        re.search(r"\b(?:me|mine|myself|my|i'm|i've|i'll|you|your|we)\b", text, re.I)
        or len(re.findall(r"\bi\b", text, re.I)) > 1
    ):
        return None

    def new(match: re.Match[str]) -> str | None:
        verb = match[2].lower()
        one = "does one" if verb == "do" else f"{verb} one"
        return f"{match[1]} {draw.rng.choice([f'{verb} you', f'{verb} we', one])}"

    return one_of(text, draw, _ONE, new)


_HOW_I = re.compile(r"^(how) (do|can|should) (i|we|you)\b(?! (?:know|feel|tell|like|think|say))", re.I)
_WHO_DID = re.compile(
    r"^(who) (invented|discovered|wrote|built|founded|created|designed|painted|killed) (.{3,50}?)\??$", re.I
)
_WHY_DO = re.compile(r"^(why) (do|does|did) (?!n't|not)", re.I)
_WHERE_WHEN = re.compile(r"^(where|when) (is|was|were|did|does|do|can|will) ", re.I)
_HOW_MUCH = re.compile(
    r"^(how) (long|old|much|often|far|tall|big|fast) (?=(?:is|are|was|does|do|did|can|should)\b)", re.I
)


def change_question_word(text: str, draw: Draw) -> str | None:
    """How do I -> why should I, when should I; who wrote -> when was ... written; how long -> how often."""
    if re.search(r"\b(?:and|or) (?:how|why|when|where|what|who)\b|[.!?].*[?.!]", text, re.I):
        return None

    def who(match: re.Match[str]) -> str | None:
        verb = {"wrote": "written"}.get(match[2].lower(), match[2].lower())
        return (
            None
            if re.search(r"\b(?:in|how|why)\b", match[3])
            else f"{draw.rng.choice(['When', 'Where'])} was {match[3]} {verb}?"
        )

    def measure(match: re.Match[str]) -> str | None:
        others = {"long": "often", "often": "long", "old": "tall", "tall": "old", "fast": "big", "big": "old"}
        return f"{match[1]} {others[match[2].lower()]} " if match[2].lower() in others else None

    options: tuple[Callable[[], str | None], ...] = (
        lambda: one_of(
            text,
            draw,
            _HOW_I,
            lambda m: like(
                m[1], draw.rng.choice([f"why should {m[3]}", f"when should {m[3]}", f"why do {m[3]}"])
            ),
        ),
        lambda: one_of(text, draw, _WHO_DID, who),
        lambda: one_of(
            text,
            draw,
            _WHY_DO,
            lambda m: like(m[1], f"{draw.rng.choice(['how often', 'when', 'where'])} {m[2]} "),
        ),
        lambda: one_of(
            text,
            draw,
            _WHERE_WHEN,
            lambda m: f"{like(m[1], {'where': 'when', 'when': 'where'}[m[1].lower()])} {m[2]} ",
        ),
        lambda: one_of(text, draw, _HOW_MUCH, measure),
    )
    return next((new for new in (option() for option in options) if new), None)


_NEED = re.compile(
    (
        r"\b((?:need|require|requires|bring|both|requiring)\b[^?]{0,30}?\b(?:an? )?\w+)"
        r" and (?=(?:an? )?\w+(?: \w+)?[?.]?$)"
    ),
    re.I,
)
_AND = re.compile(r"\b(?:both )?([A-Z]\w+) and ([A-Z]\w+)(?=[?.,!]|$)")


def and_to_or(text: str, draw: Draw) -> str | None:
    """need A and B -> need A or B."""
    if re.search(r"between|differen|relation|compare|\bno\b|\bor\b|common", text, re.I):
        return None
    return one_of(text, draw, _NEED, lambda m: f"{m[1].replace('both ', '')} or ")


def swap_and(text: str, draw: Draw) -> str | None:
    """A and B -> B and A."""
    return one_of(text, draw, _AND, lambda m: f"{m[2]} and {m[1]}")


def first_word_kept(text: str, draw: Draw) -> str | None:
    """The polite long form: how do I X -> I'd like to know how to X."""
    match = re.match(r"how (?:do|can|should|could) (?:i|we|you|one) (?=[a-z])(.{5,90}?)\??$", text, re.I)
    if not match or re.search(r"[.?!]", match[1]):
        return None
    opening = draw.rng.choice(
        ["I'd like to know how to", "I want to know how to", "Tell me how to", "I need help: how to"]
    )
    return f"{opening} {first_lower(match[1])}"


RULES = (
    Rule("modifier", "en", 0, "modifier", add_modifier),
    Rule("modifier_swapped", "en", 0, "modifier", swap_modifier),
    Rule("modifier_moved", "en", 1, "modifier", move_modifier),
    Rule("modifier_adjective", "en", 0, "modifier", add_adjective),
    Rule("modifier_empty", "en", 1, "modifier", add_nothing),
    Rule("time", "en", 0, "time", change_time),
    Rule("time_same", "en", 1, "time", same_time),
    Rule("audience", "en", 0, "audience", change_audience),
    Rule("audience_same", "en", 1, "audience", same_audience),
    Rule("person", "en", 0, "person", change_person),
    Rule("person_same", "en", 1, "person", same_person),
    Rule("question_word", "en", 0, "question_word", change_question_word),
    Rule("question_told", "en", 1, "question_word", first_word_kept),
    Rule("and_or", "en", 0, "and_or", and_to_or),
    Rule("and_swapped", "en", 1, "and_or", swap_and),
)

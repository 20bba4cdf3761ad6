"""English order: directions, comparisons and roles swapped, and the re-orderings that keep the meaning."""

from __future__ import annotations

import re
from itertools import pairwise

from stratacache.training.synthetic.english.entities import entity_matches
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import first_lower, first_upper, one_of, spliced

_NOUN = r"(?:[A-Z][\w.+#]*(?: [A-Z][\w.+#]*){0,2}|[a-z][\w.+#-]*)"
_FROM_TO = re.compile(
    rf"\bfrom ({_NOUN}) to ({_NOUN})(?=[?.!,]|$| (?:in|on|by|via|for|without|using|with|at)\b)"
)
_CONVERT = re.compile(
    r"\b((?i:convert|translate|migrate|transform|converting|exchange)(?: an?| my)"
    rf"?) ({_NOUN}) (?:to|into) ({_NOUN})(?=[?.!,]|$)"
)
_SYMMETRIC = re.compile(r"\b(?:distance|far|long|difference|between|back|relation|similar|compare)\b", re.I)
_NO_PLACE = re.compile(
    r"^(?:a|an|the|z|my|me|you|your|our|his|her|it|this|that|time|scratch|end|beginning|"
    r"start|now|one|day|here|there|home|work|"
    r"becoming|being|get|do|be|make|go|some|another|other|others|birth|death|what|where|getting|zero|hero)$",
    re.I,
)


def _two_places(match: re.Match[str]) -> bool:
    first, second = match[match.lastindex - 1 if match.lastindex else 0], match[match.lastindex or 0]
    return not (_NO_PLACE.match(first) or _NO_PLACE.match(second) or first.lower() == second.lower())


def swap_direction(text: str, draw: Draw) -> str | None:
    """from A to B -> from B to A; convert A to B -> convert B to A. Not distances: those are the same both ways."""
    if _SYMMETRIC.search(text):
        return None
    return one_of(
        text, draw, _FROM_TO, lambda m: f"from {m[2]} to {m[1]}" if _two_places(m) else None
    ) or one_of(text, draw, _CONVERT, lambda m: f"{m[1]} {m[3]} to {m[2]}" if _two_places(m) else None)


def turn_direction(text: str, draw: Draw) -> str | None:
    """from A to B -> to B from A: the same way, told the other way round."""
    return one_of(text, draw, _FROM_TO, lambda m: f"to {m[2]} from {m[1]}" if _two_places(m) else None)


_BETWEEN = re.compile(rf"\b(between) (?:(an?|the) )?({_NOUN}) and (?:(an?|the) )?({_NOUN})(?=[?.!,]|$)")
_VERSUS = re.compile(
    rf"(?<![\w ])({_NOUN}) (vs\.?|versus) ({_NOUN})(?=[?.!,:]|$)|(?<=: )({_NOUN}) (or) ({_NOUN})(?=\?|$)"
)


def swap_symmetric(text: str, draw: Draw) -> str | None:
    """difference between A and B -> between B and A; A or B, A vs B -> B or A: symmetric, so the same."""

    def between(match: re.Match[str]) -> str | None:
        left, right = (f"{match[i]} {match[i + 1]}" if match[i] else match[i + 1] for i in (2, 4))
        return f"{match[1]} {right} and {left}"

    def versus(match: re.Match[str]) -> str | None:
        left, word, right = match.groups()[:3] if match[1] else match.groups()[3:]
        return f"{right} {word} {left}"

    found = (
        one_of(text, draw, _BETWEEN, between)
        if re.search(r"differen|distance|similarit|relation|comparison", text, re.I)
        else None
    )
    return found or one_of(text, draw, _VERSUS, versus)


_OPPOSITE = {
    "taller": "shorter",
    "bigger": "smaller",
    "larger": "smaller",
    "faster": "slower",
    "older": "younger",
    "heavier": "lighter",
    "cheaper": "more expensive",
    "better": "worse",
    "stronger": "weaker",
    "higher": "lower",
    "richer": "poorer",
    "hotter": "colder",
    "easier": "harder",
    "safer": "more dangerous",
    "more popular": "less popular",
    "longer": "shorter",
    "more expensive": "cheaper",
    "more important": "less important",
    "smarter": "dumber",
    "slower": "faster",
    "worse": "better",
    "more powerful": "less powerful",
    "harder": "easier",
    "smaller": "larger",
}
_COMPARED = re.compile(
    r"^((?i:why|how|in what ways?|how much|when) (?:is|are|was|were) )((?:an? |"
    rf"the )?{_NOUN}) ((?:so much |much |so |considered )?)({'|'.join(_OPPOSITE)})"
    rf" than ((?:an? |the )?{_NOUN})(?=[?.!,]|$)"
)
_NO_COMPARED = re.compile(
    r"^(?:it|there|he|she|they|this|that|usual|other|others|i|we|you|me|ever|most|before|him|her|them)$", re.I
)


def _comparable(match: re.Match[str]) -> bool:
    return not (_NO_COMPARED.match(match[2]) or _NO_COMPARED.match(match[5]))


def swap_comparison(text: str, draw: Draw) -> str | None:
    """Why is A better than B -> why is B better than A; or worse for better."""

    def new(match: re.Match[str]) -> str | None:
        if not _comparable(match):
            return None
        if draw.rng.random() < 0.3 and match[4].lower() in _OPPOSITE:
            return f"{match[1]}{match[2]} {match[3]}{_OPPOSITE[match[4].lower()]} than {match[5]}"
        return f"{match[1]}{match[5]} {match[3]}{match[4]} than {match[2]}"

    return one_of(text, draw, _COMPARED, new)


def invert_comparison(text: str, draw: Draw) -> str | None:
    """Why is A better than B -> why is B worse than A."""

    def new(match: re.Match[str]) -> str | None:
        if not _comparable(match):
            return None
        return f"{match[1]}{match[5]} {match[3]}{_OPPOSITE[match[4].lower()]} than {match[2]}"

    return one_of(text, draw, _COMPARED, new)


_TRANSITIVE = {
    "attack": "attacked",
    "invade": "invaded",
    "defeat": "defeated",
    "beat": "beaten",
    "support": "supported",
    "hate": "hated",
    "acquire": "acquired",
    "buy": "bought",
    "sue": "sued",
    "ban": "banned",
    "help": "helped",
    "influence": "influenced",
    "affect": "affected",
    "replace": "replaced",
    "overtake": "overtaken",
    "threaten": "threatened",
    "betray": "betrayed",
    "colonize": "colonized",
    "conquer": "conquered",
    "surpass": "surpassed",
    "block": "blocked",
    "criticize": "criticized",
    "kill": "killed",
    "destroy": "destroyed",
    "rule": "ruled",
    "admire": "admired",
    "trust": "trusted",
    "control": "controlled",
    "follow": "followed",
    "fund": "funded",
    "sanction": "sanctioned",
    "occupy": "occupied",
    "liberate": "liberated",
    "recognize": "recognized",
    "fear": "feared",
    "respect": "respected",
    "love": "loved",
    "reject": "rejected",
    "bomb": "bombed",
    "annex": "annexed",
    "partition": "partitioned",
    "hire": "hired",
    "fire": "fired",
    "pay": "paid",
    "copy": "copied",
    "endorse": "endorsed",
    "accuse": "accused",
    "elect": "elected",
    "forgive": "forgiven",
    "choose": "chosen",
    "leave": "left",
    "eat": "eaten",
    "train": "trained",
    "teach": "taught",
    "protect": "protected",
    "arrest": "arrested",
    "outlive": "outlived",
    "inspire": "inspired",
    "adopt": "adopted",
    "contact": "contacted",
    "sponsor": "sponsored",
    "monitor": "monitored",
    "call": "called",
    "power": "powered",
    "outperform": "outperformed",
}
_WHO_WHOM = re.compile(
    rf"\b((?i:why|when|how)) (did|does|do|will|would|can|could) ({_NOUN}) ({'|'.join(_TRANSITIVE)})"
    rf" ({_NOUN})(?=[?.!,]|$)"
)
_PERSON = r"(someone|somebody|my \w+|he|she|they|a (?:guy|girl|friend|person|man|woman))"
_TO_ME = re.compile(
    (
        rf"\b{_PERSON} (blocked|unfriended|ignored|hit|hurt|lied to|insulted|rejected|"
        r"betrayed|cheated on|called|unfollowed|slapped|bit|reported|sued|invited|dumped|fired|hired|"
        r"threatened|blackmailed|kissed|pushed|kicked|scammed|robbed|texted|messaged|followed|tagged|muted|"
        r"trusted|paid|adopted|bullied|accused|helped|left) me(?=[?.!,]|$| on\b)"
    ),
    re.I,
)
_OBJECTIVE = {"he": "him", "she": "her", "they": "them"}
_NO_ROLE = re.compile(
    (
        r"^(?:i|it|you|we|they|he|she|people|this|that|your|my|the|a|an|one|us|me|them|"
        r"someone|anyone|is|are|his|her|not|some|men|women|guys|everyone)$"
    ),
    re.I,
)


def swap_roles(text: str, draw: Draw) -> str | None:
    """Why did A attack B -> why did B attack A; he hit me -> I hit him."""

    def nouns(match: re.Match[str]) -> str | None:
        if _NO_ROLE.match(match[3]) or _NO_ROLE.match(match[5]):
            return None
        return f"{match[1]} {match[2]} {match[5]} {match[4]} {match[3]}"

    def person(match: re.Match[str]) -> str | None:
        return f"I {match[2]} {_OBJECTIVE.get(match[1].lower(), match[1].lower())}"

    return one_of(text, draw, _WHO_WHOM, nouns) or one_of(text, draw, _TO_ME, person)


def passive(text: str, draw: Draw) -> str | None:
    """Why did A attack B -> why was B attacked by A; who invented X -> by whom was X invented."""

    def nouns(match: re.Match[str]) -> str | None:
        if _NO_ROLE.match(match[3]) or _NO_ROLE.match(match[5]):
            return None
        word = match[2].lower()
        be = {"did": "was", "does": "is", "do": "is"}.get(word)
        be = (
            be
            if not be or not match[5].endswith("s") or match[5][:1].isupper()
            else {"was": "were", "is": "are"}[be]
        )
        participle = _TRANSITIVE[match[4].lower()]
        return f"{match[1]} {be or word} {match[5]} {'' if be else 'be '}{participle} by {match[3]}"

    def person(match: re.Match[str]) -> str | None:
        if match[2] == "bit":
            return f"I was bitten by {_OBJECTIVE.get(match[1].lower(), match[1].lower())}"
        return f"I was {match[2]} by {_OBJECTIVE.get(match[1].lower(), match[1].lower())}"

    return (
        one_of(text, draw, _WHO_WHOM, nouns)
        or one_of(text, draw, _TO_ME, person)
        or one_of(text, draw, _WHO_DID, lambda m: _who_passive(m, draw))
    )


_WHO_DID = re.compile(
    (
        r"^(who) (invented|discovered|wrote|built|founded|created|designed|directed|"
        r"composed|painted|killed|started|developed|made) ((?:the |a |an )?[\w' -]{3,"
        r"40})\??$"
    ),
    re.I,
)
_PARTICIPLE = {"wrote": "written"}


def _who_passive(match: re.Match[str], draw: Draw) -> str | None:
    if re.search(r"\band\b|\bor\b|\bhow\b|\bwhy\b|\bwhen\b|\bfirst\b", match[3]):
        return None
    plural = re.search(r"[^s]s$", match[3].split()[-1]) and not match[3][:1].isupper()
    be = "were" if plural else "was"
    verb = _PARTICIPLE.get(match[2].lower(), match[2].lower())
    return draw.rng.choice(
        [f"By whom {be} {match[3].rstrip()} {verb}?", f"Who {be} {match[3].rstrip()} {verb} by?"]
    )


_FRONT = re.compile(
    (
        r"^((?:how|what|why|where|when|which|who|is|are|can|do|does|should) .{8,70}?)"
        r" ((?:in|after|before|during|without) [^,?()]{3,30})\?$"
    ),
    re.I,
)
_NO_FRONT = re.compile(r"\b(?:and|or|that|who|which|because|if|to|it|than|as|of|not)\b", re.I)


def front_phrase(text: str, draw: Draw) -> str | None:
    """How do I lose weight in winter? -> In winter, how do I lose weight?"""
    match = _FRONT.match(text)
    if (
        not match
        or _NO_FRONT.search(match[2])
        or re.search(r"\b(?:in|for|after|before|on|of|with|to|from|at)$", match[1])
    ):
        return None
    if re.search(
        (
            r"\b(?:interested|believe|look|looking|wait|apply|go|depend|based|work|prepare|"
            r"ask|need|used|use|reason|reasons|put|live|for|get|turn|invest|difference|"
            r"cost|be|is|are) $"
        ),
        match[1] + " ",
    ):
        return None
    return f"{first_upper(match[2])}, {first_lower(match[1])}?"


_OF = re.compile(
    r"\bthe (capital|population|president|history|currency|GDP|climate|height|price|"
    r"cost|size|meaning|founder|CEO|prime minister) of ([A-Z][\w]*(?: [A-Z]\w*)"
    r"{0,2}|\w+)(?=[?.!]|$)"
)


def genitive(text: str, draw: Draw) -> str | None:
    """the capital of France -> France's capital."""
    return one_of(text, draw, _OF, lambda m: None if _NO_PLACE.match(m[2]) else f"{m[2]}'s {m[1]}")


def swap_names(text: str, draw: Draw) -> str | None:
    """Two names of one kind swap places round a verb or preposition that has a direction."""
    found = entity_matches(text)
    for (left, one, kind), (right, other, same) in pairwise(found):
        middle = text[left.end() : right.start()].strip().lower()
        if kind == same and one != other and middle in _DIRECTED:
            swapped = spliced(text, right.span(), left[0])
            return spliced(swapped, left.span(), right[0])
    return None


_DIRECTED = frozenset(
    [
        "to",
        "into",
        "attack",
        "invade",
        "defeat",
        "over",
        "support",
        "help",
        "beat",
        "against",
        "acquire",
        "influence",
        "without",
        "before",
        "after",
        "hate",
        "as seen from",
        "instead of",
        "rather than",
        "import from",
        "export to",
        "use",
    ]
)

RULES = (
    Rule("direction", "en", 0, "direction", swap_direction),
    Rule("direction_turned", "en", 1, "direction", turn_direction),
    Rule("symmetric_swapped", "en", 1, "direction", swap_symmetric),
    Rule("comparison", "en", 0, "comparison", swap_comparison),
    Rule("comparison_inverted", "en", 1, "comparison", invert_comparison),
    Rule("role", "en", 0, "role", swap_roles),
    Rule("passive", "en", 1, "role", passive),
    Rule("names_swapped", "en", 0, "role", swap_names),
    Rule("fronted", "en", 1, "order", front_phrase),
    Rule("genitive", "en", 1, "order", genitive),
)

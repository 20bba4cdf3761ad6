"""English names: a country, product, language, person... replaced by another of its kind, or by its other name."""

from __future__ import annotations

import re
from functools import cache

from stratacache.training.synthetic.english.lists import replaced
from stratacache.training.synthetic.lexicon import groups
from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import spliced, words_in


@cache
def _kinds() -> dict[str, str]:
    return {member: kind for kind, members in groups("en_entities").items() for member in members}


@cache
def _lower() -> dict[str, str]:
    return {member.lower(): member for member in _kinds()}


# Words that are also ordinary words when written small.
_CASED_ONLY = frozenset(
    [
        "CAT",
        "GATE",
        "SAT",
        "Word",
        "Go",
        "Swift",
        "Ruby",
        "Rust",
        "Scala",
        "Turkey",
        "React",
        "Flask",
        "Express",
        "Friends",
        "Chrome",
        "Safari",
        "Slack",
        "Zoom",
        "Outlook",
        "Excel",
        "Phoenix",
        "Mercury",
        "Java",
        "Intel",
        "Uber",
        "Amazon",
        "Tesla",
        "Azure",
        "Discord",
        "Latin",
        "Spring",
        "Nice",
        "Oracle",
        "Perl",
        "Chile",
        "Rust",
    ]
)
# A name beside one of these is part of a longer name, a fixed phrase, or only mentioned in passing.
_PART = re.compile(
    (
        r"(?:on quora|new |bank of |times of |university of |great |-)$|^(?:-|'s? day|"
        r" street| times| university| express)"
    ),
    re.I,
)


def entity_matches(text: str) -> list[tuple[re.Match[str], str, str]]:
    """Each name found in the text: its match, its listed form and its kind."""
    found = []
    for match in words_in(text, _kinds()):
        name = match[0] if match[0] in _kinds() else _lower().get(match[0].lower())
        if name is None:  # a letter that is only alike when case is ignored, such as the dotted I
            continue
        small = match[0] == match[0].lower()
        if match[0] != name and (name in _CASED_ONLY or not small):
            continue
        around = text[max(0, match.start() - 15) : match.start()], text[match.end() : match.end() + 12]
        if _PART.search(around[0]) or _PART.match(around[1]) or re.match(r"[ -](?:\d|[A-Z]\w+)", around[1]):
            continue
        found.append((match, name, _kinds()[name]))
    return found


def change_entity(text: str, draw: Draw) -> str | None:
    """One name becomes another of the same kind that the question does not hold."""
    found = entity_matches(text)
    draw.rng.shuffle(found)
    for match, name, kind in found:
        if sum(other == name for _, other, _ in found) > 1:
            continue
        lower = text.lower()
        usable = [
            other
            for other in groups("en_entities")[kind]
            if draw.allows(name, other) and other.lower() not in lower
        ]
        if not usable:
            continue
        new = draw.rng.choice(usable)
        if match[0] == match[0].lower():
            new = new.lower()
        if re.search(r"\ban?$", text[: match.start()].rstrip(), re.I):
            return _with_article(text, match, new)
        return spliced(text, match.span(), new)
    return None


def _with_article(text: str, match: re.Match[str], new: str) -> str:
    article = re.search(r"\b(a)n?(\s+)$", text[: match.start()], re.I)
    assert article
    vowel = (
        "n"
        if new[:1].lower() in "aeiou" and not new.startswith(("US", "Uk", "eu", "uk", "UPSC", "Ubuntu "))
        else ""
    )
    return text[: article.start()] + article[1] + vowel + article[2] + new + text[match.end() :]


def alias(text: str, draw: Draw) -> str | None:
    """One name becomes another name of the same thing: United Kingdom, UK."""
    return replaced(text, draw, "en_aliases", cased=True)


RULES = (
    Rule("entity", "en", 0, "entity", change_entity),
    Rule("entity_alias", "en", 1, "entity", alias),
)

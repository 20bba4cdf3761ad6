"""Cuts one line into prose and exact spans: quotations, inline code, addresses, names of files and code."""

from __future__ import annotations

import re

Span = tuple[bool, str]
"""(is prose, text); the texts of all spans joined are the line."""

_OPAQUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029{}\[\]<>|\\^]")
_FORMULA = re.compile(r"\$(?!\d)|``|\b[sy]/")
_LONE_SINGLE_QUOTE = re.compile(r"(?<![A-Za-z0-9])['\u2018\u2019]|['\u2018\u2019](?![A-Za-z])")
_DELIMITER = re.compile('[`"“”„「」『』《》〈〉«»]')
_QUOTED = re.compile(
    '(`[^`]*+`|"[^"]*+"|“[^“”"]*+”|「[^「」]*+」|『[^『』]*+』|《[^《》]*+》|〈[^〈〉]*+〉|«[^«»]*+»)'
)
_RISKY = re.compile(r"[@_#&*=~]|://|www\.|[A-Za-z][./:][A-Za-z0-9]|[0-9][./:][A-Za-z]|[A-Za-z0-9]\(")
_ADDRESS = re.compile(r"://|www\.|@", re.IGNORECASE)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_PLAIN = re.compile(r"[A-Za-z0-9 ,?!'%-]*+\.?")
FILLER = "\ufffc"
"""Stands for an exact span where rules look at what surrounds them."""


def is_plain(line: str) -> bool:
    """Nothing but words, spaces and sentence marks: a quick way past all that looks for exact spans."""
    return _PLAIN.fullmatch(line) is not None and "'" not in line and "www." not in line


def is_opaque(line: str) -> bool:
    """Signs of code, markup, formulae, JSON or control characters: the whole line stays as it is."""
    if _OPAQUE.search(line) or _FORMULA.search(line):
        return True
    has_quote = "'" in line or "\u2018" in line or "\u2019" in line
    return has_quote and _LONE_SINGLE_QUOTE.search(line) is not None


def split_quoted(line: str) -> list[Span] | None:
    """Prose and quoted spans in turn; None when quotation marks do not pair up.

    Curly double quotes become straight, what stands between them is untouched.
    """
    if not _DELIMITER.search(line):
        return [(True, line)]
    spans: list[Span] = []
    for i, part in enumerate(_QUOTED.split(line)):
        if i % 2 == 0 and _DELIMITER.search(part):
            return None
        if part:
            spans.append((i % 2 == 0, f'"{part[1:-1]}"' if i % 2 and part[0] == "“" else part))
    return spans


def split_tokens(prose: str) -> list[Span]:
    """Cut out addresses (to the next space), and ASCII tokens that look like code, files or identifiers."""
    if not _RISKY.search(prose):
        return [(True, prose)]
    if _ADDRESS.search(prose):
        parts = re.split("( )", prose)
        return _merge([s for p in parts for s in ([(False, p)] if _ADDRESS.search(p) else _split_names(p))])
    return _merge(_split_names(prose))


def _split_names(prose: str) -> list[Span]:
    spans: list[Span] = []
    done = 0
    for match in _TOKEN.finditer(prose):
        token = match[0]
        if not _RISKY.search(token):
            continue
        end = match.end() - (len(token) > 1 and token[-1] in "?!,.;:")
        spans += [(True, prose[done : match.start()]), (False, prose[match.start() : end])]
        done = end
    return [*spans, (True, prose[done:])]


def _merge(spans: list[Span]) -> list[Span]:
    """Join neighbours of one kind, so that prose rules see a whole stretch."""
    merged: list[Span] = []
    for prose, text in spans:
        if merged and merged[-1][0] == prose:
            merged[-1] = (prose, merged[-1][1] + text)
        elif text:
            merged.append((prose, text))
    return merged


def skeleton(spans: list[Span]) -> str:
    """The line with a filler for every exact span: what rules may read to recognise a sentence."""
    return "".join(text if prose else FILLER for prose, text in spans)

"""Guard: code identifiers, options, file names and error codes, which mean what they spell."""

from __future__ import annotations

import re

from stratacache.policy.guards.finding import Finding
from stratacache.policy.guards.pair import Pair
from stratacache.policy.guards.reading import Reading, read

_IDENTIFIER = re.compile(
    # ASCII word boundaries: an ideograph ends an identifier.
    r"(?<![^\s(`'\"])(?:--[A-Za-z][\w-]*|-[A-Za-z]{1,2})(?![\w-])"  # --force, -rf
    r"|(?<![\w./])(?:[A-Za-z]\w*_\w+|__?\w+)(?:\(\))?"  # snake_case
    r"|(?<![\w./])[a-z]+(?:[A-Z][a-z0-9]+)+(?:\(\))?(?!\w)"  # camelCase
    r"|(?<![\w./])[A-Za-z]\w*(?:\.\w+)*\(\)"  # call()
    r"|(?<![\w./@])[\w-]+\.(?:py|js|ts|java|c|h|cpp|rs|go|rb|php|sh|sql|json|ya?ml|toml|ini|conf|cfg|txt|log|md|csv|xml"
    r"|html?|css|docx?|xlsx?|pptx?|pdf|png|jpe?g|gif|zip|tar|gz|exe|dll|so|jar|apk|ipa|dmg|iso|bat|ps1|lock|env)(?![\w])"
    r"|\b0x[0-9A-Fa-f]+\b"
    r"|(?<![\w-])(?=[A-Za-z-]*[0-9])(?=[0-9-]*[A-Za-z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?![\w])",  # D3300, ORA-00942
    re.ASCII,
)
_QUANTITY = re.compile(
    r"[0-9]+(?:st|nd|rd|th|s|k|m|g|x|gb|mb|kb|tb|kg|mg|ml|cm|mm|km|hz|ghz|mah|w|v|h|p|am|pm|d|fps)?|[0-9]+[a-z]{2,}|[vq][0-9.]+"
)
_BRANDS = frozenset(("iphone", "ipad", "ipod", "ebay", "imac", "icloud", "itunes", "macos", "ios"))


def identifiers(reading: Reading) -> frozenset[str]:
    """The identifiers of a text in lower case, without what is a quantity (20k, 5th) or a brand."""
    found = {match[0].lower().removesuffix("()") for match in _IDENTIFIER.finditer(reading.text)}
    return frozenset(one for one in found if one not in _BRANDS and not _is_quantity(one))


def _is_quantity(one: str) -> bool:
    """20k, 5th, 10-12k, 2-litre, 12-by-18-inch."""
    parts = one.split("-") if one[0] != "-" else [one]
    if parts[0].isdigit() and len(parts) > 1:
        return all(part.isdigit() or part.isalpha() for part in parts)
    return all(map(_QUANTITY.fullmatch, parts))


def check(pair: Pair) -> list[Finding]:
    """Veto when both sides have one that the other lacks, or one side has one more and nothing else differs."""
    asked, stored = pair.asked.fact(identifiers), pair.stored.fact(identifiers)
    if not asked and not stored:
        return []
    left, right = _missing(asked - stored, pair.stored), _missing(stored - asked, pair.asked)
    if not left and not right:
        return [Finding("identifiers", "pass", ", ".join(sorted(asked & stored)) or "spelt otherwise")]
    detail = f"{', '.join(sorted(left)) or 'none'} / {', '.join(sorted(right)) or 'none'}"
    if left and right:
        return [
            Finding(
                "identifiers",
                "veto" if pair.likeness(_units(left), _units(right)) >= _ALIKE else "unsure",
                detail,
            )
        ]
    added = any(one.startswith("-") for one in left | right)
    return [Finding("identifiers", "veto" if added and pair.likeness() > _MOSTLY else "unsure", detail)]


_ALIKE = 0.4
_MOSTLY = 0.7


def _units(found: frozenset[str]) -> list[str]:
    return [unit for one in found for unit in read(one).stems]


def _missing(found: frozenset[str], other: Reading) -> frozenset[str]:
    """Those that the other text does not have in another spelling either (listFiles, "list files")."""
    plain = "".join(char for char in other.lower if char.isalnum())
    return frozenset(one for one in found if "".join(char for char in one if char.isalnum()) not in plain)

"""English numbers and units: changed to another value, or the same value written otherwise."""

from __future__ import annotations

import re

from stratacache.training.synthetic.pair import Draw, Rule
from stratacache.training.synthetic.text import like, one_of

_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
]
_SMALL += ["seventeen", "eighteen", "nineteen", "twenty"]
_WORDS = {word: value for value, word in enumerate(_SMALL)}
_WORDS |= {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
_DIGITS = {value: word for word, value in _WORDS.items()}

# No number inside a name, date, version, score, range, address or code: nothing glued to it on either side.
_NUMBER = re.compile(
    r"(?<![\w.,:/\-–*#^+=])(?:top |best |no\.? |number |area )?(\d{1,6})(?![\w:/\-–*^+=#]|[.,]\d)", re.I
)
_FIXED = re.compile(
    r"\b(?:top|best|no\.?|number|area|first|one of the|100 ?%|24 hours|911|404|101|365)\b", re.I
)
_COUNTED = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|fifty)"
    r"(?= (?:\w+ )?(?:days|weeks|months|years|hours|minutes|people|times|kids|children|"
    r"cards|accounts|items|miles|pounds"
    r"|dollars|cups|eggs|states|countries|languages|dogs|cats|cars|phones|players|tickets|passengers|bags)\b)",
    re.I,
)


def _other(value: int, draw: Draw) -> int:
    """A value that changes the answer: at least half as much again, or at most two thirds, never 0 or 1."""
    if 1900 <= value <= 2035:
        return value + draw.rng.choice([-9, -6, -4, -3, -2, 2, 3, 4])
    scaled = [round(value * factor) for factor in (0.3, 0.5, 0.6, 1.6, 2, 3, 5)] + [
        value + 2,
        value + 3,
        value + 7,
    ]
    usable = [new for new in scaled if new > 1 and (new >= value * 1.5 or new <= value * 0.67)]
    return draw.rng.choice(usable)


def change_number(text: str, draw: Draw) -> str | None:
    """A number that stands alone becomes another one."""

    def new(match: re.Match[str]) -> str | None:
        around = text[max(0, match.start() - 12) : match.end() + 6]
        value = int(match[1])
        if value < 2 or _FIXED.search(around) or match[1].startswith("0") or match[0] != match[1]:
            return None
        return str(_other(value, draw))

    def word(match: re.Match[str]) -> str | None:
        value = _WORDS[match[1].lower()]
        choices = [
            name
            for other, name in _DIGITS.items()
            if other > 1 and (other >= value * 1.5 or other <= value * 0.67)
        ]
        return like(match[1], draw.rng.choice(choices))

    return one_of(text, draw, _NUMBER, new) or one_of(text, draw, _COUNTED, word)


def spell_number(text: str, draw: Draw) -> str | None:
    """10 and ten, both ways."""

    def new(match: re.Match[str]) -> str | None:
        value = int(match[1])
        if (
            match[0] != match[1]
            or value not in _DIGITS
            or value < 2
            or (match.end() < len(text) and text[match.end()] == "%")
        ):
            return None
        if text[max(0, match.start() - 1) : match.start()] in {"$", "£", "€"}:
            return None
        return _DIGITS[value]

    def figure(match: re.Match[str]) -> str | None:
        return str(_WORDS[match[1].lower()])

    return one_of(text, draw, _NUMBER, new) or one_of(text, draw, _COUNTED, figure)


_EXACT = {  # (unit, other unit): how many of the other make one
    ("hour", "minute"): 60,
    ("minute", "second"): 60,
    ("day", "hour"): 24,
    ("week", "day"): 7,
    ("year", "month"): 12,
    ("kg", "g"): 1000,
    ("km", "m"): 1000,
    ("decade", "year"): 10,
    ("gb", "mb"): 1000,
    ("m", "cm"): 100,
    ("cm", "mm"): 10,
    ("l", "ml"): 1000,
    ("tb", "gb"): 1000,
    ("century", "year"): 100,
    ("foot", "inch"): 12,
    ("yard", "foot"): 3,
    ("pound", "ounce"): 16,
    ("lakh", "thousand"): 100,
    ("crore", "lakh"): 100,
    ("crore", "million"): 10,
    ("million", "thousand"): 1000,
    ("billion", "million"): 1000,
}
_LONG = {
    "kg": "kilogram",
    "g": "gram",
    "km": "kilometer",
    "m": "meter",
    "cm": "centimeter",
    "mm": "millimeter",
}
_LONG |= {
    "l": "liter",
    "ml": "milliliter",
    "gb": "gigabyte",
    "mb": "megabyte",
    "tb": "terabyte",
    "lb": "pound",
}
_LONG |= {"oz": "ounce", "ft": "foot", "mph": "miles per hour", "hr": "hour", "hrs": "hour", "min": "minute"}
_MEASURE = re.compile(
    r"(?<![\w.,:/$€£-])(\d{1,6}|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty)( ?)"
    r"(hours?|minutes?|seconds?|days?|weeks?|months?|years?|decades?|century|centuries"
    r"|pounds?|ounces?|foot|feet|inch|inches|yards?|lakhs?|crores?|million|billion|meters?|kilograms?|grams?"
    r"|kg|km|gb|mb|tb|cm|mm|ml|lbs?|oz|ft|mph|hrs?)"
    r"(?![\w/-]| old| ago| later| from now| apart| olds)",
    re.I,
)
_SINGULAR = {
    "feet": "foot",
    "ft": "foot",
    "inches": "inch",
    "centuries": "century",
    "lbs": "lb",
    "hrs": "hour",
    "hr": "hour",
}
_PLURAL = {"foot": "feet", "inch": "inches", "century": "centuries"}


def _plural(unit: str, count: int) -> str:
    if count == 1 or "per" in unit or len(unit) < 3 or unit in {"million", "billion", "thousand"}:
        return unit
    return _PLURAL.get(unit, unit + "s")


def rewrite_unit(text: str, draw: Draw) -> str | None:
    """The same quantity in another exact unit: 2 hours, 120 minutes; or the unit written out: 10 kg, 10 kilograms."""

    def new(match: re.Match[str]) -> str | None:
        count = _WORDS[match[1].lower()] if match[1].isalpha() else int(match[1])
        written = match[3].lower()
        singular = _SINGULAR.get(written, written if len(written) < 3 else written.removesuffix("s"))
        options = [
            f"{count * many} {_plural(other, count * many)}"
            for (one, other), many in _EXACT.items()
            if one == singular and 1 <= count * many <= 10000 and count <= 12
        ]
        options += [
            f"{count // many} {_plural(one, count // many)}"
            for (one, other), many in _EXACT.items()
            if other == singular and count % many == 0 and count
        ]
        options += [
            f"{match[1]} {_plural(long, count)}"
            for short, long in _LONG.items()
            if count and written in {short, short + "s"}
        ]
        options += [
            f"{match[1]} {short}"
            for short, long in _LONG.items()
            if count and singular == long and len(short) > 1
        ]
        return draw.rng.choice(options) if options else None

    return one_of(text, draw, _MEASURE, new)


_UNIT_KINDS = (
    ("seconds", "minutes", "hours", "days", "weeks", "months", "years"),
    ("kg", "pounds", "grams", "ounces", "lbs"),
    ("km", "miles", "meters", "feet", "cm", "inches", "yards"),
    ("liters", "gallons", "ml", "cups"),
    ("kb", "mb", "gb", "tb"),
    ("dollars", "euros", "pounds", "rupees", "yen"),
    ("lakhs", "crores", "million", "billion", "thousand"),
)
_SAME = ({"lbs", "pounds"},)
_UNIT = re.compile(
    r"(?<![\w.,:/$€£-])(\d[\d,.]*|two|three|four|five|six|seven|ten|several|a few|"
    r"few)( ?)(seconds|minutes|hours|days|weeks|"
    r"months|years|kg|pounds|lbs|grams|ounces|km|miles|meters|feet|cm|inches|yards|"
    r"liters|gallons|ml|cups|kb|mb|gb|tb|"
    r"dollars|euros|rupees|yen|lakhs|crores|million|billion|thousand)(?![\w/-])",
    re.I,
)
_MONEY = re.compile(r"([$€£])(?= ?\d)")


def change_unit(text: str, draw: Draw) -> str | None:
    """The same number of another unit or currency."""

    def new(match: re.Match[str]) -> str | None:
        unit = match[3].lower()
        kinds = [kind for kind in _UNIT_KINDS if unit in kind]
        kind = draw.rng.choice(kinds)
        usable = [
            other
            for other in kind
            if other != unit
            and {other, unit} not in _SAME
            and draw.allows(f"unit {other}")
            and (kind[0] != "dollars" or other != "yen")
        ]
        return f"{match[1]}{match[2]}{draw.rng.choice(usable)}" if usable else None

    def money(match: re.Match[str]) -> str | None:
        usable = [sign for sign in "$€£" if sign != match[1] and draw.allows(f"unit {sign}")]
        return draw.rng.choice(usable) if usable else None

    return one_of(text, draw, _MONEY, money) or one_of(text, draw, _UNIT, new)


_DOLLARS = re.compile(r"\$ ?(\d[\d,]*)(?!\d|[.,]\d| ?(?:million|billion|k|m|bn)\b|[kKmMbB/-])(\.(?!\d))?")


def write_money(text: str, draw: Draw) -> str | None:
    """$20 and 20 dollars; 50% and 50 percent; 1,000 and 1000."""

    def new(match: re.Match[str]) -> str | None:
        return f"{match[1]} {draw.rng.choice(['dollars', 'dollars', 'USD'])}{match[2] or ''}"

    return (
        one_of(text, draw, _DOLLARS, new)
        or one_of(text, draw, re.compile(r"(?<=\d)%(?! off)"), lambda _: " percent")
        or one_of(text, draw, re.compile(r"(?<![\w.,])(\d{1,3}),(\d{3})(?![\w,.])"), lambda m: m[1] + m[2])
        or one_of(
            text,
            draw,
            re.compile(r"(?<![\w.,$])(?!2000)(\d{1,3})(000)(?![\w,.])"),
            lambda m: f"{m[1]},{m[2]}",
        )
    )


RULES = (
    Rule("number", "en", 0, "number", change_number),
    Rule("number_spelt", "en", 1, "number", spell_number),
    Rule("unit", "en", 0, "unit", change_unit),
    Rule("unit_rewrite", "en", 1, "unit", rewrite_unit),
    Rule("money_written", "en", 1, "unit", write_money),
)

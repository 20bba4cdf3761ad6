"""White space, line ends, canonical composition, widths and Chinese spacing: what readers do not see."""

from __future__ import annotations

import re
import unicodedata

from stratacache.policy.normalise.chars import HAN, HSPACE, WIDTH_TABLE

_BLANK_LINES = re.compile(rf"(?:[{HSPACE}]*+\n)++")
_ODD_SPACE = re.compile(rf"[{HSPACE[1:]}]")
_RUN = re.compile(rf"[{HSPACE}]{{2,}}|[{HSPACE[1:]}]")
_WIDE_RUN = re.compile("[\uff01-\uff5e]+")
_WIDE_DOLLAR = re.compile("\uff04(?=[0-9\uff10-\uff19])")
_ADDRESS_SIGN = re.compile("[/@／＠wWｗＷ]")
_ADDRESS = re.compile(r"[:\uff1a][/\uff0f]{2}|[wWｗＷ]{3}[.\uff0e]|[@\uff20]")
_SPACE_BEFORE_MARK = re.compile(r" (?<=[A-Za-z0-9)%] )(?=[,?!](?: |$))")
_APOSTROPHE = re.compile("(?<=[A-Za-z0-9])\u2019(?=[A-Za-z])")

_ANY_HAN = re.compile(f"[{HAN}]")
_HAN_NUMERAL = "一二三四五六七八九十零〇百千万亿"
_MARK = ",;:?!()。、"
# Each pattern begins with the literal that goes and looks back over it: a literal start is found fastest.
_DOT_IN_HAN = re.compile(rf"\.(?<=[{HAN}]\.)(?:(?<![{_HAN_NUMERAL}]\.) ?(?=[{HAN}])|$)")
_SPACE_AT_LATIN = re.compile(rf" (?:(?<=[{HAN}] )(?=[A-Za-z0-9])|(?<=[A-Za-z0-9] )(?=[{HAN}]))")
_SPACE_AT_MARK = re.compile(rf" (?:(?<=[{HAN}] )(?=[{_MARK}])|(?<=[{_MARK}] )(?=[{HAN}]))")
_SPACE_BEYOND_MARK = re.compile(rf" (?:(?<=[{HAN}][{_MARK}] )(?=\S)|(?<=\S )(?=[{_MARK}][{HAN}]))")

_LAYOUT = re.compile(
    rf"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029`\"“”「」『』{{}}\[\]<>|\\^$=;]|\n[{HSPACE}]++\S|~~~"
)
_SENTENCE_GAP = re.compile(r"(?<=[.?!,:。？！，：]) {2,}")


def tidy(text: str) -> str:
    """Line ends to LF, NFC, white space trimmed at both ends: safe for any text, also for code.

    A text with a back-tick keeps its bytes inside (no NFC): composing characters changes what code does. The
    first line of several keeps its indentation, because indentation may carry meaning.
    """
    if "\r" in text:
        text = "\n".join(line.rstrip("\r") for line in text.split("\n"))
    if "`" not in text and not text.isascii() and not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    text = text.rstrip()
    if "\n" not in text:
        return text.lstrip()
    blank = _BLANK_LINES.match(text)
    text = text[blank.end() :] if blank else text
    return text if "\n" in text else text.lstrip()


def tidy_lines(text: str) -> str:
    """A text of several lines: only trailing spaces and doubled spaces after a sentence mark go.

    Several lines are mostly pasted material, whose layout, numbers and punctuation are its content. With any
    sign of code, a table, a quotation or an indented line nothing is touched.
    """
    if _LAYOUT.search(text):
        return text
    lines = [line.rstrip() for line in text.split("\n")]
    lines[0] = lines[0].lstrip()
    return _SENTENCE_GAP.sub(" ", "\n".join(lines))


def collapse_spaces(text: str) -> str:
    """Every run of horizontal white space becomes one space."""
    if "  " not in text and not _ODD_SPACE.search(text):
        return text
    return _RUN.sub(" ", text)


def fold_width(text: str) -> str:
    """Full-width letters, digits and punctuation to ASCII, except inside web and mail addresses."""
    if text.isascii() or not _WIDE_RUN.search(text):
        return text
    if _ADDRESS_SIGN.search(text) and _ADDRESS.search(text):
        return " ".join(c if _ADDRESS.search(c) else _fold(c) for c in text.split(" "))
    return _fold(text)


def _fold(text: str) -> str:
    folded = _WIDE_RUN.sub(lambda run: run[0].translate(WIDTH_TABLE), _WIDE_DOLLAR.sub("$", text))
    return unicodedata.normalize("NFC", folded)  # a folded letter may now compose with a following mark


def fold_apostrophes(text: str) -> str:
    """A curly apostrophe inside a word becomes straight."""
    return _APOSTROPHE.sub("'", text) if "\u2019" in text else text


def fold_spacing(text: str) -> str:
    """Spaces that carry nothing: before a mark, between Chinese and Latin, around marks beside Chinese.

    A space between two ideographs stays: 南京市 长江大桥 and 南京 市长 江大桥 differ by their spaces alone.
    """
    if " ?" in text or " ," in text or " !" in text:
        text = _SPACE_BEFORE_MARK.sub("", text)
    if text.isascii() or not _ANY_HAN.search(text):
        return text
    if "." in text:
        text = _DOT_IN_HAN.sub("。", text)
    if " " not in text:
        return text
    text = _SPACE_AT_LATIN.sub("", text)
    text = _SPACE_AT_MARK.sub("", text)
    return _SPACE_BEYOND_MARK.sub("", text)

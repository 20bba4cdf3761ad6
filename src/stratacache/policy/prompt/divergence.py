"""Where a prompt parts from an earlier one, what that costs, and the likely cause; pure.

Of the earlier prompt only prints are needed: hashes of its segments and of pieces of them, never its text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from stratacache.policy.prompt.segments import Kind, Segment
from stratacache.policy.prompt.volatile import volatile_in

Cause = Literal[
    "clock", "id", "name", "tool_order", "schema_order", "argument_order", "tools", "thinking",
    "system", "history", "settings", "model",
]  # fmt: skip
CAUSES: Final[tuple[Cause, ...]] = Cause.__args__  # type: ignore[attr-defined]

PIECE: Final = 128
"""Bytes between the places where the earlier text's hash is known: the offset is right to within as many."""
MOST_PIECES: Final = 256
AROUND: Final = 64
"""Bytes before the offset that are searched for what explains it: the label of a date, the date's first half."""

_BRACKETS: Final = bytes.maketrans(b"{}[]", b",,,,")
_TEXT: Final = b'{"text":"'
_SHOWN: Final = 48  # characters of an excerpt


class Print(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a segment.

    ``digest`` stands for its content and role, ``members`` for its content with JSON members in any order, ``pieces``
    (8 bytes each) for its first 128, 256, ... bytes. ``name`` stands for a tool's. ``thinking``: it is a reasoning
    block; ``answer``: the model wrote it. The hashes are those of this process.
    """

    kind: Kind
    index: int
    part: int
    digest: int
    members: int
    tokens: int
    pieces: bytes
    name: int = 0
    thinking: bool = False
    answer: bool = False


class Divergence(msgspec.Struct, frozen=True):
    """The first difference. ``segment`` in the words of ``Segment.name``, or a setting's name; ``offset`` in bytes of
    the segment's JSON; ``kept`` the tokens before it, ``lost`` those behind it that an unchanged prefix would have
    spared, at most. ``excerpt``: the shape of the new text there, letters and digits masked. ``since``: what the
    earlier prompt was labelled."""

    segment: str
    offset: int
    kept: int
    lost: int
    cause: Cause
    excerpt: str = ""
    since: int = 0

    @property
    def part(self) -> str:
        """``tools``, ``system`` or ``messages``."""
        return re.split(r"[\[.]", self.segment, maxsplit=1)[0]


class Prints:
    """Makes prints, and remembers those of segments that come again. Not safe across threads."""

    def __init__(self, most: int = 8192) -> None:
        self._most = most
        self._known: dict[tuple[int, int, int], Print] = {}

    def of(self, segments: Sequence[Segment]) -> list[Print]:
        """One print for each segment. Mutates the memory only."""
        made = []
        for one in segments:
            key = hash((one.role, one.content)), one.index, one.part
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= self._most:
                    self._known.clear()
                known = self._known[key] = _print(one, hash((key[0], one.kind, one.part == 0)))
            made.append(known)
        return made


def _print(one: Segment, digest: int) -> Print:
    content = one.content
    return Print(
        one.kind,
        one.index,
        one.part,
        digest,
        _members(content),
        one.tokens,
        _pieces(content),
        hash(_name(content)) if one.kind == "tool" else 0,
        _is_thinking(content),
        one.role == "assistant",
    )


def diverges(
    before: Sequence[Print], after: Sequence[Print], segments: Sequence[Segment]
) -> Divergence | None:
    """Where ``after`` (the prints of ``segments``) parts from ``before``; None when the one goes on from the other."""
    at = next(
        (i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old.digest != new.digest), None
    )
    if at is None:
        return None
    old, new, segment = before[at], after[at], segments[at]
    offset = _offset(old.pieces, new.pieces)
    kept = sum([one.tokens for one in after[:at]])
    whole = min(sum([one.tokens for one in before]), sum([one.tokens for one in after]))
    cause = _cause(before, after, at, segment, offset)
    around = segment.content[max(0, offset - AROUND) : offset + PIECE]
    excerpt = masked(around.decode("utf-8", "ignore"))
    return Divergence(segment.name, offset, kept, max(0, whole - kept), cause, excerpt)


def masked(text: str) -> str:
    """The shape of ``text``: letters as x, Han as 字, digits as 0; cut to 48 characters."""
    shape = re.sub(
        r"[^\W\d_]", lambda m: "字" if "\u4e00" <= m[0] <= "\u9fff" else "x", re.sub(r"\d", "0", text)
    )
    return re.sub(r"x{4,}", "xxx", shape)[:_SHOWN]


def volatile_cause(content: bytes, offset: int) -> Cause | None:
    """What volatile text there is in ``content`` at ``offset`` or within the piece behind it."""
    start = max(0, offset - AROUND)
    piece = content[start : offset + PIECE + AROUND].replace(
        b"\\n", b" \n"
    )  # lines as they are, of equal length
    if piece.startswith(_TEXT):
        piece = piece.replace(_TEXT, b"\n" * len(_TEXT), 1)
    text = piece.decode("utf-8", "ignore")
    here = len(content[start:offset].decode("utf-8", "ignore"))
    after = [one for one in volatile_in(text) if one.end > here]
    return after[0].kind if after else None


def _cause(before: Sequence[Print], after: Sequence[Print], at: int, segment: Segment, offset: int) -> Cause:
    old, new = before[at], after[at]
    if old.kind == "tool" or new.kind == "tool":
        return _tools_cause(before, after)
    if old.thinking and not new.thinking and any(one.members == new.members for one in before[at + 1 :]):
        return "thinking"
    if old.members == new.members and old.kind == new.kind == "message":
        return "argument_order"
    volatile = volatile_cause(segment.content, offset)
    if volatile is not None:
        return volatile
    return "system" if "system" in (old.kind, new.kind) else "history"


def _tools_cause(before: Sequence[Print], after: Sequence[Print]) -> Cause:
    olds, news = ([one for one in row if one.kind == "tool"] for row in (before, after))
    if Counter(one.digest for one in olds) == Counter(one.digest for one in news):
        return "tool_order"
    return (
        "schema_order"
        if Counter(one.members for one in olds) == Counter(one.members for one in news)
        else "tools"
    )


def _offset(before: bytes, after: bytes) -> int:
    """The last place up to which both are known to be equal."""
    shared = min(len(before), len(after)) // 8
    for i in range(shared):
        if before[8 * i : 8 * i + 8] != after[8 * i : 8 * i + 8]:
            return i * PIECE
    return shared * PIECE


def _pieces(content: bytes) -> bytes:
    """Hashes of the whole pieces, each with that of the one before in it."""
    chain, made = 0, []
    for start in range(0, min(len(content) // PIECE, MOST_PIECES) * PIECE, PIECE):
        chain = hash((chain, content[start : start + PIECE]))
        made.append(chain.to_bytes(8, "little", signed=True))
    return b"".join(made)


def _members(content: bytes) -> int:
    """A hash that the order of members and items does not change."""
    return hash(tuple(sorted(content.translate(_BRACKETS).split(b","))))


def _name(content: bytes) -> bytes:
    """What stands as a tool's name first, or all of it."""
    found = content.find(b'"name":"')
    return content[found + 8 : content.find(b'"', found + 8)] if found >= 0 else content


def _is_thinking(content: bytes) -> bool:
    return (
        b'"type":"thinking"' in content[-40:]
        or b'"type":"redacted_thinking"' in content[-40:]
        or (content.startswith((b'{"reasoning', b'{"thinking')))
    )


def settings_divergence(
    old: Mapping[str, int], new: Mapping[str, int], after: Sequence[Print]
) -> Divergence | None:
    """What voids a provider's entries without being in the text: ``model`` all, other settings the messages' part."""
    for name in sorted(old.keys() | new.keys(), key=lambda each: (each != "model", each)):
        if old.get(name) == new.get(name):
            continue
        kept = 0 if name == "model" else sum([one.tokens for one in after if one.kind != "message"])
        lost = sum([one.tokens for one in after]) - kept
        return Divergence(name, 0, kept, lost, "model" if name == "model" else "settings")
    return None

"""Which earlier prompt a prompt should have gone on from, in a bounded memory of prints; pure but for that memory."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from stratacache.policy.prompt.divergence import Divergence, Print, Prints, diverges, settings_divergence
from stratacache.policy.prompt.segments import Segment
from stratacache.types import JSON

MOST_SEGMENTS: Final = 50_000
"""Prints that are kept: about 16 MB."""
MOST_RECENT: Final = 100
SETTINGS: Final = ("thinking", "tool_choice", "reasoning_effort", "response_format")
"""Beside the model, what providers document to void the messages' part of entries."""

_EDGE: Final = 256  # bytes of the system prompt that tell one application from another
_VARYING: Final = re.compile(rb"[0-9a-fA-F]{8,}|\d+")


class _Earlier(msgspec.Struct, gc=False):
    prints: tuple[Print, ...]
    settings: Mapping[str, int]
    label: int


class Seen(msgspec.Struct, frozen=True):
    """A divergence, when it was seen (as the caller counts), and of which model's prompt."""

    at: float
    model: str
    tenant: str
    divergence: Divergence


class Lineages:
    """The last prompt of each lineage. Not safe across threads.

    A lineage is a named conversation; else what begins with the same message of the user; else, for tools and system
    only, what shares the names of the tools or an end of the system prompt. No two owners share one.
    """

    def __init__(self, most_segments: int = MOST_SEGMENTS) -> None:
        self._most = most_segments
        self._kept = 0
        self._earlier: OrderedDict[int, _Earlier] = OrderedDict()
        self._prints = Prints()
        self._recent: list[Seen] = []

    @property
    def recent(self) -> Sequence[Seen]:
        """The last divergences, oldest first."""
        return tuple(self._recent)

    def note(self, seen: Seen) -> None:
        """Keep ``seen`` among the recent ones."""
        self._recent.append(seen)
        del self._recent[:-MOST_RECENT]

    def follow(
        self,
        owner: str,
        conversation: str,
        segments: Sequence[Segment],
        settings: Mapping[str, JSON],
        label: int = 0,
    ) -> Divergence | None:
        """Where the prompt parts from the last of its lineage, which it then takes the place of.

        ``owner`` is whose traffic it is; ``settings`` are the request's body with its resolved model as ``model``;
        ``label`` is what the prompt is called in what is found of the next.
        """
        if not segments:
            return None
        prints = tuple(self._prints.of(segments))
        given = {
            name: hash(msgspec.json.encode(settings[name]))
            for name in ("model", *SETTINGS)
            if name in settings
        }
        own, shared = _keys(owner, conversation, segments, prints)
        earlier = self._earlier.get(own)
        if earlier is not None:
            found = diverges(earlier.prints, prints, segments)
            if found is not None and found.cause == "history" and not conversation:
                # Conversations may open alike: one that was edited still has later answers in common.
                found = found if _go_on_alike(earlier.prints, prints) else None
            # What voids more than the text does is the cause.
            voided = settings_divergence(earlier.settings, given, prints)
            if voided is not None and (found is None or voided.kept < found.kept):
                found = voided
        else:
            earlier = next((kept for key in shared if (kept := self._earlier.get(key)) is not None), None)
            head = [one for one in prints if one.kind != "message"]
            found = diverges(earlier.prints, head, segments) if earlier is not None else None
        if found is not None and earlier is not None:
            found = msgspec.structs.replace(found, since=earlier.label)
        self._remember(own, shared, prints, given, label)
        return found

    def _remember(
        self, own: int, shared: Sequence[int], prints: tuple[Print, ...], given: Mapping[str, int], label: int
    ) -> None:
        self._keep(own, _Earlier(prints, given, label))
        head = tuple(one for one in prints if one.kind != "message")
        for key in shared:
            self._keep(key, _Earlier(head, given, label))

    def check(self) -> None:
        """Raise AssertionError when the count is wrong or over its bound."""
        assert self._kept == sum(len(one.prints) for one in self._earlier.values())
        assert self._kept <= self._most
        assert len(self._recent) <= MOST_RECENT

    def _keep(self, key: int, earlier: _Earlier) -> None:
        replaced = self._earlier.pop(key, None)
        self._kept += len(earlier.prints) - (len(replaced.prints) if replaced is not None else 0)
        self._earlier[key] = earlier
        while self._kept > self._most:
            _, dropped = self._earlier.popitem(last=False)
            self._kept -= len(dropped.prints)


def _keys(
    owner: str, conversation: str, segments: Sequence[Segment], prints: Sequence[Print]
) -> tuple[int, list[int]]:
    """The key of the prompt's own lineage, and those of its family, the surest first."""
    tools = sorted([one.name for one in prints if one.kind == "tool"])
    system = b"".join(one.content for one in segments if one.kind == "system")
    first = next((one.content for one in segments if one.kind == "message" and one.role == "user"), b"")
    own = hash((owner, "named", conversation)) if conversation else hash((owner, "opened", first))
    return own, [hash((owner, kind, text)) for kind, text in _families(tools, system)]


def _go_on_alike(before: Sequence[Print], after: Sequence[Print]) -> bool:
    """Whether there are equal answers of the model behind the first difference."""
    at = next(
        (i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old.digest != new.digest), 0
    )
    return bool(_answers(before[at:]) & _answers(after[at:]))


def _answers(prints: Sequence[Print]) -> set[int]:
    return {one.members for one in prints if one.answer}


def _families(tools: Sequence[int], system: bytes) -> Iterator[tuple[str, bytes]]:
    names = hash(tuple(tools)).to_bytes(8, "little", signed=True)
    if system:
        yield "start", names + _VARYING.sub(b"0", system[:_EDGE])
        yield "end", names + _VARYING.sub(b"0", system[-_EDGE:])
    elif tools:
        yield "tools", names

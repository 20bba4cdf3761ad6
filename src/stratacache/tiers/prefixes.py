"""Keeps the prefixes of requests stable where that is wanted, and tells where one parts from what was sent before."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from stratacache.policy.fields import CHAT, MESSAGES
from stratacache.policy.prompt.divergence import Divergence
from stratacache.policy.prompt.lineage import Lineages, Seen
from stratacache.policy.prompt.segments import Form, Segment, segments_of
from stratacache.policy.prompt.stable import Options, stabilise, without_note
from stratacache.ports import Clock
from stratacache.types import JSON, Request

log = logging.getLogger(__name__)

FORMS: Final[Mapping[str, Form]] = {CHAT: "chat", MESSAGES: "messages"}
LEAST_LOST: Final = 128
"""Tokens: the least step in which a provider documents to cache; a smaller loss is none."""
LEAST_PROMPT: Final = 512
"""Tokens: the least that any provider documents to cache."""


class Tally(Protocol):
    """Counts divergences: ``observe.metrics``."""

    def diverged(self, cause: str) -> None:
        """A prompt parted from the one before it, for ``cause``."""
        ...


class Prefixes:
    """For one event loop. What fails here is logged, and the request goes as it was.

    Args:
        options: what of a request may be changed so that its prefix comes again.
    """

    def __init__(self, options: Options, clock: Clock, tally: Tally) -> None:
        self._options = options
        self._on = options.canonicalise or options.relocate_volatile
        self._clock = clock
        self._tally = tally
        self._lineages = Lineages()

    @property
    def recent(self) -> Sequence[Seen]:
        """The last divergences, oldest first."""
        return self._lineages.recent

    def steady(self, request: Request, body: dict[str, JSON]) -> dict[str, JSON]:
        """``body`` with its prefix as it came before, or ``body`` itself. Mutates nothing."""
        form = FORMS.get(request.endpoint)
        if not self._on or form is None:
            return body
        try:
            made, changes = stabilise(body, form, self._options)
        except Exception:
            log.exception("a request is sent as it came, as making its prefix stable failed")
            return body
        return dict(made) if changes else body

    def follow(
        self, request: Request, body: Mapping[str, JSON], segments: Sequence[Segment] | None = None
    ) -> Divergence | None:
        """Where ``body``, about to be sent, parts from the last of its lineage, if that costs anything.

        ``segments`` are those of ``body`` where they are known already.
        """
        form = FORMS.get(request.endpoint)
        if form is None:
            return None
        try:
            found = self._follow(request, body, segments_of(body, form) if segments is None else segments)
        except Exception:
            log.exception("where a prompt parts from the one before is not known, as looking failed")
            return None
        if found is None or found.lost < LEAST_LOST or found.kept + found.lost < LEAST_PROMPT:
            return None
        self._tally.diverged(found.cause)
        self._lineages.note(Seen(self._clock.now(), request.resolved_model, request.scope.tenant, found))
        return found

    def check(self) -> None:
        """Raise AssertionError when more is kept than allowed."""
        self._lineages.check()

    def _follow(
        self, request: Request, body: Mapping[str, JSON], segments: Sequence[Segment]
    ) -> Divergence | None:
        scope = request.scope
        owner = "\0".join((request.upstream, scope.tenant, scope.credential))
        conversation = f"{scope.principal}\0{request.conversation}" if request.conversation else ""
        shown = without_note(segments) if self._on else segments
        return self._lineages.follow(owner, conversation, shown, {**body, "model": request.resolved_model})


def said(found: Divergence) -> str:
    """``found`` as the value of a response header."""
    return f"{found.part};offset={found.offset};lost={found.lost};cause={found.cause}"


def told(seen: Seen) -> dict[str, JSON]:
    """``seen`` as JSON."""
    found = msgspec.structs.asdict(seen.divergence)
    del found["since"]
    return {"at": seen.at, "tenant": seen.tenant, "model": seen.model, **found}

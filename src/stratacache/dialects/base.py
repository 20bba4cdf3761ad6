"""What the gateway and the pipeline need of a dialect: how its answers are judged, and how a client is spoken to.

An upstream is spoken to in its own dialect, and what it says is kept in that dialect: the one canonical form. A client
of another dialect has its request turned into the upstream's before anything else, and the answer turned back at the
very end; so the key, both tiers, flights and stores see one form, and both kinds of client share what means the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from stratacache.dialects.sse import Event
from stratacache.errors import StrataError
from stratacache.types import JSON, Usage


class Parsed(msgspec.Struct, frozen=True):
    """A checked request.

    ``cache`` is LiteLLM's cache control (``{"no-cache": true, "ttl": 60}``) as the client wrote it, None when
    absent; ``body`` is the request without it. ``include_usage`` is False unless the request streams.
    """

    model: str
    stream: bool
    include_usage: bool
    cache: Mapping[str, JSON] | None
    body: dict[str, JSON]


class Heard(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream as it is passed on: the ``payload``, and what a client sees of it that did not ask for
    usage (None: nothing)."""

    payload: bytes
    bare: bytes | None


class Assembler(Protocol):
    """One streamed answer in the making. ``done``: the end mark was seen."""

    done: bool

    def take(self, event: Event, *, strip_usage: bool) -> Heard | None:
        """Take an event; returns what is passed on, None for the end mark. Never raises.

        Args:
            strip_usage: usage was asked of the upstream for others, so there is some that this client did not ask for.
        """
        ...

    def result(self) -> dict[str, JSON] | None:
        """The whole answer as the same call gives it unstreamed, None when the stream did not end as it should."""
        ...


class Answers(Protocol):
    """The answers of one API. A module serves as one. Pure."""

    USAGE_ON_REQUEST: bool  # a stream tells its usage only when the request asks for it

    def upstream_body(
        self, body: Mapping[str, JSON], resolved_model: str, *, ask_usage: bool
    ) -> dict[str, JSON]:
        """The body to send: ``model`` replaced and, with ``ask_usage``, usage asked of the stream."""
        ...

    def assembler(self) -> Assembler:
        """For one stream."""
        ...

    def completeness(self, answer: JSON) -> str | None:
        """None when ``answer`` may be stored, else one word of ``docs/guide/reasons.md`` why not."""
        ...

    def usage_of(self, answer: Mapping[str, JSON]) -> Usage:
        """The token counts; what is absent, null or not a count is None, never 0."""
        ...

    def texts_of(self, answer: Mapping[str, JSON]) -> list[str]:
        """What a complete answer says: one text for each of the answers in it."""
        ...

    def fixed_answer(self, text: str, model: str, created: float) -> dict[str, JSON] | None:
        """An answer that says ``text`` and cost nothing, None where answers say nothing; ``created`` in seconds since
        the epoch."""
        ...


class Live(Protocol):
    """A stream on its way to one client."""

    def take(self, heard: Sequence[Heard]) -> bytes:
        """What of ``heard`` is sent now, as server-sent events; may be empty.

        Raises UpstreamError: it has no form in the client's dialect.
        """
        ...

    def end(self) -> bytes:
        """What ends a stream that came to its end."""
        ...


class Voice(Protocol):
    """How a client of one dialect hears answers that are kept in the dialect of an upstream. Pure.

    ``created``: when the answer was made, in seconds since the epoch, for dialects that say so.
    """

    def body(self, answer: bytes, created: float, *, status: int) -> bytes:
        """A whole answer, or with another ``status`` than 200 the upstream's error, as JSON.

        Raises UpstreamError: it has no form in the dialect.
        """
        ...

    def stream(self, answer: JSON, created: float, *, include_usage: bool) -> bytes:
        """A whole answer as all bytes of a stream."""
        ...

    def live(self, created: float, *, include_usage: bool) -> Live:
        """For one stream."""
        ...

    def failure(self, error: StrataError) -> bytes:
        """The event that tells of a failure amid a stream."""
        ...

    def can_stream(self, answer: JSON) -> bool:
        """Whether ``answer`` can be cut into a stream, though it need not be fit for the store."""
        ...

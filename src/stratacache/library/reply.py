"""What a request made in-process was answered with."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stratacache.types import JSON


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. ``headers`` have lower-case names and say what the cache did; ``content`` is the body's bytes."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> JSON:
        """The JSON of the dialect that was asked in."""
        return msgspec.json.decode(self.content)

    @property
    def text(self) -> str:
        """The words of the first choice, or of an Anthropic message; "" where there are none."""
        body = self.body
        if isinstance(body.get("choices"), list):
            return str(body["choices"][0]["message"].get("content") or "") if body["choices"] else ""
        parts = body.get("content")
        return "".join(part.get("text", "") for part in parts) if isinstance(parts, list) else ""

    @property
    def cache(self) -> str:
        """``hit``, ``miss``, ``bypass`` or ``stale``."""
        return self.headers.get("x-strata-cache", "bypass")

    @property
    def tier(self) -> str:
        """The tier that answered: ``exact``, ``semantic``, or ``none``."""
        return self.headers.get("x-strata-tier", "none")

    @property
    def reason(self) -> str:
        """A word of the guide's list of reasons."""
        return self.headers.get("x-strata-reason", "")

    @property
    def entry(self) -> str | None:
        """The id of the stored answer, for feedback; None where none is known."""
        return self.headers.get("x-strata-entry")

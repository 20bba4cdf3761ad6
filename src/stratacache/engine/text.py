"""From a stream of tokens to the text that may be sent: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from stratacache.engine.tokenizer import IncrementalDecoder, Tokenizer


class StopMatcher:
    """Cuts a text that comes in pieces before the first stop string.

    Text that could be the beginning of a stop string is held back until that is decided.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The part of everything so far that is now certain and not yet given. Nothing after a stop."""
        if self.stopped or not text:
            return ""
        self._held += text
        places = [place for place in map(self._held.find, self._stops) if place >= 0]
        if places:
            self.stopped = True
            certain, self._held = self._held[: min(places)], ""
            return certain
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        certain = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return certain

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next((size for size in range(longest, 0, -1) if self._held.endswith(stop[:size])), 0)

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        certain, self._held = self._held, ""
        return certain


class TextStream:
    """The text of one answer, token by token."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._decoder = IncrementalDecoder(tokenizer)
        self._matcher = StopMatcher(stops)

    def push(self, token: int) -> str:
        """The text that this token makes certain."""
        return self._matcher.push(self._decoder.push(token))

    @property
    def stopped(self) -> bool:
        """Whether a stop string has come: the answer ends before it."""
        return self._matcher.stopped

    def flush(self) -> str:
        """The rest, when the answer ends without a stop string."""
        return self._matcher.push(self._decoder.flush()) + self._matcher.flush()

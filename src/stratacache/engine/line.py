"""The waiting line: who is admitted next. Likely hits and high priority go first, and nobody starves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stratacache.engine.sequence import Sequence

WINDOW = 32  # requests at the head among which the order may change
MOST_PASSED = 16  # requests that may go before one that came earlier


class WaitingLine:
    """Preempted sequences in front, then requests in order of arrival."""

    def __init__(self) -> None:
        self._preempted: list[Sequence] = []
        self._arrived: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._preempted) + len(self._arrived)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._preempted
        yield from self._arrived

    def append(self, sequence: Sequence) -> None:
        """A new request."""
        self._arrived.append(sequence)

    def push_front(self, sequence: Sequence) -> None:
        """A preempted one: its client has heard part of the answer already."""
        self._preempted.insert(0, sequence)

    def remove(self, sequence: Sequence) -> None:
        """Takes one out that is no longer wanted."""
        (self._preempted if sequence in self._preempted else self._arrived).remove(sequence)

    def admit(self, sequence: Sequence) -> None:
        """Takes one out to be computed; those that came before it have been passed once more."""
        if sequence in self._preempted:
            self._preempted.remove(sequence)
            return
        place = self._arrived.index(sequence)
        for other in self._arrived[:place]:
            other.passed += 1
        del self._arrived[place]

    def order(self, hit: Callable[[Sequence], float]) -> list[Sequence]:
        """Who should be admitted, first to last. `hit` is the share of a prompt that is cached, 0 to 1.

        Preempted ones first; then those passed MOST_PASSED times, in order of arrival; then by priority and
        by what is cached, since a likely hit is done soonest and its blocks may not be there for long.
        """
        window = self._arrived[:WINDOW]
        if len(window) > 1:
            window.sort(
                key=lambda one: (0, 0, 0.0) if _starves(one) else (1, one.request.priority, -hit(one))
            )
        return [*self._preempted, *window]


def _starves(sequence: Sequence) -> bool:
    return sequence.passed >= MOST_PASSED

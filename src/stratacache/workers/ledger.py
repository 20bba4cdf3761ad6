"""Adds up what all workers have counted; what a dead one had counted stays."""

from __future__ import annotations

import msgspec

from stratacache.observe.census import Share
from stratacache.observe.figures import Figures
from stratacache.observe.metrics import Metrics


class Ledger:
    """The latest figures of every living worker, by process id, and the sum of those that have ended.

    Totals never go back: figures of one process only grow, are never forgotten, and keep their labels.
    """

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._living: dict[int, Figures] = {}
        self._ended = Metrics(self._models)

    def update(self, pid: int, figures: Figures) -> None:
        """``pid`` has counted ``figures`` so far."""
        self._living[pid] = figures

    def retire(self, pid: int) -> None:
        """``pid`` has ended. Its gauges end with it."""
        figures = self._living.pop(pid, None)
        if figures is not None:
            self._ended.add(msgspec.structs.replace(figures, levels={}))

    def total(self) -> Figures:
        total = Metrics(self._models)
        for figures in (self._ended.figures(), *self._living.values()):
            total.add(figures)
        return total.figures()

    def shares(self) -> list[Share]:
        """How many requests each living worker has decided."""
        return [Share(pid, sum(figures.requests.values())) for pid, figures in self._living.items()]

"""Held-out figures of the cacheability classifier: accuracy, plain and weighted, confusion, language and kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stratacache.policy.cacheability import CACHEABLE, MIN_PROMISING, classify_with, confirm
from stratacache.policy.cacheability.head import Head
from stratacache.policy.cacheability.model import KINDS, LinearModel
from stratacache.training.cacheability.questions import Row


@dataclass
class Report:
    """Counts of what was expected beside what was said."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    decisions: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    right_risk: int = 0
    right_alone: int = 0
    errors: list[str] = field(default_factory=list)

    def merged(self, other: Report) -> Report:
        return Report(
            self.kinds + other.kinds,
            self.decisions + other.decisions,
            self.right_risk + other.right_risk,
            self.right_alone + other.right_alone,
            self.errors + other.errors,
        )

    @property
    def count(self) -> int:
        return self.kinds.total()

    @property
    def wrong_yes(self) -> int:
        return sum(n for (_, kind, said), n in self.decisions.items() if said and kind not in CACHEABLE)

    @property
    def wrong_no(self) -> int:
        return sum(n for (_, kind, said), n in self.decisions.items() if not said and kind in CACHEABLE)

    @property
    def accuracy(self) -> float:
        """Share of right decisions, cacheable or not."""
        return 1 - (self.wrong_yes + self.wrong_no) / self.count

    @property
    def weighted(self) -> float:
        """The same with every wrong *cacheable* counted as two errors."""
        return 1 - (2 * self.wrong_yes + self.wrong_no) / self.count

    def by(self, position: int) -> dict[str, tuple[int, float]]:
        """Count and accuracy per language (0) or expected kind (1)."""
        total: Counter[str] = Counter()
        right: Counter[str] = Counter()
        for key, n in self.decisions.items():
            total[str(key[position])] += n
            right[str(key[position])] += n * (key[2] == (key[1] in CACHEABLE))
        return {name: (total[name], right[name] / total[name]) for name in sorted(total)}

    def text(self, errors: bool = False) -> str:
        """A table for people; ``errors`` appends each wrong question, which only tuning on training rows may see."""
        exact = sum(n for (want, got), n in self.kinds.items() if want == got)
        lines = [
            (
                f"  questions {self.count}, accuracy {self.accuracy:.4f}, weighted {self.weighted:.4f}"
                f" (wrong yes {self.wrong_yes}, wrong no {self.wrong_no}),"
                f" kind {exact / self.count:.3f}, risk {self.right_risk / self.count:.3f},"
                f" stands alone {self.right_alone / self.count:.3f}"
            )
        ]
        for position in (0, 1):
            parts = [f"{name} {share:.3f} of {n}" for name, (n, share) in self.by(position).items()]
            lines.append("  " + ", ".join(parts))
        lines.append("  expected \\ said".ljust(22) + " ".join(kind[:8].rjust(8) for kind in KINDS))
        lines += [
            f"  {want:<20}" + " ".join(str(self.kinds[want, got]).rjust(8) for got in KINDS) for want in KINDS
        ]
        return "\n".join(lines + (self.errors if errors else []))


def report(
    model: LinearModel,
    rows: Sequence[Row],
    head: Head | None = None,
    vectors: NDArray[np.float32] | None = None,
) -> Report:
    """Ask the classifier, gates included, for every row; with the ``head`` and the rows' ``vectors`` as the semantic
    tier asks it, which embeds only what is promising."""
    result = Report()
    for number, row in enumerate(rows):
        if head is None or vectors is None:
            said = classify_with(model, row.text)
        else:
            said = classify_with(model, row.text, MIN_PROMISING)
            said = confirm(said, head, vectors[number]) if said.cacheable else said
        result.kinds[row.kind, said.kind] += 1
        result.decisions[row.language, row.kind, said.cacheable] += 1
        result.right_risk += said.risk == row.risk
        result.right_alone += said.stands_alone == row.stands_alone
        if said.cacheable != (row.kind in CACHEABLE):
            result.errors.append(f"  {row.kind} -> {said.reason} {said.confidence:.2f}: {row.text}")
    return result

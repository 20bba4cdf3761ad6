"""How large a local index may get and how it searches: bounds, and what follows from them."""

from __future__ import annotations

from typing import Literal

import msgspec

from stratacache.errors import SettingsError
from stratacache.vectors.rows import ROW_BYTES

IndexKind = Literal["auto", "exact", "hnsw", "ivfpq"]
_TYPICAL_RECORD = 100  # bytes: a digest and a question of a line
_GRAPH = 220
_CODES = 9  # an eighth of a byte a dimension, and the row's number


class IndexLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a local index.

    Args:
        kind: what searches a partition above ``exact_below``: a graph (``hnsw``), product codes (``ivfpq``), or nothing
            (``exact``). ``auto``: a graph, unless ``max_vectors`` of them would not fit into ``max_bytes``.
        max_vectors: questions at most; the soonest to expire makes room for a new one.
        max_bytes: of memory, estimated, vectors and questions and graphs; None for what ``max_vectors`` takes.
        exact_below: rows of a partition that are compared one by one. Measured: benchmarks/vector_recall.py.
        rebuild_share: a core is built anew, aside, once this share of its rows has been removed.
        sweep_seconds: between two searches for expired questions.
        save_seconds: between two snapshots, when a folder is given.
    """

    kind: IndexKind = "auto"
    max_vectors: int = 1_000_000
    max_bytes: int | None = None
    exact_below: int = 4096
    rebuild_share: float = 0.25
    sweep_seconds: float = 30.0
    save_seconds: float = 900.0

    @property
    def rows(self) -> int:
        """Rows to have: more than questions, as one that a core or a snapshot is not done with is not free."""
        return self.max_vectors + max(1024, self.max_vectors // 8)

    def resolve(self, dimension: int) -> Literal["exact", "hnsw", "ivfpq"]:
        """What searches large partitions of vectors of ``dimension``.

        Raises:
            SettingsError: a bound makes no sense.
        """
        if not 1 <= self.max_vectors < 1 << 31:
            raise SettingsError(f"max_vectors must be in 1..{(1 << 31) - 1}, not {self.max_vectors}")
        if self.max_bytes is not None and self.max_bytes < 1 << 20:
            raise SettingsError(f"an index of {self.max_bytes} bytes holds nothing; give it a MiB or more")
        if self.kind != "auto":
            return self.kind
        whole = self.max_vectors * (2 * dimension + ROW_BYTES + _TYPICAL_RECORD + _GRAPH)
        return "hnsw" if self.max_bytes is None or whole <= self.max_bytes else "ivfpq"

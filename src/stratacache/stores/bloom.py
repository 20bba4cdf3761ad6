"""Which questions were handled before: a Bloom filter of two generations, so that it forgets instead of filling up.

Notes go to the current generation; once that holds ``capacity`` questions the older one is emptied and becomes the
current one. So the last ``capacity`` distinct questions are always known, at most twice as many are, and the
false-positive rate stays below about ``2 * error``. Positions: Kirsch and Mitzenmacher, "Less Hashing, Same
Performance: Building a Better Bloom Filter", ESA 2006, with the two halves of a digest as the two hashes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct

import msgspec

from stratacache.errors import SettingsError, StoreError
from stratacache.ports import FilterStats
from stratacache.stores.bloom_file import SharedFile, open_shared

CAPACITY = 1_000_000  # questions per generation: 1.2 MB each at the default error
ERROR = 0.01
_PROBES = 2_000  # random questions asked by stats: a rate of 0.01 is told to about 0.002
_HALVES = Struct("<QQ")

# A filter is a head of eight words, in this machine's byte order, and the bits of two generations.
_MAGIC = b"SCBLOOM1"
_SHAPE = Struct("=8sQQQ")  # magic, capacity, bits per generation, positions per question
_ROTATIONS = 4  # the word after that; even: generation 0 is the current one
_COUNTS = 5  # two words: questions noted in each generation
_HEAD_BYTES = 64


class Shape(msgspec.Struct, frozen=True):
    """What follows from capacity and error: the textbook optimum, in whole words; ``bits`` of one generation."""

    capacity: int
    bits: int
    positions: int

    @classmethod
    def of(cls, capacity: int, error: float) -> Shape:
        bits = math.ceil(-capacity * math.log(error) / math.log(2) ** 2)
        return cls(capacity, -(-bits // 64) * 64, max(1, round(-math.log2(error))))

    @property
    def size(self) -> int:
        """Bytes of the head and two generations."""
        return _HEAD_BYTES + self.bits // 4

    def initialise(self, view: memoryview) -> None:
        """Make an empty filter of zeros."""
        view[: _SHAPE.size] = self._packed()

    def is_whole(self, view: memoryview) -> bool:
        """Whether ``view`` is a filter of this shape, and no fuller than notes make one: at the optimum, half full."""
        bits, size = view[_HEAD_BYTES:], self.bits // 8
        fullest = max(_bits_set(bits[:size]), _bits_set(bits[size:]))
        return view[: _SHAPE.size] == self._packed() and fullest < 0.6 * self.bits

    def places(self, digest: bytes) -> list[int]:
        """The bits that stand for ``digest`` of 16 bytes, within one generation."""
        position, step = _HALVES.unpack(digest)
        return [(position + number * step) % self.bits for number in range(self.positions)]

    def stats(self, fills: Sequence[float], measured: float) -> FilterStats:
        """The figures of two generations of which the share ``fills`` of the bits is set."""
        rates = [fill**self.positions for fill in fills]
        return FilterStats(
            questions=sum(self._estimate(fill) for fill in fills),
            capacity=self.capacity,
            fill=max(fills),
            expected=1 - (1 - rates[0]) * (1 - rates[1]),
            measured=measured,
        )

    def _estimate(self, fill: float) -> int:
        """How many questions make ``fill`` (Swamidass and Baldi, J. Chem. Inf. Model. 47(3), 2007)."""
        fill = min(fill, 1 - 1 / self.bits)
        return round(-self.bits / self.positions * math.log1p(-fill))

    def _packed(self) -> bytes:
        return _SHAPE.pack(_MAGIC, self.capacity, self.bits, self.positions)


class BloomFilter:
    """A ``ports.QuestionFilter`` in this process's memory, or in a file that the processes of one machine share.

    No method suspends or waits for another process. A note takes microseconds, one that rotates the time to clear a
    generation (0.1 ms at the default capacity), ``stats`` a few milliseconds.

    Processes set bits without a lock: a byte is read, changed and written, so two that set bits of one byte in the same
    instant may lose one of them. That needs the same byte out of a million within a fraction of a microsecond, and all
    it does is that a question counts as new once more. A bit never appears by itself, so no rate is hurt. The counts
    may lose a note in the same way, and the rotation comes one note later.

    Args:
        capacity: distinct questions that are never forgotten.
        error: false-positive rate of one full generation, above 0 and below 1.
        path: the shared file; a file that is not a whole filter of this shape is replaced. None: memory.
        random_bytes: where the questions that nobody asked come from.

    Raises:
        StoreError: the file cannot be made or opened.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        error: float = ERROR,
        path: Path | None = None,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if capacity <= 0 or not 0 < error < 1:
            raise SettingsError(
                f"a question filter needs a positive capacity and an error in (0, 1), not {capacity}, {error}"
            )
        self._shape = shape = Shape.of(capacity, error)
        self._random_bytes = random_bytes
        self._file: SharedFile | None = None
        if path is None:
            view = memoryview(bytearray(shape.size))
            shape.initialise(view)
        else:
            self._file = open_shared(path, shape.size, shape.initialise, shape.is_whole)
            view = self._file.view
        self._words = view[:_HEAD_BYTES].cast("Q")
        self._bits = view[_HEAD_BYTES:]
        self._closed = False

    async def seen(self, digest: bytes) -> bool:
        self._require_open()
        return self._holds(0, digest) or self._holds(1, digest)

    async def note(self, digest: bytes) -> bool:
        self._require_open()
        current = self._words[_ROTATIONS] & 1
        if self._holds(current, digest):
            return True
        known = self._holds(1 - current, digest)
        # Also when the older generation knows it: a question that is still asked must not be forgotten with that.
        self._add(current, digest)
        if self._words[_COUNTS + current] >= self._shape.capacity:
            self._rotate()
        return known

    async def stats(self) -> FilterStats:
        self._require_open()
        strangers = self._random_bytes(16 * _PROBES)
        wrong = sum([await self.seen(strangers[at : at + 16]) for at in range(0, 16 * _PROBES, 16)])
        return self._shape.stats([self._fill(0), self._fill(1)], wrong / _PROBES)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._words.release()
        self._bits.release()
        if self._file is not None:
            self._file.close()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("the question filter is closed")

    def _holds(self, generation: int, digest: bytes) -> bool:
        bits, base = self._bits, generation * self._shape.bits
        for place in self._shape.places(digest):
            at = base + place
            if not bits[at >> 3] >> (at & 7) & 1:
                return False
        return True

    def _add(self, generation: int, digest: bytes) -> None:
        bits, base = self._bits, generation * self._shape.bits
        for place in self._shape.places(digest):
            at = base + place
            bits[at >> 3] |= 1 << (at & 7)
        self._words[_COUNTS + generation] += 1

    def _rotate(self) -> None:
        """Empty the older generation and make it the current one; nothing happens while another process does so.

        One that still notes in what was current hits the older generation then, which is asked as well. A process that
        dies before the last line has only forgotten the older generation early: the next note rotates again.
        """
        if self._file is not None and not self._file.try_lock():
            return
        try:
            words, size = self._words, self._shape.bits // 8
            current = words[_ROTATIONS] & 1
            if words[_COUNTS + current] < self._shape.capacity:
                return  # another process has just done it
            older = 1 - current
            self._bits[older * size : (older + 1) * size] = bytes(size)
            words[_COUNTS + older] = 0
            words[_ROTATIONS] += 1
        finally:
            if self._file is not None:
                self._file.unlock()

    def _fill(self, generation: int) -> float:
        size = self._shape.bits // 8
        return _bits_set(self._bits[generation * size : (generation + 1) * size]) / self._shape.bits


def _bits_set(view: memoryview) -> int:
    return int.from_bytes(view, "little").bit_count()

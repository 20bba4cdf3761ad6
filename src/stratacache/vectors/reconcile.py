"""Compares an index with the store that its answers are in: after records of the log were lost, or on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from stratacache.ports import Store
from stratacache.types import Absent, Question

_TOGETHER = 16  # questions asked of the store at a time


class Listed(Protocol):
    """An index that can name its questions, as ``LocalIndex`` can."""

    def questions(self) -> AsyncIterator[Sequence[Question]]:
        """All, in batches; what changes meanwhile may be there or not."""
        ...

    async def remove(self, digests: Sequence[bytes]) -> None:
        """Forget the questions under ``digests``."""
        ...


class Compared(msgspec.Struct, frozen=True):
    """``looked`` questions were compared; ``dead`` of them had no entry that may answer."""

    looked: int
    dead: int


async def prune(index: Listed, store: Store, *, dry_run: bool = False) -> Compared:
    """Remove the questions whose entry the store has no more, or not in a current version; ``dry_run`` only counts.

    Counts as a use of every entry. What is added meanwhile is in the store already, so it stays. An index that
    misses questions of the store is not made whole: the store does not know questions.

    Raises:
        StoreError: the store did not answer; what was found dead before is removed.
        VectorIndexError: the same of the index.
    """
    looked = dead = 0
    async for batch in index.questions():
        for start in range(0, len(batch), _TOGETHER):
            digests = [question.digest for question in batch[start : start + _TOGETHER]]
            found = await asyncio.gather(*[store.get(digest) for digest in digests])
            gone = [digest for digest, entry in zip(digests, found, strict=True) if isinstance(entry, Absent)]
            if gone and not dry_run:
                await index.remove(gone)
            looked, dead = looked + len(digests), dead + len(gone)
            await asyncio.sleep(0)  # a store in memory does not suspend
    return Compared(looked, dead)

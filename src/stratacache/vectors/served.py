"""What the indexes on vector servers share: a time budget, one kind of error, how a question is written."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from stratacache.errors import StoreError, VectorIndexError
from stratacache.types import Question

NEVER = 1e300
"""Stands for an expiry that never comes, where a server takes no infinity."""

BUDGET = 1.0
"""Seconds that one operation may take."""

LARGEST = 32 << 10
"""Bytes of one question as it is written."""

T = TypeVar("T")


class _Fields(msgspec.Struct, array_like=True, frozen=True):
    """Kept as an array: new fields go to the end with a default."""

    digest: bytes
    partition: bytes
    text: str
    created_at: float
    expires_at: float
    principal: str
    witnesses: tuple[str, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Fields)


def pack(question: Question) -> bytes:
    """``question`` as bytes. Raises VectorIndexError: it is too large, or its text has no UTF-8."""
    try:
        packed = _encoder.encode(_Fields(*msgspec.structs.astuple(question)))
    except UnicodeEncodeError as error:
        raise VectorIndexError(f"a question has no UTF-8: {error.reason}") from None
    if len(packed) > LARGEST:
        raise VectorIndexError(f"a question of {len(packed)} bytes is larger than {LARGEST}")
    return packed


def unpack(packed: bytes) -> Question | None:
    """The question, or None when ``packed`` is none."""
    try:
        return Question(*msgspec.structs.astuple(_decoder.decode(packed)))
    except msgspec.MsgspecError:
        return None


def until(question: Question) -> float:
    """Its expiry as a number that every server takes."""
    return min(question.expires_at, NEVER)


def mark_of(fingerprint: str, dimension: int) -> str:
    """A word for names on the server, so that vectors of two embedders never meet."""
    return hashlib.sha256(f"{dimension}\0{fingerprint}".encode()).hexdigest()[:12]


class Gate:
    """Lets operations through while the index is open, each within its budget, with one kind of error.

    Args:
        name: of the server, for messages; without secrets.
        budget: seconds for one operation.
        errors: what the server's client raises.
    """

    def __init__(
        self, name: str, budget: float = BUDGET, errors: tuple[type[Exception], ...] = (StoreError,)
    ) -> None:
        self._name = name
        self._budget = budget
        self._errors = errors
        self.closed = False

    async def run(self, step: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``step()``. Raises VectorIndexError."""
        if self.closed:
            raise VectorIndexError(f"the vector index on {self._name} is closed")
        try:
            async with asyncio.timeout(self._budget):
                return await step()
        except TimeoutError:
            raise VectorIndexError(f"{self._name}: no answer within {self._budget:g} s") from None
        except self._errors as error:
            raise VectorIndexError(f"{self._name}: {error}") from error

"""How an entry is written in a SQLite row, and how a row that is not one of ours is told."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Any

import msgspec

from stratacache.types import Entry

# A row's cost beside its payload: header, fixed columns and its places in three indexes, with the free space
# that pages keep. benchmarks/store_speed.py compares the sum with the file.
OVERHEAD = 380
COLUMNS = "expires, used, size, crc, meta, form, body"

_FRAME = Struct("<dII")


class _Meta(msgspec.Struct, array_like=True, frozen=True):
    """The small fields. Kept as an array: new fields go to the end with a default, so old rows stay readable."""

    created_at: float
    tenant: str
    model: str
    tags: tuple[str, ...]
    prompt_tokens: int
    completion_tokens: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Meta)


def cost_of(entry: Entry) -> int:
    """Bytes of the file that ``entry`` is charged."""
    labels = len(entry.tenant) + len(entry.model) + sum(map(len, entry.tags))
    return entry.size + labels + OVERHEAD


def encode(digest: bytes, entry: Entry, used: int) -> tuple[float, int, int, int, bytes, bytes, bytes]:
    """``entry`` as the values of ``COLUMNS``; ``used`` in seconds since the epoch."""
    meta = _encoder.encode(
        _Meta(
            entry.created_at,
            entry.tenant,
            entry.model,
            entry.tags,
            entry.prompt_tokens,
            entry.completion_tokens,
        )
    )
    crc = _checksum(digest, entry.expires_at, meta, entry.form, entry.body)
    return entry.expires_at, used, cost_of(entry), crc, meta, entry.form, entry.body


def decode(digest: bytes, values: Sequence[Any]) -> Entry | None:
    """The entry in the values of ``COLUMNS``, or None when they are torn, foreign or of another digest."""
    expires, _used, _size, crc, meta, form, body = values
    if not (isinstance(expires, float) and all(isinstance(part, bytes) for part in (meta, form, body))):
        return None
    if crc != _checksum(digest, expires, meta, form, body):
        return None
    try:
        small = _decoder.decode(meta)
    except msgspec.MsgspecError:
        return None  # our checksum over a meta that this version cannot read: written by a later version
    return Entry(
        form=form,
        body=body,
        created_at=small.created_at,
        expires_at=expires,
        tenant=small.tenant,
        model=small.model,
        tags=small.tags,
        prompt_tokens=small.prompt_tokens,
        completion_tokens=small.completion_tokens,
    )


def _checksum(digest: bytes, expires: float, meta: bytes, form: bytes, body: bytes) -> int:
    """CRC-32 of the row, lengths included so that a byte cannot move from one field to the next."""
    crc = zlib.crc32(digest + _FRAME.pack(expires, len(form), len(body)) + meta)
    return zlib.crc32(body, zlib.crc32(form, crc))

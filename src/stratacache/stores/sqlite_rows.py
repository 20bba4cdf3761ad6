"""How an entry is written in a SQLite row, and how a row that is not one of ours is told."""

from __future__ import annotations

import math
from typing import Any

from stratacache.stores import envelope
from stratacache.types import Entry

# A row's cost beside its payload: header, fixed columns and its places in three indexes, with the free space
# that pages keep. benchmarks/store_speed.py compares the sum with the file.
OVERHEAD = 320
_PER_TAG = 12  # its version and the lengths
_NEVER = 1 << 62
_HEAD = 7


def cost_of(entry: Entry) -> int:
    """Bytes of the file that ``entry`` is charged."""
    labels = len(entry.tenant) + len(entry.model) + sum([len(tag) + _PER_TAG for tag, _ in entry.versions])
    return entry.size + labels + OVERHEAD


def whole_seconds(moment: float) -> int:
    """``moment`` rounded up; what is never, or not for longer than SQLite can count, is as late as it can count."""
    return math.ceil(moment) if moment < _NEVER else _NEVER


def decode(digest: bytes, value: Any) -> Entry | None:
    """The entry in a row's value, or None when that is torn, foreign or of another digest."""
    return envelope.decode(digest, value) if isinstance(value, bytes) else None


def head_of(value: Any) -> bytes:
    """What tells one row's content from another's: the magic word and the checksum."""
    return bytes(value[:_HEAD]) if isinstance(value, bytes) else b""

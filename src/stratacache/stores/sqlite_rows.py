"""How an entry is written in a SQLite row, and how a row that is not one of ours is told."""

from __future__ import annotations

import math

from stratacache.types import Entry

# A row's cost beside its payload: header, fixed columns and its places in three indexes, with the free space
# that pages keep. benchmarks/store_speed.py compares the sum with the file.
OVERHEAD = 380
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


def head_of(value: bytes) -> bytes:
    """What tells one row's content from another's: the magic word and the checksum."""
    return value[:_HEAD]

"""What a RocksDB store keeps under which keys, and changes to it that are made all at once or not at all.

- ``m`` the totals
- ``h`` + digest: the ``Head`` of an entry
- ``e`` + its place in the order of use + digest: the entry, as in ``envelope``. A use moves it to the end, so what is
  evicted lies together in the files and is cleared away by itself. (Under the digest alone the garbage was spread over
  all files, and the folder grew to 1.4 to 3 times the bound before compaction caught up.)
- ``x`` + milliseconds at which it is gone + digest: nothing
- ``v`` + tag: version
- ``c`` + version + tag: number of entries that carry it
"""

from __future__ import annotations

from collections import Counter
from struct import Struct

import msgspec
from rocksdict import Rdict, WriteBatch

from stratacache.stores.rocksdb_file import TOTALS
from stratacache.types import Entry, Versions

# Keys and their share of blocks and filters, per entry and per tag of one.
OVERHEAD = 256
TAG_OVERHEAD = 48
SLACK_SHARE = 8  # of the payload: what files hold of things replaced, until they are cleared
_NUMBER = Struct(">Q")  # big-endian: keys sort as numbers
LAST_MOMENT = 2**64 - 1  # milliseconds


class Totals(msgspec.Struct, array_like=True, frozen=True):
    """``bytes`` is what the entries are charged; ``place`` and ``version`` are the last ones given out."""

    entries: int = 0
    bytes: int = 0
    place: int = 0
    version: int = 0
    tags: int = 0


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Of one entry; ``used`` in whole seconds, ``gone`` in milliseconds since the epoch, None: never."""

    place: int
    used: int
    gone: int | None
    cost: int
    versions: Versions


_heads = msgspec.msgpack.Decoder(Head)
_encode = msgspec.msgpack.Encoder().encode


def number(value: int) -> bytes:
    return _NUMBER.pack(value)


def number_in(stored: bytes | None) -> int | None:
    """The number in a value that is none of ours too: then None."""
    return None if stored is None or len(stored) != _NUMBER.size else int(_NUMBER.unpack(stored)[0])


def entry_key(place: int, digest: bytes) -> bytes:
    return b"e" + number(place) + digest


def place_and_digest(key: bytes) -> tuple[int, bytes]:
    """Of an ``entry_key``."""
    return int(_NUMBER.unpack_from(key, 1)[0]), key[1 + _NUMBER.size :]


def head_key(digest: bytes) -> bytes:
    return b"h" + digest


def version_key(tag: str) -> bytes:
    return b"v" + tag.encode()


def count_key(tag: str, version: int) -> bytes:
    return b"c" + number(version) + tag.encode()


def expiry_key(gone: int, digest: bytes) -> bytes:
    return b"x" + number(gone) + digest


def head_in(stored: bytes | None) -> Head | None:
    return None if stored is None else _heads.decode(stored)


def cost_of(entry: Entry) -> int:
    """Bytes that ``entry`` is charged: payload, text fields, keys and their share of the files' overhead."""
    labels = len(entry.tenant.encode()) + len(entry.model.encode())
    tags = sum([2 * len(tag.encode()) + TAG_OVERHEAD for tag, _ in entry.versions])
    return entry.size + entry.size // SLACK_SHARE + labels + tags + OVERHEAD


def read_totals(database: Rdict) -> Totals:
    stored = database.get(TOTALS)
    return Totals() if stored is None else msgspec.msgpack.decode(stored, type=Totals)


class Change:
    """Writes that belong together. Nothing is seen of them before ``commit``."""

    def __init__(self, database: Rdict, totals: Totals) -> None:
        self._database = database
        self._batch = WriteBatch(raw_mode=True)
        self._carried: Counter[tuple[str, int]] = Counter()
        self._removed: set[bytes] = set()
        self.totals = totals
        self.garbage = 0  # bytes that it makes useless in the files

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)

    def delete(self, key: bytes) -> None:
        self._batch.delete(key)

    def add(self, digest: bytes, value: bytes, head: Head) -> None:
        """An entry that is not there; ``head.place`` is set here."""
        self._place(digest, value, head)
        if head.gone is not None:
            self._batch.put(expiry_key(head.gone, digest), b"")
        self._carried.update(head.versions)
        self._count(1, head.cost)

    def move(self, digest: bytes, value: bytes, head: Head, used: int) -> None:
        """An entry was used: to the end of the order."""
        self._batch.delete(entry_key(head.place, digest))
        self._place(digest, value, msgspec.structs.replace(head, used=used))
        self.garbage += head.cost

    def remove(self, digest: bytes, head: Head) -> bool:
        """Take an entry out; False when this change has done so already."""
        if digest in self._removed:
            return False
        self._removed.add(digest)
        self._batch.delete(entry_key(head.place, digest))
        self._batch.delete(head_key(digest))
        self.garbage += head.cost
        if head.gone is not None:
            self._batch.delete(expiry_key(head.gone, digest))
        self._carried.subtract(head.versions)
        self._count(-1, -head.cost)
        return True

    def commit(self) -> Totals:
        """Write; returns the new totals."""
        for (tag, version), change in self._carried.items():
            if change:
                key = count_key(tag, version)
                left = (number_in(self._database.get(key)) or 0) + change
                if left > 0:
                    self._batch.put(key, number(left))
                else:
                    self._batch.delete(key)
        self._batch.put(TOTALS, _encode(self.totals))
        self._database.write(self._batch)
        return self.totals

    def _place(self, digest: bytes, value: bytes, head: Head) -> None:
        place = self.totals.place + 1
        self.totals = msgspec.structs.replace(self.totals, place=place)
        self._batch.put(head_key(digest), _encode(msgspec.structs.replace(head, place=place)))
        self._batch.put(entry_key(place, digest), value)

    def _count(self, entries: int, size: int) -> None:
        totals = self.totals
        self.totals = msgspec.structs.replace(
            totals, entries=totals.entries + entries, bytes=totals.bytes + size
        )

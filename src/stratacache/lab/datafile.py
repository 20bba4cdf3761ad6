"""The file that entries are exported to: lines of JSON with a head, a checksum each, and an end that counts them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from stratacache.errors import StrataError
from stratacache.policy.portable import Line, Travelling, pack, unpack
from stratacache.types import Versions

FORMAT = 1
MAX_TAGS = 262_144  # that a store keeps versions of


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line. ``exported_at`` is seconds since the epoch."""

    stratacache_export: int
    exported_at: float


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line: ``check`` is of the checksums of all lines, in order."""

    end: int
    check: str


class Content(msgspec.Struct, frozen=True):
    """What a whole file holds: entries, and the tags that they carry."""

    entries: int
    tags: frozenset[str]


def write(
    path: Path, exported_at: float, pages: Iterable[Sequence[Line]], report: Callable[[int], None]
) -> int:
    """Write ``pages`` to ``path``, which others see whole or not at all; returns how many entries.

    Raises:
        StrataError: the file cannot be written.
    """
    new = path.with_name(path.name + ".new")
    total = hashlib.sha256()
    count = 0
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            _write_line(file, Head(FORMAT, exported_at))
            for page in pages:
                for line in page:
                    _write_line(file, line)
                    total.update(line.check.encode())
                count += len(page)
                report(count)
            _write_line(file, End(count, total.hexdigest()))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise StrataError(f"cannot write {path}: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
    return count


def _write_line(file: BinaryIO, line: msgspec.Struct) -> None:
    file.write(msgspec.json.encode(line) + b"\n")


def survey(path: Path) -> Content:
    """Read ``path`` to its end and check all of it.

    Raises:
        StrataError: it is no export, damaged, or cut short; says where.
    """
    tags: set[str] = set()
    count = 0
    for one in entries(path):
        tags.update(one.entry.tags)
        count += 1
        if len(tags) > MAX_TAGS:
            raise StrataError(f"{path} has more than {MAX_TAGS:,} tags, and a store keeps no more")
    return Content(count, frozenset(tags))


def entries(path: Path) -> Iterator[Travelling]:
    """The entries of ``path``, one at a time; raises as :func:`survey`, where it meets the damage."""
    try:
        with path.open("rb") as file:
            yield from _entries(path, file)
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from None


def _entries(path: Path, file: BinaryIO) -> Iterator[Travelling]:
    total = hashlib.sha256()
    count = 0
    head = file.readline()
    try:
        if msgspec.json.decode(head, type=Head).stratacache_export != FORMAT:
            raise StrataError(f"{path} is an export of another version of Stratacache")
    except msgspec.MsgspecError:
        raise StrataError(f"{path} is no export of Stratacache") from None
    for number, text in enumerate(file, 2):
        if text.startswith(b'{"end"'):
            if _is_end(text, End(count, total.hexdigest())) and not file.read(1):
                return
            raise StrataError(f"{path}: lines are missing or too many before line {number}")
        try:
            line = msgspec.json.decode(text, type=Line)
            travelling = unpack(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StrataError(f"{path}:{number}: {error}") from None
        total.update(line.check.encode())
        count = number - 1
        yield travelling
    raise StrataError(f"{path} is cut short: it has no end")


def _is_end(text: bytes, expected: End) -> bool:
    try:
        return msgspec.json.decode(text, type=End) == expected
    except msgspec.MsgspecError:
        return False


def adopted(one: Travelling, versions: dict[str, int]) -> Travelling:
    """``one`` under the ``versions`` that its tags have elsewhere."""
    given: Versions = tuple((tag, versions[tag]) for tag in one.entry.tags)
    return msgspec.structs.replace(one, entry=msgspec.structs.replace(one.entry, versions=given))


def batches(travelling: Iterable[Travelling], most: int, size: int) -> Iterator[list[Line]]:
    """As lines, at most ``most`` and about ``size`` bytes of entries at a time."""
    batch: list[Line] = []
    held = 0
    for one in travelling:
        batch.append(pack(one))
        held += one.entry.size
        if len(batch) == most or held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch

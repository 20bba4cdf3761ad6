"""Keeps what the error bound has learned in a file, from one run to the next and through a crash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from pathlib import Path

from stratacache.errors import StoreError
from stratacache.policy.bound.pooled import Bound
from stratacache.ports import Clock
from stratacache.settings import Settings, mask_url, path_of
from stratacache.stores.review_file import ReviewFile
from stratacache.wiring.policies import error_limits
from stratacache.wiring.slots import Slot, take_slot

log = logging.getLogger(__name__)

SAVE_SECONDS = 60.0  # what a killed process had learned since the last time is lost


def open_bound(settings: Settings, file: Path | None, verifier: str) -> Bound:
    """The bound as ``file`` has it; a new one without it, or where it cannot be read or is of another ``verifier``."""
    limits = error_limits(settings)
    try:
        if file is not None:
            return Bound.restore(file.read_bytes(), limits, verifier=verifier)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        log.warning("what was learned of semantic answers is lost (%s); it is learned anew", error)
    return Bound(limits, verifier=verifier)


def slot_without_file(settings: Settings) -> Slot | None:
    """A place for what is learned with a store that is no file: beside the audit log, for this store alone.

    None where there is no log, or the store is a file and has places beside it.
    """
    place = _beside_log(settings)
    return None if place is None or path_of(settings.store) is not None else take_slot(place)


def open_review(settings: Settings, clock: Clock) -> ReviewFile:
    """The review queue of all processes of this machine on the store; in memory where there is no place for a file."""
    try:
        return ReviewFile(kept_beside(settings, "review"), clock)
    except StoreError as error:
        log.warning("the review queue is in memory and ends with this process: %s", error)
        return ReviewFile(None, clock)


def kept_beside(settings: Settings, name: str) -> Path | None:
    """The file ``name`` beside the store, or beside the audit log when the store is no file; None without either."""
    file = path_of(settings.store) or _beside_log(settings)
    return None if file is None else file.with_name(f"{file.name}.{name}")


def _beside_log(settings: Settings) -> Path | None:
    if settings.audit.path is None:
        return None
    mark = hashlib.sha256(mask_url(settings.store).encode()).hexdigest()[:8]
    return Path(settings.audit.path).expanduser().with_name(f"semantic-{mark}")


class BoundKeeper:
    """Saves ``bound`` to ``file`` every ``seconds``, when it has changed, and at the end."""

    def __init__(self, bound: Bound, file: Path, *, seconds: float = SAVE_SECONDS) -> None:
        self._bound = bound
        self._file = file
        self._seconds = seconds
        self._saved = b""
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. Call once, in the event loop."""
        self._task = asyncio.create_task(self._run(), name="keep error bound")

    async def close(self) -> None:
        """Save a last time. Idempotent."""
        self._ending.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def save(self) -> None:
        """Write the file, all or nothing; that the disk refuses is said and no more."""
        snapshot = self._bound.snapshot()
        if snapshot == self._saved:
            return
        try:
            await asyncio.to_thread(_replace, self._file, snapshot)
        except OSError as error:
            log.warning("what was learned of semantic answers is not kept: %s", error)
        else:
            self._saved = snapshot

    async def _run(self) -> None:
        # Ended by the event and never cancelled: a thread would go on writing the file that the last save writes.
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._ending.wait()
            await self.save()


def _replace(file: Path, data: bytes) -> None:
    new = file.with_name(file.name + ".new")
    try:
        with new.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()  # a full disk must not keep half a file for ever
        raise

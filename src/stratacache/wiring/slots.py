"""Places beside a store's file for what each process keeps of its own from one run to the next."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

SLOTS = 64


class Slot:
    """One place: files whose names begin with ``prefix`` are this process's alone until ``close``."""

    def __init__(self, prefix: Path, descriptor: int) -> None:
        self._prefix = prefix
        self._descriptor = descriptor

    def path(self, name: str) -> Path:
        """``cache.db`` and ``index`` → ``cache.db.0.index``."""
        return self._prefix.with_name(f"{self._prefix.name}.{name}")

    def close(self) -> None:
        """Leave it to the next process. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take_slot(file: Path) -> Slot | None:
    """The first place beside ``file`` that no living process has, None when there is none: nothing is kept then.

    Which of the gateways and workers on a store takes which place does not matter: what is kept there is brought up to
    date by the store.
    """
    for number in range(SLOTS):
        prefix = file.with_name(f"{file.name}.{number}")
        try:
            prefix.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(f"{prefix}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("nothing is kept beside the store: %s", error.strerror)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        return Slot(prefix, descriptor)
    return None

"""Tells users who come for the first time from those who were here before, in bounded memory."""

from __future__ import annotations

from typing import Literal

GENERATION = 50_000
"""Users that one of the two generations holds; about 4 MB each."""

Age = Literal["new", "returning", "unknown"]


class Visitors:
    """The users seen of late, as hashes: the last 50,000 to 100,000 different ones.

    Who comes after more than that is new again, and so is everybody after a restart or at another worker. Of two users
    with one hash (64 bits) the second is taken for the first.
    """

    def __init__(self, generation: int = GENERATION) -> None:
        self._generation = generation
        self._young: set[int] = set()
        self._old: set[int] = set()

    def age(self, tenant: str, user: str) -> Age:
        """Notes the visit."""
        if not user:
            return "unknown"
        mark = hash((tenant, user))
        if mark in self._young:
            return "returning"
        known = mark in self._old
        self._young.add(mark)
        if len(self._young) >= self._generation:
            self._old, self._young = self._young, set()
        return "returning" if known else "new"

    def check(self) -> None:
        """Raise AssertionError when more are held than may be."""
        assert len(self._young) < self._generation
        assert len(self._old) <= self._generation

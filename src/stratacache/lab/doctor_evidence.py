"""What ``stratacache doctor`` goes by, gathered from a gateway, its store and its files; and what checks say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from stratacache.types import JSON


class RedisFacts(msgspec.Struct, frozen=True):
    """Of one Redis server. ``ping`` is the median round trip in seconds, ``offset`` its clock against ours.

    ``limit`` is maxmemory in bytes, 0 for none; ``refused`` counts writes that it had no memory for.
    """

    address: str
    ping: float
    offset: float
    used: int
    limit: int
    policy: str
    evicted: int
    refused: int


class Evidence(msgspec.Struct, frozen=True):
    """All that was found out. What could not be asked is None or empty, and its checks say so.

    ``settings``: masked, in force or else configured. ``stats``: of ``GET /admin/stats``. ``live``: of
    ``GET /admin/config``. ``offsets``: seconds by which the clock of each instance is ahead of ours. ``redis``: None
    where the store is none, or was not reached: then ``unreachable`` says why. ``leftovers``: files set aside as
    damaged. ``expiries``: creation and end of a sample of entries, seconds since the epoch. ``hosts``: names that the
    gateway answered to.
    """

    settings: Mapping[str, JSON]
    stats: JSON = None
    live: JSON = None
    offsets: Mapping[str, float] = {}
    redis: Sequence[RedisFacts] | None = None
    unreachable: str = ""
    leftovers: Sequence[str] | None = None
    expiries: Sequence[tuple[float, float]] = ()
    hosts: Sequence[str] = ()


State = Literal["ok", "found", "unknown"]


class Row(msgspec.Struct, frozen=True):
    """What one check came to. ``evidence`` is what was seen, also where all is well."""

    check: str
    state: State
    evidence: str
    symptom: str = ""
    cause: str = ""
    fix: str = ""


class Check(msgspec.Struct, frozen=True):
    """A row of the table that ``examine`` decides on: whether it is found, and the evidence; None when not known."""

    name: str
    symptom: str
    cause: str
    fix: str
    examine: Callable[[Evidence], tuple[bool, str] | None]

    def __call__(self, evidence: Evidence) -> Row:
        seen = self.examine(evidence)
        if seen is None:
            return Row(self.name, "unknown", "not to be seen from here")
        found, what = seen
        if not found:
            return Row(self.name, "ok", what)
        return Row(self.name, "found", what, self.symptom, self.cause, self.fix)

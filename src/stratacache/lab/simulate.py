"""Replays a trace through the routing that production runs, and through simpler ways, for hits and queues.

Time is simulated: nothing waits. A replica computes ``rate`` blocks of prompt a second, in the order of arrival, and
its cache is the LRU that ``policy.affinity`` models. Answers' tokens take no part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from stratacache.lab.simulate_traces import TraceRequest
from stratacache.policy.affinity import Affinity, Placement
from stratacache.policy.replica_model import ReplicaModel

LRU_SIZES = (1_000, 10_000, 20_000, 30_000, 50_000)
RELATIVE_BETAS = (0.1, 0.3, 1.0)


class FleetSize(msgspec.Struct, frozen=True):
    """``capacity`` in blocks a replica; ``rate`` in blocks a second that one replica computes."""

    replicas: int
    capacity: int
    rate: float


class Outcome(msgspec.Struct, frozen=True):
    """Of one policy over the trace.

    ``hits``: the share of all blocks that were found in cache. ``backlog``: blocks that wait where a request goes,
    its own included, 99th percentile over the requests. ``busiest``: the most that one replica computed, over the mean.
    """

    policy: str
    hits: float
    backlog: float
    busiest: float


class Bounds(msgspec.Struct, frozen=True):
    """Shares of blocks found by one cache that sees all requests: without limit, and an LRU of so many blocks."""

    infinite: float
    lru: dict[int, float]


class Router(Protocol):
    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        """The replica for the next request."""
        ...

    def served(self, cached: int) -> None:
        """That replica found so many blocks in its cache."""
        ...


class RoundRobin:
    """One after the other."""

    def __init__(self, replicas: int) -> None:
        self._replicas, self._next = replicas, -1

    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        self._next = (self._next + 1) % self._replicas
        return self._next

    def served(self, cached: int) -> None: ...


class LeastLoaded:
    """The one with the least to do."""

    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        return min(range(len(backlog)), key=backlog.__getitem__)

    def served(self, cached: int) -> None: ...


class Hashed:
    """By a hash of the first ``blocks`` blocks."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks

    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        digest = hashlib.sha256(b"\0".join(prefix[: self._blocks])).digest()
        return int.from_bytes(digest[:8], "big") % len(backlog)

    def served(self, cached: int) -> None: ...


class Relative:
    """Share of the prompt held, less ``beta`` times the replica's backlog over the mean; sees the true caches."""

    def __init__(self, caches: Sequence[ReplicaModel], beta: float) -> None:
        self._caches, self._beta = caches, beta

    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        mean = sum(backlog) / len(backlog) or 1.0
        blocks = len(prefix) or 1

        def score(i: int) -> tuple[float, float]:
            return self._caches[i].overlap(prefix) / blocks - self._beta * backlog[i] / mean, -backlog[i]

        return max(range(len(backlog)), key=score)

    def served(self, cached: int) -> None: ...


class Production:
    """``policy.affinity`` as the gateway runs it; it knows only what it sent and what the replicas reported."""

    def __init__(self, affinity: Affinity) -> None:
        self._affinity = affinity
        self._placed = Placement(0, 0)

    def route(self, prefix: Sequence[bytes], backlog: Sequence[float]) -> int:
        choice = self._affinity.choose(prefix, backlog)
        assert choice is not None, "every replica takes requests"
        self._placed = self._affinity.place(choice.replica, prefix)
        return choice.replica

    def served(self, cached: int) -> None:
        self._affinity.settle(self._placed, cached)


MakeRouter = Callable[[FleetSize, Sequence[ReplicaModel]], Router]


def routers() -> dict[str, MakeRouter]:
    """Every policy by its name. One believes in caches twice as large as they are: what replicas report corrects it."""
    made: dict[str, MakeRouter] = {
        "round robin": lambda size, caches: RoundRobin(size.replicas),
        "least loaded": lambda size, caches: LeastLoaded(),
        "hash of the first block": lambda size, caches: Hashed(1),
        "hash of the first two": lambda size, caches: Hashed(2),
    }
    for beta in RELATIVE_BETAS:
        made[f"overlap - {beta:g} x load"] = _relative(beta)
    made["affinity"] = lambda size, caches: Production(Affinity([size.capacity] * size.replicas))
    made["affinity, believes 2 x"] = lambda size, caches: Production(
        Affinity([2 * size.capacity] * size.replicas)
    )
    return made


def _relative(beta: float) -> MakeRouter:
    return lambda size, caches: Relative(caches, beta)


def replay(trace: Sequence[TraceRequest], size: FleetSize, name: str, make: MakeRouter) -> Outcome:
    """The trace over a fleet of empty replicas."""
    caches = [ReplicaModel(size.capacity) for _ in range(size.replicas)]
    router = make(size, caches)
    backlog = [0.0] * size.replicas
    computed = [0] * size.replicas
    waits: list[float] = []
    found = now = 0.0
    for tick, request in enumerate(trace, 1):
        drained = (request.at - now) * size.rate
        now = request.at
        backlog = [max(0.0, blocks - drained) for blocks in backlog]
        replica = router.route(request.prefix, backlog)
        ticks, _, _ = caches[replica].use(request.prefix, tick)
        caches[replica].finished(tick)
        router.served(len(ticks))
        found += len(ticks)
        fresh = len(request.prefix) - len(ticks)
        backlog[replica] += fresh
        computed[replica] += fresh
        waits.append(backlog[replica])
    blocks = sum(len(request.prefix) for request in trace)
    mean = sum(computed) / size.replicas
    return Outcome(
        name, _share(found, blocks), percentile(waits, 0.99), max(computed) / mean if mean else 1.0
    )


def bounds(trace: Sequence[TraceRequest], sizes: Sequence[int] = LRU_SIZES) -> Bounds:
    """What one cache in front of all replicas would find."""
    blocks = sum(len(request.prefix) for request in trace)
    return Bounds(
        _share(_found(trace, blocks + 1), blocks),
        {size: _share(_found(trace, size), blocks) for size in sizes},
    )


def _found(trace: Sequence[TraceRequest], capacity: int) -> int:
    cache = ReplicaModel(capacity)
    found = 0
    for tick, request in enumerate(trace, 1):
        ticks, _, _ = cache.use(request.prefix, tick)
        cache.finished(tick)
        found += len(ticks)
    return found


def rate_for(trace: Sequence[TraceRequest], replicas: int, utilisation: float) -> float:
    """Blocks a second at which so many replicas would be busy that share of the time if nothing were cached."""
    seconds = trace[-1].at or 1.0
    return sum(len(request.prefix) for request in trace) / seconds / replicas / utilisation


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0

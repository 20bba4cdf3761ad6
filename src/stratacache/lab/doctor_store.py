"""Checks of the store's server and files, pure."""

from __future__ import annotations

from stratacache.lab.doctor_evidence import Evidence, RedisFacts

Seen = tuple[bool, str] | None

SLOW = 0.005  # seconds for a round trip: a look-up has 0.05 s in all by default, and takes two or three
FULL = 0.95  # share of maxmemory


def redis_slow(evidence: Evidence) -> Seen:
    """A round trip takes more than 5 ms."""
    if not evidence.redis:
        return None
    worst = max(evidence.redis, key=lambda one: one.ping)
    return worst.ping > SLOW, f"PING of {worst.address}: {worst.ping * 1e3:.1f} ms (median)"


def redis_memory(evidence: Evidence) -> Seen:
    """A server evicts, refuses writes, or is about to."""
    if not evidence.redis:
        return None
    worst = max(evidence.redis, key=_fullness)
    found = worst.evicted > 0 or worst.refused > 0 or _fullness(worst) >= FULL
    limit = f"{worst.limit / 2**20:,.1f} MiB" if worst.limit else "no limit"
    told = (
        f"{worst.address} uses {worst.used / 2**20:,.1f} of {limit}, policy {worst.policy}, "
        f"{worst.evicted:,} evicted, {worst.refused:,} refused (OOM)"
    )
    return found, told


def _fullness(facts: RedisFacts) -> float:
    return facts.used / facts.limit if facts.limit else 0.0


def reachable(evidence: Evidence) -> Seen:
    """The store's server was asked and did not answer."""
    if evidence.unreachable:
        return True, evidence.unreachable
    return (False, "it answers") if evidence.redis else None


def leftovers(evidence: Evidence) -> Seen:
    """Files that were set aside as damaged."""
    if evidence.leftovers is None:
        return None
    if not evidence.leftovers:
        return False, "none was set aside"
    return True, ", ".join(evidence.leftovers[:5]) + (", …" if len(evidence.leftovers) > 5 else "")

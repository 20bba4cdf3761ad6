"""Checks of a gateway by its figures and settings, pure: evidence in, what was seen out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from stratacache.lab.doctor_evidence import Evidence
from stratacache.settings import is_loopback
from stratacache.types import JSON

Seen = tuple[bool, str] | None

WRITTEN = 0.99  # share of write-backs that has to succeed
LEAST = 20  # of whatever is counted, before a share of it says something
GONE = 0.05  # share of semantic look-ups that may find a question without an answer
LAG = 30.0  # seconds that an index may be behind the log
TOGETHER = 0.5  # share of the entries that may end within a twentieth of their mean life
SKEW = 1.0  # seconds: a look-up that is answered, an entry that ends
GENEROUS = 2.0  # times of what is used that max_tokens may allow
CORES = 4
SHARE = 0.5  # of a call to the model that the look-ups before it may take
COLD = 0.1  # hit rate
_LOST = ("failed", "dropped")
_LOOKUPS = ("exact", "embed", "search", "verify")


def upstream(evidence: Evidence) -> Seen:
    """An upstream or one of its replicas cannot answer."""
    if evidence.stats is None:
        return None
    ready: Mapping[str, bool] = evidence.stats["upstreams_ready"]
    replicas = _levels(evidence, "stratacache_replica_up")
    down = [name for name, up in {**replicas, **ready}.items() if not up]
    return bool(down), f"down: {', '.join(down)}" if down else f"{', '.join(ready)}: ready"


def dependency(evidence: Evidence) -> Seen:
    """A circuit breaker is open, or tries again."""
    if evidence.stats is None:
        return None
    states = _levels(evidence, "stratacache_breaker_state")
    words = {1.0: "tried again", 2.0: "left alone"}
    failing = [f"{name} is {words[state]}" for name, state in states.items() if state in words]
    return bool(failing), ", ".join(failing) or f"{', '.join(states) or 'nothing'}: works"


def writeback(evidence: Evidence) -> Seen:
    """Fewer than 99 % of the answers that were to be stored reached the store."""
    if evidence.stats is None:
        return None
    results: Mapping[str, int] = evidence.stats["writeback"]
    lost, total = sum(results.get(name, 0) for name in _LOST), sum(results.values())
    if total == 0:
        return False, "nothing was to be stored yet"
    return (total - lost) / total < WRITTEN, f"{total - lost:,} of {total:,} reached the store"


def embedder(evidence: Evidence) -> Seen:
    """The vectors that serve are not of the configured embedder, or embedding anew failed."""
    if evidence.live is None or evidence.stats is None or evidence.live["embedder"] is None:
        return None
    both = evidence.live["embedder"]
    states = _levels(evidence, "stratacache_reindex_state")
    state = next((name for name, on in states.items() if on), "idle")
    changed = both["configured"] != both["serving"]
    told = f"vectors of {both['serving']!r}"
    told += f", configured is {both['configured']!r}" if changed else ", as configured"
    return changed or state in ("running", "failed"), f"{told}; embedding anew: {state}"


def index(evidence: Evidence) -> Seen:
    """Questions are found whose answers are gone, the index is behind, or has more questions than the store entries."""
    if evidence.stats is None or evidence.stats["index"] is None:
        return None
    looked: Mapping[str, int] = evidence.stats["semantic"]["lookups"]
    total = sum(looked.values())
    gone = looked.get("entry_gone", 0) + looked.get("index_disagrees", 0)
    lag = max(_levels(evidence, "stratacache_index_lag_seconds").values(), default=0.0)
    vectors = evidence.stats["index"]["vectors"]
    told = [
        f"{gone:,} of {total:,} look-ups found a question without its answer",
        f"{lag:.0f} s behind the log",
    ]
    found = (total >= LEAST and gone / total > GONE) or lag > LAG
    entries = _entries(evidence)
    if entries is not None:
        told.append(f"{vectors:,} questions beside {entries:,} entries")
        found = found or vectors > entries + max(LEAST, entries / 10)
    return found, "; ".join(told)


def _entries(evidence: Evidence) -> int | None:
    """Entries in the store, None where its figure counts other things too."""
    scheme = str(evidence.settings["store"]).partition(":")[0]
    store = evidence.stats["store"]
    return None if store is None or scheme not in ("memory", "sqlite", "rocksdb") else int(store["entries"])


def lockstep(evidence: Evidence) -> Seen:
    """Scenes without jitter, or a sample of entries of which half end together."""
    scenes: Mapping[str, Mapping[str, JSON]] = evidence.settings["scenes"]
    steady = sorted(name for name, scene in scenes.items() if scene["jitter"] < 0.01)
    told = f"no jitter in {', '.join(steady)}" if steady else "every scene has jitter"
    together = _together(evidence)
    if together is None:
        return bool(steady), told
    share, width = together
    told += f"; {share:.0%} of the entries with such a life end within {width:.0f} s"
    return bool(steady) or share > TOGETHER, told


def _together(evidence: Evidence) -> tuple[float, float] | None:
    """The largest share of entries of similar lives that ends within a twentieth of those, and how long that is."""
    alike: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for start, end in evidence.expiries:
        if end > start:
            alike[round(math.log2(end - start))].append((start, end))
    shares = [_largest_share(group) for group in alike.values() if len(group) >= LEAST]
    return max(shares, default=None)


def _largest_share(group: Sequence[tuple[float, float]]) -> tuple[float, float]:
    width = sum(end - start for start, end in group) / len(group) / 20
    ends = sorted(end for _, end in group)
    first = best = 0
    for last, end in enumerate(ends):
        while end - ends[first] > width:
            first += 1
        best = max(best, last - first + 1)
    return best / len(ends), width


def clocks(evidence: Evidence) -> Seen:
    """Clocks that differ by more than a second, from each other."""
    offsets = {
        **evidence.offsets,
        **{f"redis {one.address}": one.offset for one in evidence.redis or ()},
    }
    if not offsets:
        return None
    told = ", ".join(f"{name} {offset:+.1f} s" for name, offset in offsets.items())
    return max((0.0, *offsets.values())) - min(
        (0.0, *offsets.values())
    ) > SKEW, f"against this machine: {told}"


def drift(evidence: Evidence) -> Seen:
    """An alarm is on, or the lower limit of the observed error is above the bound."""
    if evidence.stats is None or evidence.stats["index"] is None:
        return None
    name = "stratacache_semantic_observed_error"
    low, high = _levels(evidence, f"{name}_low"), _levels(evidence, f"{name}_high")
    alarms = [scene for scene, on in _levels(evidence, "stratacache_semantic_alarm").items() if on]
    beyond = [scene for scene, limit in low.items() if limit > _bound(evidence, scene)]
    told = [f"alarm in {', '.join(alarms)}"] if alarms else []
    told += [
        f"{scene}: {error:.2%} of the requests ({low[scene]:.2%} to {high[scene]:.2%}), "
        f"{_bound(evidence, scene):.2%} allowed"
        for scene, error in _levels(evidence, name).items()
        if high[scene]
    ]
    return bool(alarms or beyond), "; ".join(told) or "no semantic answers yet"


def _bound(evidence: Evidence, scene: str) -> float:
    own = evidence.settings["scenes"].get(scene, {}).get("max_error")
    return float(evidence.settings["tiers"]["semantic"]["max_error"] if own is None else own)


def block_leak(evidence: Evidence) -> Seen:
    """Blocks of an engine that are in no state."""
    engines = (evidence.stats or {}).get("engines") or {}
    blocks = {name: one["blocks"] for name, one in engines.items() if one is not None}
    if not blocks:
        return None
    lost = {
        name: counts["total"] - sum(counts[state] for state in ("free", "cached", "active"))
        for name, counts in blocks.items()
    }
    return any(lost.values()), ", ".join(
        f"{name}: {blocks[name]['total']:,} blocks, {missing:,} in no state" for name, missing in lost.items()
    )


def max_tokens(evidence: Evidence) -> Seen:
    """Clients allow more than twice the tokens that their answers take."""
    if evidence.stats is None:
        return None
    limits: Mapping[str, int] = evidence.stats["completion_limits"]
    allowed, used = limits.get("allowed", 0), limits.get("used", 0)
    if not used or sum(evidence.stats["upstream_calls"].values()) < LEAST:
        return False, "too few answers to tell"
    return (
        allowed > GENEROUS * used,
        f"{allowed:,} tokens allowed, {used:,} used ({allowed / used:.1f} times)",
    )


def cpu(evidence: Evidence) -> Seen:
    """Fewer than four cores, with a semantic tier that embeds on them."""
    if evidence.live is None:
        return None
    cores = evidence.live["cores"]
    semantic = evidence.settings["tiers"]["semantic"]
    needs = semantic["enabled"] and "://" not in semantic["embedder"]
    return needs and cores < CORES, f"{cores:g} cores" + (
        "" if needs else ", and no embedding is done on them"
    )


def bottleneck(evidence: Evidence) -> Seen:
    """The look-ups before a call take more than half as long as the call itself."""
    if evidence.stats is None:
        return None
    stages: Mapping[str, JSON] = evidence.stats["stages"]
    model = stages.get("upstream")
    if model is None or model["count"] < LEAST:
        return False, "too few calls to tell"
    means = {name: stages[name]["mean"] for name in _LOOKUPS if name in stages and stages[name]["mean"]}
    worst = max(means, key=lambda name: means[name], default="")
    told = f"look-ups {sum(means.values()) * 1e3:.1f} ms, the model {model['mean'] * 1e3:.1f} ms on average"
    return sum(means.values()) > SHARE * model["mean"], told + (f"; slowest: {worst}" if worst else "")


def cold(evidence: Evidence) -> Seen:
    """Of fifty requests or more less than a tenth were hits."""
    if evidence.stats is None:
        return None
    total, hits = evidence.stats["requests"], evidence.stats["outcomes"].get("hit", 0)
    if total < LEAST:
        return False, f"{total} requests: too few to tell"
    counts = Counter({**evidence.stats["reasons"], **evidence.stats["withheld"]})
    reasons = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(4))
    return hits / total < COLD, f"{hits / total:.0%} of {total:,} requests were hits; most often: {reasons}"


def access(evidence: Evidence) -> Seen:
    """It is reached from elsewhere without keys: it listens on loopback only, so a proxy before it lets others in."""
    if evidence.settings["auth"] is not None:
        return False, "callers need a key"
    others = [
        host for host in (evidence.settings["server"]["host"], *evidence.hosts) if not is_loopback(host)
    ]
    if others:
        return True, f"answers at {', '.join(others)} without a key"
    return False, "without keys, and for this machine only"


def _levels(evidence: Evidence, name: str) -> Mapping[str, float]:
    levels: Mapping[str, float] = evidence.stats["levels"].get(name, {})
    return levels

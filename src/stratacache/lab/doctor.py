"""The table of ``stratacache doctor``: each fault with its symptom, its cause, and what mends it."""

from __future__ import annotations

from collections.abc import Sequence

from stratacache.lab import doctor_checks as look
from stratacache.lab import doctor_store as store
from stratacache.lab.doctor_evidence import Check, Evidence, Row

CHECKS: Sequence[Check] = (
    Check(
        "upstream",
        "requests fail, or wait for a model that is not there",
        "a model server is down, unreachable or refuses the key",
        "start it or mend its base_url and key; 'stratacache serve' says why on standard error",
        look.upstream,
    ),
    Check(
        "dependency",
        "requests go to the model although the answer was given before",
        "the store, or a model of the semantic tier, failed again and again and is left alone for a while",
        "see the gateway's log for the fault; it is asked again by itself",
        look.dependency,
    ),
    Check(
        "write-back",
        "repeats are not answered: what was computed does not reach the store",
        "the store refuses writes or is too slow for them",
        "give the store memory and disk, or another place in 'store'",
        look.writeback,
    ),
    Check(
        "embedder changed",
        "questions in other words are not found, or found late",
        "the embedder is not the one that the stored vectors are of",
        "let the gateway embed them anew ('stratacache reindex --status'); where it failed, mend what it names and run "
        "'stratacache reindex'",
        look.embedder,
    ),
    Check(
        "index and store",
        "questions are found whose answers are gone, or answers stored whose questions are not found",
        "the index and the store disagree: one lost data, or the index is behind the log",
        "run 'stratacache reindex', which leaves out what has no answer; see that both are kept on one disk",
        look.index,
    ),
    Check(
        "lives in lockstep",
        "the load on the model comes in waves",
        "entries that were made together end together",
        "set 'jitter' of the scenes to 0.16 or so, and 'early_refresh' above 0",
        look.lockstep,
    ),
    Check(
        "redis slow",
        "hits take long, and look-ups end without an answer (store_slow)",
        "the Redis server is far away, overloaded or held up by long commands",
        "move it nearer, look at its SLOWLOG, give it a core of its own; or raise tiers.exact.near_cache_bytes",
        store.redis_slow,
    ),
    Check(
        "redis memory",
        "entries vanish before their time, or nothing can be stored",
        "Redis has reached its maxmemory: it evicts, or with noeviction refuses writes (OOM)",
        "raise maxmemory with 30 % to spare ('stratacache plan'), and set maxmemory-policy to allkeys-lfu",
        store.redis_memory,
    ),
    Check(
        "store unreachable",
        "every request goes to the model",
        "the store's server does not answer",
        "start it, or mend the address and password in 'store'",
        store.reachable,
    ),
    Check(
        "damaged files",
        "the cache began empty after a start",
        "a file of the store was damaged, by a full disk, a kill of the machine or another program",
        "look at the disk; the files set aside are of no more use and can be removed",
        store.leftovers,
    ),
    Check(
        "clocks",
        "entries end too early or too late, and differently on each instance",
        "the clocks of the instances or of the store differ",
        "run an NTP client on all of them",
        look.clocks,
    ),
    Check(
        "threshold drift",
        "semantic answers are wrong more often than allowed",
        "questions have changed, or an entry is wrong: the verifier is less right than believed",
        "work off 'stratacache review', then 'stratacache calibrate'; until then a lower max_error or mode: shadow",
        look.drift,
    ),
    Check(
        "block leak",
        "the engine slows down and begins to refuse, until it is restarted",
        "KV blocks are neither free nor cached nor in use",
        "restart the engine and report it: this is a fault of the engine",
        look.block_leak,
    ),
    Check(
        "max_tokens",
        "few requests run at a time in the model server although it has memory",
        "clients ask for far longer answers than they get, and servers set memory aside for them",
        "lower max_tokens in the clients to about twice of what they use",
        look.max_tokens,
    ),
    Check(
        "cpu",
        "the semantic tier is slow under load",
        "there are fewer than 4 cores for embedding, verifying and serving",
        "give the gateway 4 cores, 8 under load; or an embeddings server in tiers.semantic.embedder",
        look.cpu,
    ),
    Check(
        "bottleneck",
        "answers are slow and the model is not why",
        "look-ups take a large part of the time: the store, the network or the embedding is the bottleneck",
        "see the slowest stage in 'stratacache stats'; bring the store nearer or give the embedder cores",
        look.bottleneck,
    ),
    Check(
        "cold cache",
        "few requests are answered from the cache",
        "the requests do not repeat as far as the key goes, or their answers may not be kept",
        "look at the reasons, and at two requests that should share an answer with 'stratacache explain'",
        look.cold,
    ),
    Check(
        "access",
        "whoever reaches the machine can use the models and administer the cache",
        "the gateway serves others than this machine without keys, or in clear text",
        "name auth.keys, and put TLS before it",
        look.access,
    ),
)


def diagnose(evidence: Evidence) -> list[Row]:
    """A row for every check, what was found first."""
    order = {"found": 0, "unknown": 1, "ok": 2}
    return sorted((check(evidence) for check in CHECKS), key=lambda row: order[row.state])

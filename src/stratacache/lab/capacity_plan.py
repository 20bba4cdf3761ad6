"""From needs to sizes: KV pool and engine flags, entries, vectors, cores, what gives way first; 30 % kept free."""

from __future__ import annotations

import math

import msgspec
import yaml

from stratacache.lab.capacity import GIB, ModelShape, block_size
from stratacache.lab.capacity_needs import Needs

HEADROOM = 1.3
"""What is needed times this is what to have: traffic grows, and a cache that is full evicts what it needs."""

MIB = 1 << 20
ENTRY_BYTES = 2048
ACTIVE_USERS = 0.1
"""Of the daily users so many leave an answer worth keeping: one entry each."""
STORE_OVERHEAD = 1.25
"""Bytes of a store to bytes of its answers: a million of them in SQLite, ``benchmarks/results/store_million.json``."""
BANK = 1.5
"""Vectors to questions of the bank: questions come in other words too."""
ROW_BYTES = 406
"""Of a question in the HNSW index beside its vector in 2-byte numbers: links, text, times (guide, vector index)."""
SEMANTIC_SECONDS = 0.025
"""CPU of a question that is embedded, searched for and verified: ``benchmarks/results/semantic_latency.json``."""
FEWEST_CORES, LOADED_CORES = 4, 8
LEAST_BOUND = 64 * MIB
ENGINE_BYTES = int(1.5 * GIB)
"""Of each GPU for activations and CUDA graphs; the engine measures its own at the start."""
FREE_BYTES = 2 * GIB
"""Of each GPU that is left to the driver and to peaks."""


class KvPool(msgspec.Struct, frozen=True):
    """Of each GPU. ``sequences`` of mean length fit at once; ``max_num_seqs`` of them leave the headroom."""

    pool_bytes: int
    blocks: int
    sequences: int
    max_num_seqs: int
    max_model_len: int
    utilisation: float


class Resource(msgspec.Struct, frozen=True):
    """What is there by nature or by your word. ``growth``: until it is used up; below 1 it is short now."""

    name: str
    need: float
    have: float
    unit: str

    @property
    def growth(self) -> float:
        return self.have / self.need if self.need else math.inf


class Sizes(msgspec.Struct, frozen=True):
    """What to set up, headroom included; bytes, and whole cores."""

    entries: int
    store_bytes: int
    vectors: int
    index_bytes: int
    cores: int


class Plan(msgspec.Struct, frozen=True):
    """``resources``: what gives way first comes first. ``warnings``: one sentence each. ``block``: tokens."""

    needs: Needs
    sizes: Sizes
    resources: tuple[Resource, ...]
    warnings: tuple[str, ...]
    block: int
    shape: ModelShape | None = None
    pool: KvPool | None = None


def make_plan(needs: Needs, shape: ModelShape | None) -> Plan:
    """Without a model's shape only the caches are planned; without ``gpu_memory`` and ``weights`` no pool."""
    sizes = _sizes(needs)
    block = block_size(needs.prompt_tokens + needs.answer_tokens)
    pool = None
    if shape is not None and needs.gpu_memory is not None and needs.weights is not None:
        pool = _pool(needs, shape.on_each(needs.gpus), block, needs.gpu_memory, needs.weights)
    resources = tuple(sorted(_resources(needs, sizes, shape, pool, block), key=lambda one: one.growth))
    return Plan(needs, sizes, resources, tuple(_warnings(needs, resources, pool)), block, shape, pool)


def _sizes(needs: Needs) -> Sizes:
    entries = math.ceil(ACTIVE_USERS * needs.daily_users)
    vectors = math.ceil(BANK * needs.question_bank)
    return Sizes(
        entries=entries,
        store_bytes=_mebibytes(entries * ENTRY_BYTES * STORE_OVERHEAD * HEADROOM),
        vectors=vectors,
        index_bytes=_mebibytes(vectors * (2 * needs.dimension + ROW_BYTES) * HEADROOM),
        cores=_cores(needs),
    )


def _mebibytes(wanted: float) -> int:
    return math.ceil(wanted / MIB) * MIB


def _cores(needs: Needs) -> int:
    """Four at least; when the models take more than two of them eight, and from there on two beside the models'."""
    busy = needs.requests_per_second * SEMANTIC_SECONDS * HEADROOM
    if busy <= FEWEST_CORES / 2:
        return FEWEST_CORES
    return max(LOADED_CORES, math.ceil(busy) + 2)


def _pool(needs: Needs, each: ModelShape, block: int, memory: int, weights: int) -> KvPool:
    """Of one GPU: its memory × utilisation − its part of the weights − the engine's own."""
    utilisation = math.floor(min(0.95, max(0.5, 1 - FREE_BYTES / memory)) * 100) / 100
    pool = max(0, int(memory * utilisation) - math.ceil(weights / needs.gpus) - ENGINE_BYTES)
    mean = math.ceil(needs.prompt_tokens + needs.answer_tokens)
    sequences = pool // each.sequence_blocks_bytes(mean, block)
    return KvPool(
        pool_bytes=pool,
        blocks=pool // each.block_bytes(block),
        sequences=sequences,
        max_num_seqs=max(1, math.floor(sequences / HEADROOM)),
        max_model_len=_max_model_len(needs, each, block, pool),
        utilisation=utilisation,
    )


def _max_model_len(needs: Needs, each: ModelShape, block: int, pool: int) -> int:
    """The longest request and the headroom, in whole blocks; not past what the model was made for or the pool holds."""
    wanted = math.ceil(_longest(needs) * HEADROOM / block) * block
    if each.context is not None:
        wanted = min(wanted, each.context)
    while wanted > block and each.sequence_blocks_bytes(wanted, block) > pool:
        wanted = (wanted - 1) // (2 * block) * block or block
    return wanted


def _longest(needs: Needs) -> int:
    return needs.longest or math.ceil(needs.prompt_tokens + (needs.max_tokens or needs.answer_tokens))


def _resources(
    needs: Needs, sizes: Sizes, shape: ModelShape | None, pool: KvPool | None, block: int
) -> list[Resource]:
    busy = needs.requests_per_second * SEMANTIC_SECONDS
    found = [Resource("CPU for the semantic tier", busy, needs.cores or sizes.cores, "cores")]
    if needs.store_memory is not None:
        found.append(
            Resource("store", sizes.entries * ENTRY_BYTES * STORE_OVERHEAD, needs.store_memory, "bytes")
        )
    if pool is not None and shape is not None:
        mean = math.ceil(needs.prompt_tokens + needs.answer_tokens)
        taken = needs.at_once * shape.on_each(needs.gpus).sequence_blocks_bytes(mean, block)
        found.append(Resource("KV pool of each GPU", taken, pool.pool_bytes, "bytes"))
    if shape is not None and shape.context is not None:
        found.append(Resource("context for the longest request", _longest(needs), shape.context, "tokens"))
    return found


def _warnings(needs: Needs, resources: tuple[Resource, ...], pool: KvPool | None) -> list[str]:
    found = []
    for one in resources:
        if one.growth < 1:
            short = f"short by {1 / one.growth:.1f} times" if one.growth else "nothing is left for it"
            found.append(f"{one.name}: {short}.")
        elif one.growth < HEADROOM and one.name != "context for the longest request":
            found.append(
                f"{one.name}: enough for {one.growth:.2f} times the traffic, less than the headroom of 1.3."
            )
    if pool is not None and pool.sequences < 1:
        found.append("KV pool: not one request of mean length fits beside the weights.")
    if needs.max_tokens is not None and needs.max_tokens > 2 * needs.answer_tokens:
        times = needs.max_tokens / needs.answer_tokens
        found.append(
            f"max_tokens: clients ask for {needs.max_tokens:,.0f} and use {needs.answer_tokens:,.0f} on average "
            f"({times:.1f} times); an engine that reserves what is asked for serves that many times fewer at once."
        )
    if needs.cores is not None and needs.cores < FEWEST_CORES:
        found.append(
            f"CPU: {needs.cores} cores; the semantic tier's models want {FEWEST_CORES}, {LOADED_CORES} under load."
        )
    return found


def engine_flags(plan: Plan, model: str) -> list[str]:
    """The command line of vLLM for the plan's pool; empty without one that holds a request."""
    pool, needs = plan.pool, plan.needs
    if pool is None or pool.sequences < 1:
        return []
    flags = [
        "vllm", "serve", model,
        "--block-size", str(plan.block),
        "--gpu-memory-utilization", f"{pool.utilisation:g}",
        "--max-model-len", str(pool.max_model_len),
        "--max-num-seqs", str(pool.max_num_seqs),
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
    ]  # fmt: skip
    if needs.gpus > 1:
        flags += ["--tensor-parallel-size", str(needs.gpus)]
    if needs.kv_dtype.startswith("fp8"):
        flags += ["--kv-cache-dtype", needs.kv_dtype]
    return flags


def config_snippet(plan: Plan) -> str:
    """The gateway's settings for these sizes, as YAML; bounds cost nothing until they are used, so none is tiny."""
    sizes = plan.sizes
    return yaml.safe_dump(
        {
            "store_max_bytes": _bound(sizes.store_bytes),
            "tiers": {
                "semantic": {
                    "index_max_bytes": _bound(sizes.index_bytes),
                    "threads": 2 if sizes.cores <= FEWEST_CORES else sizes.cores // 2,
                }
            },
        },
        sort_keys=False,
    )


def _bound(count: int) -> str:
    return f"{max(LEAST_BOUND, count) // MIB}MiB"

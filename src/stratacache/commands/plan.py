"""Plan capacity from a model and traffic, or predict from a trace what routing to several replicas will find."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stratacache.errors import SettingsError

if TYPE_CHECKING:
    from stratacache.lab.capacity import ModelShape
    from stratacache.lab.capacity_needs import Needs
    from stratacache.lab.capacity_plan import Plan
    from stratacache.lab.simulate import Bounds, FleetSize, Outcome

EXAMPLE = """example:
  stratacache plan --model models/qwen --gpu-memory 24GiB --requests-per-second 2
  stratacache plan --model models/qwen --needs needs.yaml --log requests.jsonl --json
  stratacache plan --trace conversation_trace.jsonl --replicas 8 --blocks 2500

needs.yaml holds any of the needs by name (gpu_memory: 24GiB, daily_users: 20000); options count before the log, the log
before the file. The log has a JSON object a line: prompt_tokens and completion_tokens (or usage with both), if known
also max_tokens and timestamp. Exit code 1: something is short, or clients ask for more than twice what they use."""

_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}
_ASKED = (
    "gpu_memory",
    "requests_per_second",
    "prompt_tokens",
    "answer_tokens",
    "max_tokens",
    "daily_users",
    "question_bank",
)
_GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, metavar="PATH", help="config.json of the model, or its folder")
    parser.add_argument("--needs", type=Path, metavar="FILE", help="needs by name, YAML or JSON")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="measure the needs in a log of requests, JSONL"
    )
    parser.add_argument(
        "--timestamps", choices=_UNITS, default="s", help="unit in the log (default: %(default)s)"
    )
    parser.add_argument("--ask", action="store_true", help="ask for the needs that were not given")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_needs(parser.add_argument_group("needs"))
    _add_trace(parser.add_argument_group("a trace"))


def _add_needs(group: Any) -> None:
    group.add_argument("--gpu-memory", metavar="SIZE", help="of one GPU, such as 80GiB")
    group.add_argument(
        "--gpus", type=int, metavar="N", help="that serve one copy of the model together (default: 1)"
    )
    group.add_argument("--weights", metavar="SIZE", help="of the model (default: its .safetensors)")
    group.add_argument("--kv-dtype", metavar="NAME", help="auto, fp8, bfloat16, float32 (default: auto)")
    group.add_argument("--prompt-tokens", type=float, metavar="N", help="mean of a request (default: 1024)")
    group.add_argument("--answer-tokens", type=float, metavar="N", help="mean of an answer (default: 256)")
    group.add_argument("--longest", type=int, metavar="N", help="tokens of prompt and answer that must fit")
    group.add_argument("--max-tokens", type=float, metavar="N", help="what clients ask for on average")
    group.add_argument(
        "--concurrency", type=int, metavar="N", help="requests at the model at once, at the peak"
    )
    group.add_argument("--requests-per-second", type=float, metavar="X", help="at the peak (default: 1)")
    group.add_argument(
        "--token-seconds", type=float, metavar="X", help="a token of one answer takes (default: 0.03)"
    )
    group.add_argument("--daily-users", type=int, metavar="N", help="(default: 1000)")
    group.add_argument(
        "--question-bank", type=int, metavar="N", help="questions worth knowing (default: 10000)"
    )
    group.add_argument("--dimension", type=int, metavar="N", help="of the embedder's vectors (default: 512)")
    group.add_argument("--cores", type=int, metavar="N", help="of the gateway's machine")
    group.add_argument("--store-memory", metavar="SIZE", help="of Redis, or what the store may take")


def _add_trace(group: Any) -> None:
    group.add_argument(
        "--trace", type=Path, metavar="FILE", help="replay it (Mooncake's format, or agents' texts)"
    )
    group.add_argument("--replicas", type=_positive, default=8, metavar="N", help="(default: %(default)s)")
    group.add_argument(
        "--blocks", type=_positive, default=2500, metavar="N", help="that one caches (default: %(default)s)"
    )
    group.add_argument(
        "--block-tokens",
        type=_positive,
        default=512,
        metavar="N",
        help="of a trace's blocks (default: %(default)s)",
    )
    group.add_argument(
        "--busy",
        type=_share,
        default=0.68,
        metavar="SHARE",
        help="of the time, if nothing were cached (default: %(default)s)",
    )


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10**9:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 10:
        raise argparse.ArgumentTypeError("must be above 0 and at most 10")
    return value


def run(args: argparse.Namespace) -> int:
    return _simulate(args) if args.trace is not None else _plan(args)


def _plan(args: argparse.Namespace) -> int:
    from stratacache.lab.capacity import read_shape
    from stratacache.lab.capacity_plan import config_snippet, engine_flags, make_plan

    needs = _needs(args)
    shape = read_shape(args.model, needs.kv_dtype) if args.model is not None else None
    plan = make_plan(needs, shape)
    flags = engine_flags(plan, str(args.model))
    snippet = config_snippet(plan)
    if args.json:
        told = msgspec.to_builtins(plan)
        for one, resource in zip(told["resources"], plan.resources, strict=True):
            one["growth"] = resource.growth if math.isfinite(resource.growth) else None
        print(_json({**told, "flags": flags, "config": snippet}))
    else:
        _show(plan, flags, snippet)
    return 1 if plan.warnings else 0


def _needs(args: argparse.Namespace) -> Needs:
    from stratacache.lab.capacity import weight_bytes
    from stratacache.lab.capacity_needs import Needs, measure_log, needs_of, read_needs

    beside = {"weights": weight_bytes(args.model)} if args.model is not None else {}
    written = read_needs(args.needs) if args.needs is not None else {}
    measured = measure_log(args.log, _UNITS[args.timestamps]) if args.log is not None else {}
    given = {name: getattr(args, name) for name in Needs.__struct_fields__}
    sources = [beside, written, measured, given]
    if args.ask:
        known = {name for source in sources for name, value in source.items() if value is not None}
        sources.append(_asked(known))
    return needs_of(*sources)


def _asked(known: set[str]) -> dict[str, Any]:
    """An empty answer keeps the default."""
    if not sys.stdin.isatty():
        raise SettingsError("--ask needs a terminal; give the needs as options or in a file")
    answers: dict[str, Any] = {}
    for name in _ASKED:
        if name not in known:
            text = input(f"{name.replace('_', ' ')}: ").strip()
            try:
                answers[name] = (text if name == "gpu_memory" else float(text)) if text else None
            except ValueError:
                raise SettingsError(f"{name}: {text!r} is no number") from None
    return {
        name: int(value) if name in ("daily_users", "question_bank") else value
        for name, value in answers.items()
        if value
    }


def _show(plan: Plan, flags: list[str], snippet: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(show_header=False, title="Capacity, 30 % headroom included", title_justify="left")
    for name, value in [*_model_rows(plan), *_size_rows(plan)]:
        table.add_row(name, value)
    console.print(table)
    table = Table(
        "resource", "needed", "there", "may grow", title="What gives way first", title_justify="left"
    )
    for one in plan.resources:
        table.add_row(
            one.name, _amount(one.need, one.unit), _amount(one.have, one.unit), f"{one.growth:.1f} x"
        )
    console.print(table)
    for warning in plan.warnings:
        print(f"! {warning}")
    if flags:
        print(f"\nEngine:\n  {' '.join(flags[:3])} \\\n    {' '.join(flags[3:])}")
    print(f"\nGateway:\n{_indented(snippet)}")


def _model_rows(plan: Plan) -> list[tuple[str, str]]:
    shape, pool = plan.shape, plan.pool
    if shape is None:
        return []
    rows = [
        ("model", f"{shape.name}: {', '.join(_layers(shape))}"),
        ("KV of a token", f"{shape.bytes_per_token / 1024:,.1f} KiB" + _window_words(shape)),
        (
            "KV of 8k, 32k tokens",
            ", ".join(f"{shape.sequence_bytes(n) / _GIB:.2f} GiB" for n in (8192, 32768)),
        ),
        ("block", f"{plan.block} tokens, {shape.block_bytes(plan.block) / (1 << 20):.2f} MiB"),
    ]
    if pool is None:
        rows.append(("KV pool", "give --gpu-memory and --weights for it"))
        return rows
    mean = plan.needs.prompt_tokens + plan.needs.answer_tokens
    rows += [
        ("KV pool of each GPU", f"{pool.pool_bytes / _GIB:.1f} GiB, {pool.blocks:,} blocks"),
        (
            "requests at once",
            f"{pool.sequences:,} of {mean:,.0f} tokens fit; {plan.needs.at_once:,} expected at the peak",
        ),
    ]
    return rows


def _layers(shape: ModelShape) -> list[str]:
    return [
        f"{one.layers} layers {one.kind}" + (f" of {one.window:,}" if one.window else "")
        for one in shape.attention
    ]


def _window_words(shape: ModelShape) -> str:
    """What windows hold once they are full, beside what grows."""
    windows = [one for one in shape.attention if one.window is not None]
    if not windows:
        return ""
    fixed = sum(one.layers * one.bytes_per_token * (one.window or 0) for one in windows)
    return f" past the windows, and {fixed / _GIB:.2f} GiB in them"


def _size_rows(plan: Plan) -> list[tuple[str, str]]:
    sizes = plan.sizes
    return [
        ("answers kept", f"{sizes.entries:,}: 10 % of the daily users"),
        ("store, or Redis' maxmemory", _amount(sizes.store_bytes, "bytes")),
        ("vectors", f"{sizes.vectors:,}: 1.5 x the question bank"),
        ("index of each process", _amount(sizes.index_bytes, "bytes")),
        ("cores of the gateway", str(sizes.cores)),
    ]


def _simulate(args: argparse.Namespace) -> int:
    from stratacache.lab.simulate import FleetSize, bounds, rate_for, replay, routers
    from stratacache.lab.simulate_traces import read_trace, summary

    trace = read_trace(args.trace, args.block_tokens)
    size = FleetSize(args.replicas, args.blocks, rate_for(trace, args.replicas, args.busy))
    most = bounds(trace)
    outcomes = [replay(trace, size, name, make) for name, make in routers().items()]
    if args.json:
        told = {"trace": summary(trace), "fleet": size, "bounds": most, "policies": outcomes}
        print(_json(msgspec.to_builtins(told, str_keys=True)))
    else:
        _show_outcomes(summary(trace), size, most, outcomes)
    return 0


def _show_outcomes(told: dict[str, Any], size: FleetSize, most: Bounds, outcomes: list[Outcome]) -> None:
    from rich.console import Console
    from rich.table import Table

    print(
        f"{told['requests']:,} requests in {told['seconds']:,.0f} s, {told['blocks']:,} blocks; "
        f"{size.replicas} replicas that cache {size.capacity:,} blocks and compute {size.rate:.1f} a second each"
    )
    table = Table("policy", "block hits", "p99 backlog", "busiest")
    first = outcomes[0].backlog or 1.0
    for one in outcomes:
        backlog = f"{one.backlog:,.0f} ({one.backlog / first:,.0%})"
        table.add_row(one.policy, f"{one.hits:.1%}", backlog, f"{one.busiest:.2f} x mean")
    Console().print(table)
    lru = ", ".join(f"{share:.1%} with {blocks:,}" for blocks, share in most.lru.items())
    print(f"One cache for all: {most.infinite:.1%} without limit; LRU {lru} blocks.")


def _amount(value: float, unit: str) -> str:
    if unit != "bytes":
        return f"{value:,.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"
    return f"{value / _GIB:,.1f} GiB" if value >= _GIB else f"{value / (1 << 20):,.1f} MiB"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines()).rstrip()


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()

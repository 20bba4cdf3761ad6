"""Load a gateway, or any OpenAI-compatible server, step by step until its objective breaks, and report by tier."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stratacache.commands.client import configured_url
from stratacache.errors import SettingsError, StrataError
from stratacache.settings.units import seconds as seconds_of

if TYPE_CHECKING:
    from stratacache.lab.load import Load, Objective, Ramp, Step
    from stratacache.lab.load_traffic import Bank

EXAMPLE = """example:
  stratacache load --echo 9900 --echo-delay 300ms     a model whose answers tell right hits from wrong ones
  stratacache load --url http://127.0.0.1:8900/v1 --model echo --rate 50 --slo 500ms --html report.html
  stratacache load --model smollm2-135m --repeated 0.5 --similar 0.3 --bank pairs.jsonl --json

Configure the first as an upstream of the gateway under test (kind: openai, base_url: http://127.0.0.1:9900/v1), then
start the second. --bank: labelled pairs as for calibrate; the echo needs the same one. Exit code 1: no step kept the
objective, or a hit gave the answer to another question."""

_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="OpenAI-compatible address (default: the gateway of the configuration)")
    parser.add_argument("--model", default="echo", metavar="NAME", help="(default: %(default)s)")
    parser.add_argument(
        "--baseline", metavar="URL", help="the model's own address, measured beside it at the first rate"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        default="STRATACACHE_API_KEY",
        help="environment variable that holds a key (default: %(default)s)",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page too")
    parser.add_argument("--json", action="store_true", help="print the raw figures as JSON")
    parser.add_argument("--price", type=_price, metavar="P,C", help="of a million prompt and answer tokens")
    _add_questions(parser.add_argument_group("what is asked"))
    _add_ramp(parser.add_argument_group("how fast"))
    group = parser.add_argument_group("be the model")
    group.add_argument("--echo", type=int, metavar="PORT", help="answer on this port of this machine")
    group.add_argument(
        "--echo-delay", type=_time, default=0.0, metavar="TIME", help="before answers (default: 0)"
    )


def _add_questions(group: Any) -> None:
    group.add_argument("--bank", type=Path, metavar="PAIRS", help="labelled pairs, JSONL (default: built in)")
    group.add_argument("--repeated", type=_share, default=0.7, metavar="SHARE", help="(default: %(default)s)")
    group.add_argument("--similar", type=_share, default=0.2, metavar="SHARE", help="(default: %(default)s)")
    group.add_argument(
        "--zipf", type=_exponent, default=1.0, metavar="X", help="exponent (default: %(default)s)"
    )
    group.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of questions and times (default: %(default)s)"
    )
    group.add_argument(
        "--trace", type=Path, metavar="FILE", help="in place of these: JSONL, timestamp and input"
    )
    group.add_argument(
        "--timestamps", choices=_UNITS, default="s", help="unit in the trace (default: %(default)s)"
    )
    group.add_argument("--speed", type=_rate, default=1.0, metavar="X", help="of the trace (default: 1)")


def _add_ramp(group: Any) -> None:
    group.add_argument(
        "--rate", type=_rate, default=50.0, metavar="X", help="requests a second at first (default: 50)"
    )
    group.add_argument(
        "--factor", type=_rate, default=1.5, metavar="X", help="from step to step (default: 1.5)"
    )
    group.add_argument("--steps", type=_steps, default=12, metavar="N", help="at most (default: %(default)s)")
    group.add_argument("--step-time", type=_step_time, default=10.0, metavar="TIME", help="(default: 10s)")
    group.add_argument(
        "--slo", type=_time, default=1.0, metavar="TIME", help="99 %% answered within (default: 1s)"
    )


def _price(text: str) -> tuple[float, float]:
    prompt, _, completion = text.partition(",")
    pair = float(prompt), float(completion)
    if min(pair) < 0:
        raise argparse.ArgumentTypeError("must be two prices such as 0.15,0.6")
    return pair


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be from 0 to 1")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 100_000:
        raise argparse.ArgumentTypeError("must be from 0.1 to 100000")
    return value


def _exponent(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 4:
        raise argparse.ArgumentTypeError("must be from 0 to 4")
    return value


def _steps(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 100:
        raise argparse.ArgumentTypeError("must be from 1 to 100")
    return value


def _step_time(text: str) -> float:
    value = _time(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be from 100ms to 1h")
    return value


def _time(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be {error}") from None


def run(args: argparse.Namespace) -> int:
    bank = _bank(args)
    if args.echo is not None:
        return _echo(args, bank)
    load = asyncio.run(_load(args, bank))
    if args.html is not None:
        _write(args.html, load)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(load)).decode())
    else:
        _show(load)
    return 0 if load.sustained and not load.total.wrong else 1


def _bank(args: argparse.Namespace) -> Bank:
    from stratacache.lab.labelled import read_labelled
    from stratacache.lab.load_traffic import bank_of, built_in_bank

    return built_in_bank() if args.bank is None else bank_of(read_labelled(args.bank))


def _echo(args: argparse.Namespace, bank: Bank) -> int:
    from aiohttp import web

    from stratacache.lab.load_echo import echo_app

    if not 0 < args.echo < 65536:
        raise SettingsError("--echo is a port from 1 to 65535")
    print(
        f"The model 'echo' answers at http://127.0.0.1:{args.echo}/v1; end it with Ctrl-C.", file=sys.stderr
    )
    try:
        web.run_app(echo_app(bank, args.echo_delay), host="127.0.0.1", port=args.echo, print=None)
    except OSError as error:
        raise StrataError(f"cannot listen on port {args.echo}: {error.strerror}") from None
    return 0


async def _load(args: argparse.Namespace, bank: Bank) -> Load:
    from stratacache.lab.load import LoadTest, Objective, Price, Ramp, summed
    from stratacache.lab.load_client import target_of
    from stratacache.lab.load_traffic import Mix, asks, read_questions

    url = args.url or f"{configured_url(args.config)}/v1"
    key = os.environ.get(args.api_key_env)
    mix = Mix(repeated=args.repeated, similar=args.similar, zipf=args.zipf, seed=args.seed)
    if mix.repeated + mix.similar > 1:
        raise SettingsError("--repeated and --similar add up to more than 1")
    objective: Objective = Objective(latency=args.slo)
    ramp: Ramp = Ramp(rate=args.rate, factor=args.factor, steps=args.steps, seconds=args.step_time)
    test = LoadTest(target_of(url, key), asks(bank, mix), args.model, objective, args.seed)
    if args.trace is not None:
        trace = read_questions(args.trace, bank, _UNITS[args.timestamps] * args.speed)
        steps: tuple[Step, ...] = (await test.replay(trace),)
    else:
        steps = await test.ramp(ramp, _progress)
    baseline = None
    if args.baseline is not None:
        baseline = await test.baseline(target_of(args.baseline, key), ramp.rate, ramp.seconds)
    price = Price(*args.price) if args.price is not None else None
    return summed(url, objective, steps, baseline, price)


def _progress(step: Step) -> None:
    told = step.broke or "kept"
    print(f"{step.rate:,.0f} requests a second: p99 {step.times.p99 * 1e3:,.0f} ms, {told}", file=sys.stderr)


def _write(path: Path, load: Load) -> None:
    from stratacache.lab.load_report import html_report

    try:
        path.write_text(html_report(load), encoding="utf-8")
    except OSError as error:
        raise StrataError(f"cannot write {path}: {error.strerror}") from None


def _show(load: Load) -> None:
    from stratacache.lab.load_report import hit_rows, milliseconds, saved_words, step_rows, tier_rows

    limit = milliseconds(load.objective.latency)
    title = f"{load.url}: 99 % within {limit} up to {load.sustained:,.0f} requests a second"
    _table(title, ("rate", "done", "errors", "p50", "p90", "p99", "late", "hits", ""), step_rows(load))
    title = "In the last step that was kept" if load.sustained else "In the first step"
    _table(title, ("answered by", "requests", "p50", "p90", "p99"), tier_rows(load))
    for what, share, of in hit_rows(load.total):
        print(f"{what}: {share} of {of}")
    print(f"saved: {saved_words(load)}")
    for one in load.examples:
        print(f"! asked {one.asked!r}, got the answer to {one.answered!r}")


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, title=title, title_justify="left")
    for cells in rows:
        table.add_row(*cells)
    Console().print(table)

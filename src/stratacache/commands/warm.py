"""Fill the cache of a running gateway from a list of questions, with or without answers, or from a log of requests."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.errors import StrataError
from stratacache.types import JSON

if TYPE_CHECKING:
    from stratacache.lab.warm_file import Row

EXAMPLE = """example:
  stratacache warm faq.csv --model smollm2-135m
  stratacache warm faq.jsonl --model smollm2-135m --system brief.txt --tag faq
  stratacache warm requests.jsonl --rate 2

faq.csv names its columns, question and maybe answer. A line of faq.jsonl is {"question": ..., "answer": ...}; a line
of a log is a chat request, or has one as "request" or "body". Where there is an answer it is kept as it stands; else
the model is asked, through the gateway, so that only what it would keep anyway is kept. What is in the cache already is
not asked again. Requests of your application match only if they are equal in all that the key holds: give the same
model and system prompt, or warm from a log."""

PATIENCE = 600.0  # seconds for one answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="CSV or JSON lines")
    parser.add_argument("--model", help="for rows that name none")
    parser.add_argument(
        "--system", type=Path, metavar="FILE", help="the system prompt of rows that are questions"
    )
    parser.add_argument("--tag", action="append", metavar="TAG", help="that entries carry; may be repeated")
    parser.add_argument("--scene", help="that the requests belong to")
    parser.add_argument(
        "--rate", type=_rate, default=5.0, metavar="N", help="requests a second (default: %(default)g)"
    )
    add_gateway_arguments(parser)


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= 10_000:
        raise argparse.ArgumentTypeError("must be above 0, and at most 10000")
    return rate


def run(args: argparse.Namespace) -> int:
    from stratacache.lab.warm_file import rows

    wanted = list(rows(args.file))  # a mistake in the last line is found before the first is asked
    system = _read(args.system) if args.system is not None else None
    headers = {
        **({"x-strata-tags": ",".join(args.tag)} if args.tag else {}),
        **({"x-strata-scene": args.scene} if args.scene else {}),
    }
    counts: Counter[str] = Counter()
    failures: list[str] = []
    due = time.monotonic()
    for number, row in enumerate(wanted, 1):
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due, time.monotonic() - 1) + 1 / args.rate
        try:
            counts[_warm(args, row, system, headers)] += 1
        except StrataError as error:
            counts["failed"] += 1
            failures.append(f"row {number}: {error}")
        if not args.json and sys.stderr.isatty():
            print(f"\r{number:,} of {len(wanted):,}", end="\r", file=sys.stderr, flush=True)
    if args.json:
        print(msgspec.json.encode({"rows": len(wanted), **counts, "failures": failures[:20]}).decode())
    else:
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        print(f"{len(wanted):,} rows: {told or 'nothing to do'}")
        for failure in failures[:20]:
            print(failure, file=sys.stderr)
    return 1 if failures else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"cannot read {path}: {error}") from None


def _warm(args: argparse.Namespace, row: Row, system: str | None, headers: Mapping[str, str]) -> str:
    """Have the answer to ``row`` kept; a word for what came of it."""
    request = _request(row, args.model, system)
    if row.answer is not None:
        body = msgspec.json.encode({"request": request, "answer": row.answer})
        told: JSON = ask_gateway(args, "POST", "/admin/teach", body, member="result", more=headers)
        return "kept" if told["result"] == "queued" else f"not kept ({told['result']})"
    body = msgspec.json.encode({**request, "stream": False})
    path = "/v1/chat/completions"
    ask_gateway(args, "POST", path, body, member="choices", timeout=PATIENCE, more=headers)
    return "asked"


def _request(row: Row, model: str | None, system: str | None) -> dict[str, JSON]:
    if row.request is not None:
        request = row.request if "model" in row.request or model is None else {**row.request, "model": model}
    else:
        told = [{"role": "system", "content": system}] if system is not None else []
        request = {"model": model, "messages": [*told, {"role": "user", "content": row.question}]}
    if not request.get("model"):
        raise StrataError("no model is named: give --model")
    return request

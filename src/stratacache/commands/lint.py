"""Find what breaks a provider's prompt cache, in a log of requests or in a system prompt."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from stratacache.lab.lint import Finding, Report

EXAMPLE = """example:
  stratacache lint requests.jsonl
  stratacache lint system-prompt.txt --json
  stratacache lint requests.jsonl --stabilised --minimum 4096

The file is a log with a request a line (in OpenAI's chat or Anthropic's messages form, or a record that holds one as
request or body), a single request, or a system prompt as text. Lines of one conversation are compared with each other:
by their conversation or session_id, else by the first message. Exit code 1: something ought to be mended."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a log (JSON lines), a request (JSON), or a text"
    )
    parser.add_argument(
        "--minimum", type=_positive, default=1024, metavar="TOKENS",
        help="the shortest prefix that the provider caches (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--stabilised",
        action="store_true",
        help="as the gateway would send it with tiers.prompt.canonicalise and relocate_volatile",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10**9:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def run(args: argparse.Namespace) -> int:
    from stratacache.lab.lint import lint
    from stratacache.lab.lint_input import UnreadableInput, read
    from stratacache.lab.lint_rules import Limits
    from stratacache.policy.prompt.stable import Options

    saving = _savings(args.config)
    try:
        options = Options(canonicalise=args.stabilised, relocate_volatile=args.stabilised)
        report = lint(read(args.file), Limits(minimum=args.minimum), saving, options)
    except UnreadableInput as error:
        print(f"stratacache: {error}", file=sys.stderr)
        return 2
    if not report.prompts:
        first = report.first_skipped[0] if report.first_skipped else None
        why = f"; line {first.line}: {first.why}" if first is not None else ""
        print(f"stratacache: {args.file} holds no request{why}", file=sys.stderr)
        return 2
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        _show(report)
    return 1 if report.found else 0


def _savings(config: str | None) -> Callable[[str], float | None]:
    """By model, what a token costs more that the cache does not read."""
    from stratacache.settings import load
    from stratacache.wiring.accounts import build_prices

    prices = build_prices(load(config, os.environ))

    def saving(model: str) -> float | None:
        price = prices.of(model)
        return None if price is None else price.input * (1 - price.read) / 1e6

    return saving


def _show(report: Report) -> None:
    for one in report.findings:
        print(_finding(one))
    for skipped in report.first_skipped:
        print(f"line {skipped.line} is passed over: {skipped.why}", file=sys.stderr)
    if report.skipped > len(report.first_skipped):
        print(f"{report.skipped} lines are passed over in all", file=sys.stderr)
    count = len(report.findings)
    found = "nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}"
    print(f"{report.prompts} prompts, about {report.tokens} tokens: {found}")


def _finding(one: Finding) -> str:
    first = one.first
    since = f" (against line {first.since})" if first.since else ""
    lines = [f"{one.code} {one.severity}: {one.title}"]
    place = f"line {first.line}{since}, {first.segment}, offset {first.offset}"
    lines.append(f"  at      {place}{f': {_plain(first.excerpt)}' if first.excerpt else ''}")
    if first.detail:
        lines.append(f"          {first.detail}")
    if one.lost is not None:
        usd = f", about ${one.usd:.2f} more than read from the cache" if one.usd is not None else ""
        lines.append(f"  lost    {one.lost} tokens in {one.times} prompt{'s' if one.times > 1 else ''}{usd}")
    elif one.times > 1:
        lines.append(f"  seen    {one.times} times")
    lines.append(f"  fix     {one.fix}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Without what a terminal takes for commands."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)

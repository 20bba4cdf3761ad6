"""Write the entries of a running gateway to a file, for a backup or for another gateway."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.errors import StrataError
from stratacache.types import JSON

if TYPE_CHECKING:
    from stratacache.policy.portable import Line

EXAMPLE = """example:
  stratacache export backup.jsonl
  stratacache export acme.jsonl --tenant acme
  stratacache export prices.jsonl --tag prices

What may answer now is written, with the versions of its tags; what expired or was invalidated is not. The file holds
questions and answers in clear text and is readable by its owner only."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="JSONL; replaced when it is there")
    parser.add_argument("--tenant", help="only entries of this tenant")
    parser.add_argument("--tag", help="only entries with this tag")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from stratacache.lab.datafile import write

    wanted = {name: getattr(args, name) for name in ("tenant", "tag") if getattr(args, name)}
    first = _page(args, wanted, None)
    shows = not args.json and sys.stderr.isatty()

    def report(count: int) -> None:
        if shows:
            print(f"\r{count:,} entries", end="", file=sys.stderr, flush=True)

    count = write(args.file, first["now"], _pages(args, wanted, first), report)
    if shows:
        print(file=sys.stderr)
    if args.json:
        print(msgspec.json.encode({"file": str(args.file), "entries": count}).decode())
    else:
        print(f"wrote {count:,} entries to {args.file}")
    return 0


def _pages(args: argparse.Namespace, wanted: dict[str, str], page: JSON) -> Iterator[Sequence[Line]]:
    while True:
        yield [_line(one) for one in page["lines"]]
        if page["after"] is None:
            return
        page = _page(args, wanted, page["after"])


def _line(told: JSON) -> Line:
    from stratacache.policy.portable import Line, check_of

    data = msgspec.json.encode(told["data"])
    if check_of(data) != told["check"]:
        raise StrataError("an entry arrived damaged; export again")
    return Line(told["check"], msgspec.Raw(data))


def _page(args: argparse.Namespace, wanted: dict[str, str], after: str | None) -> JSON:
    query = urlencode({**wanted, **({"after": after} if after else {})})
    return ask_gateway(args, "GET", f"/admin/export?{query}", member="lines")

"""Train the semantic tier's verifier on labelled pairs of questions, such as your own."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stratacache.errors import StrataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stratacache.training.recipe import Measured

EXAMPLE = """example:
  pip install 'stratacache[train]'
  stratacache train-verifier --data pairs.json --out my-verifier --pairs 200000
  stratacache train-verifier --data pairs.json --out without-faq --leave-out faq
  stratacache train-verifier --data pairs.json --out my-verifier --only-calibrate

The manifest is a JSON list such as
  [{"path": "faq.jsonl", "language": "en", "domain": "faq"}]
and each line of faq.jsonl an object {"q1": "...", "q2": "...", "label": 1} (1: one answer serves both).
A run that was stopped goes on from its last checkpoint when started again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", required=True, type=Path, metavar="MANIFEST", help="the sets to train on")
    parser.add_argument("--root", type=Path, metavar="DIR", help="where its paths begin (default: beside it)")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the verifier goes")
    parser.add_argument(
        "--pairs", type=int, default=200_000, metavar="N", help="pairs to train on (default: %(default)s)"
    )
    parser.add_argument(
        "--start", type=Path, metavar="DIR", help="the --out of an earlier run, to train further"
    )
    parser.add_argument(
        "--only-calibrate",
        action="store_true",
        help="fit the calibration of the verifier in --out anew, no more",
    )
    parser.add_argument("--leave-out", default="", metavar="DOMAIN", help="a domain to measure on only")
    parser.add_argument("--seed", type=int, default=20261202, metavar="N", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(args: argparse.Namespace) -> int:
    try:
        from stratacache.training.recipe import make_verifier, recalibrate
        from stratacache.training.verifier import Recipe
    except ImportError as error:
        raise StrataError(f"{error.name} is missing: pip install 'stratacache[train]'") from error
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    recipe = Recipe(seed=args.seed, pairs=args.pairs, leave_out=args.leave_out)
    root = args.root or args.data.parent
    try:
        if args.only_calibrate:
            fitted = recalibrate(args.data, root, args.out)
            print(msgspec.json.format(msgspec.json.encode(fitted)).decode())
            return 0
        measured = make_verifier(args.data, root, args.out, recipe, args.start)
    except (OSError, msgspec.DecodeError) as error:
        raise StrataError(f"the pairs could not be read: {error}") from error
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(measured)).decode())
    else:
        _show(measured)
    return 0


def _show(measured: Sequence[Measured]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("set", "group", "pairs", "AUC", "recall at 98 % precision", "accepted: same", "different")
    for line in measured:
        figures = (line.auc, line.recall, line.accepted_same, line.accepted_different)
        table.add_row(line.set, line.group, f"{line.pairs:,}", *(f"{figure:.3f}" for figure in figures))
    Console().print(table)

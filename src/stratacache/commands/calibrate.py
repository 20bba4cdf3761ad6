"""Measure the verifier on your own labelled pairs of questions and write the calibration that fits them."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.errors import ModelError, StrataError
from stratacache.settings import Settings, load

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from stratacache.lab.calibration import Report, Share, Step
    from stratacache.lab.labelled import LabelledPair
    from stratacache.policy.calibration import Sigmoid
    from stratacache.settings import SemanticSettings

DEFAULT_OUT = ".stratacache/calibration.json"
_PATIENCE = 60.0  # seconds for one question: nobody waits for an answer
EXAMPLE = f"""example:
  stratacache calibrate pairs.jsonl              measure, and write {DEFAULT_OUT}
  stratacache calibrate pairs.jsonl --dry-run    only measure
  stratacache calibrate                          with the labels that a running gateway has gathered

Each line of pairs.jsonl is an object such as
  {{"q1": "How do I cancel?", "q2": "How can I end my plan?", "label": 1, "scene": "support", "language": "en"}}
label: 1 when the answer to one serves the other, else 0; scene and language may be left out. The gateway loads the file
that tiers.semantic.calibration names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="PAIRS", help="JSONL (default: ask the gateway)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the calibration (default: as configured, else {DEFAULT_OUT})",
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument(
        "--precision",
        type=_precision,
        default=0.98,
        metavar="P",
        help="for the recall (default: %(default)s)",
    )
    add_gateway_arguments(parser)


def _precision(text: str) -> float:
    value = float(text)
    if not 0.5 <= value < 1:
        raise argparse.ArgumentTypeError("must be at least 0.5 and below 1")
    return value


def run(args: argparse.Namespace) -> int:
    from stratacache.lab.calibration import LEAST
    from stratacache.models.calibration import FORMAT, CalibrationFile, write_calibration

    settings = load(args.config, os.environ)
    pairs = _pairs(args)
    report, made_for = _assess(settings, pairs, args.precision)
    changed = any(one.proposed is not None for one in report.languages)
    out = args.out or Path(settings.tiers.semantic.calibration or DEFAULT_OUT).expanduser()
    written = changed and not args.dry_run
    if written:
        counts = {one.name: one.pairs for one in report.languages if one.proposed is not None}
        combined = {made_for.embedder: report.combined} if report.combined else {}
        calibration = CalibrationFile(FORMAT, made_for.verifier, report.calibration, counts, combined)
        try:
            write_calibration(out, calibration)
        except OSError as error:
            raise StrataError(f"cannot write {out}: {error.strerror}") from None
    if args.json:
        told = {**msgspec.to_builtins(report), "written": str(out) if written else None}
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return 0 if changed else 1
    _show(report)
    if not changed:
        print(f"Nothing to write: a language needs {LEAST} pairs of either kind that no guard vetoes.")
    elif written:
        print(f"Wrote {out}.")
        if settings.tiers.semantic.calibration != str(out):
            print(f"The gateway uses it with\n  tiers: {{semantic: {{calibration: {out}}}}}")
    return 0 if changed else 1


def _pairs(args: argparse.Namespace) -> list[LabelledPair]:
    from stratacache.lab.labelled import from_gateway, read_labelled

    if args.file is not None:
        return read_labelled(args.file)
    labels = ask_gateway(args, "GET", "/admin/labels", member="labels")["labels"]
    if not labels:
        raise StrataError("the gateway has gathered no labels yet; give a file of labelled pairs")
    return from_gateway(labels)


class MadeFor(msgspec.Struct, frozen=True):
    """The fingerprints of what a calibration holds for."""

    verifier: str
    embedder: str


async def _similarities(
    settings: SemanticSettings, pairs: list[LabelledPair]
) -> tuple[NDArray[np.float64], str]:
    """The cosines of the pairs by the configured embedder, and its fingerprint."""
    from stratacache.models.pool import Pool
    from stratacache.models.similarity import cosines
    from stratacache.wiring.embedders import Choice, open_embedder

    pool = Pool(1, 4)
    patient = msgspec.structs.replace(settings, budget=_PATIENCE)
    opened = open_embedder(Choice.of(settings), patient, os.environ, pool)
    opened.start()
    try:
        await opened.ready()
        found = await cosines(opened.embedder, ((pair.asked, pair.stored) for pair in pairs))
        return found, opened.embedder.fingerprint
    finally:
        await opened.embedder.close()
        await pool.close()


def _assess(settings: Settings, pairs: list[LabelledPair], precision: float) -> tuple[Report, MadeFor]:
    """The report, and what it is of."""
    from stratacache.lab.calibration import assess, score_all
    from stratacache.models.verifier import WEIGHTS, PairModel, fingerprint_of
    from stratacache.policy.guards import examine
    from stratacache.policy.language import language_of

    semantic = settings.tiers.semantic
    folder = WEIGHTS if semantic.verifier == "default" else Path(semantic.verifier)
    model = PairModel(folder)

    def score(asked: str, stored: str) -> float | None:
        try:
            return model.logit(asked, stored)
        except ModelError as error:
            if error.code != "question_too_long":
                raise
            return None

    def max_error(scene: str) -> float:
        own = settings.scenes[scene].max_error if scene in settings.scenes else None
        return semantic.max_error if own is None else own

    def vetoes(asked: str, stored: str) -> bool:
        return examine(asked, stored).verdict == "veto"

    cosines, embedder = asyncio.run(_similarities(semantic, pairs))
    scored = score_all(pairs, cosines, score, vetoes, language_of)
    # What is proposed replaces what the verifier came with, so that is what it is compared with.
    report = assess(scored, model.calibration, embedder, max_error, precision)
    return report, MadeFor(fingerprint_of(folder), embedder)


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    at = f"at {report.precision:.0%} precision"
    table = Table("language", "pairs", "same", "vetoed", "AUC", "hits", "wrong answers", "accepted", title=at)
    table.title_justify = "left"
    for one in report.languages:
        vetoed = f"{one.vetoed_same} / {one.vetoed_different}"
        cells = _share(one.recall), _with_interval(one.wrong), _with_interval(one.accepted)
        table.add_row(one.name, f"{one.pairs:,}", f"{one.same:,}", vetoed, _number(one.auc), *cells)
    console.print(table)
    print(
        "hits: of the same pairs; wrong answers: of the hits and wrong ones; accepted: of the different pairs;"
    )
    print("vetoed: same / different pairs that a guard refuses, whatever the verifier says.")
    _show_calibration(console, report)
    _show_scenes(console, report)
    if report.misnamed:
        print(f"{report.misnamed:,} pairs are in another language for the gateway than their line says.")


def _show_calibration(console: Console, report: Report) -> None:
    from rich.table import Table

    table = Table(
        "language", "now", "proposed", "with the cosine", "log-loss now", "proposed", title="calibration"
    )
    table.title_justify = "left"
    for one in report.languages:
        after = _number(one.loss[1]) if one.proposed is not None else "-"
        table.add_row(
            one.name, _sigmoid(one.current), _sigmoid(one.proposed), _combined(one.combined),
            _number(one.loss[0]), after,
        )  # fmt: skip
    console.print(table)


def _show_scenes(console: Console, report: Report) -> None:
    from rich.table import Table

    for scene in report.scenes:
        title = f"scene {scene.name}, max_error {scene.max_error:g}"
        table = Table("probability ≥", "hits", "wrong answers", "of all pairs", title=title)
        table.title_justify = "left"
        for step in scene.steps:
            mark = " ←" if step == scene.chosen else ""
            table.add_row(f"{step.threshold:g}{mark}", *_step(step))
        console.print(table)
        print(_advice(scene.chosen))


def _advice(chosen: Step | None) -> str:
    if chosen is None:
        return (
            "At no threshold are the wrong answers surely within max_error: too few pairs, or too hard ones."
        )
    return (
        f"From {chosen.threshold:g} on the wrong answers are surely within max_error. The error bound finds its own\n"
        "threshold as it runs; this one shows what to expect of it."
    )


def _step(step: Step) -> tuple[str, str, str]:
    return _share(step.hits), _with_interval(step.wrong), _with_interval(step.errors)


def _sigmoid(sigmoid: Sigmoid | None) -> str:
    return "as it is" if sigmoid is None else f"{sigmoid.a:.3f} x {sigmoid.b:+.3f}"


def _combined(sigmoid: Sigmoid | None) -> str:
    if sigmoid is None:
        return "-"
    return f"{_sigmoid(sigmoid)}, -{sigmoid.c:.3f} x below {sigmoid.near:.3f}"


def _share(share: Share) -> str:
    return _percent(share.share)


def _with_interval(share: Share) -> str:
    low, high = share.interval
    return f"{_percent(share.share)} ({low:.1%} to {high:.1%})" if share.total else "-"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"

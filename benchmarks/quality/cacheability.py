"""Figures of the cacheability classifier on questions that it was not trained on, its speed, and natural questions.

    python -m benchmarks.quality.cacheability [--data DIR] [--held-out]

By words alone, and as the semantic tier asks it: by words and vector. Development questions, and with ``--held-out``
those that nobody may look at while tuning, are of domains that no training question is of. With ``--data``, a folder of
pair sets, the share of their questions that is cacheable is measured too: a sanity check, as these have no labels.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.report import median, write
from stratacache.policy.cacheability import classify, confirm, promising
from stratacache.policy.cacheability.head import packaged_head
from stratacache.policy.cacheability.model import packaged
from stratacache.training.cacheability.evaluate import Report, report
from stratacache.training.cacheability.head import vectors_of
from stratacache.training.cacheability.questions import Row, digest_of, hand_written

COMMAND = "python -m benchmarks.quality.cacheability"
SETS = ("qqp_gptcache", "lcqmc", "bq_corpus", "afqmc")
SAMPLE = 2000
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--held-out", action="store_true", help="for the final figure, not to tune by")
    arguments = parser.parse_args()
    splits = ["development", "test"] if arguments.held_out else ["development"]
    figures: dict[str, Any] = {name: both(name) for name in splits}
    figures["milliseconds"] = speed([row.text for row in questions("development")])
    if arguments.data is not None:
        folder = arguments.data / "pairs"
        figures["natural"] = {name: natural(folder / name / "pairs.jsonl") for name in SETS}
    print(write("cacheability", COMMAND, figures))


def questions(split: str) -> list[Row]:
    return [row for row in hand_written() if row.split == split]


def both(split: str) -> dict[str, Any]:
    rows = questions(split)
    measured = {
        "words": report(packaged(), rows),
        "words_and_vector": report(packaged(), rows, packaged_head(), vectors_of([row.text for row in rows])),
    }
    for name, one in measured.items():
        print(f"{split}, {name}:\n{one.text()}")
    return {"digest": digest_of(rows)} | {name: accuracy(one) for name, one in measured.items()}


def accuracy(measured: Report) -> dict[str, Any]:
    return {
        "questions": measured.count,
        "accuracy": round(measured.accuracy, 4),
        "accuracy_wrong_yes_counted_twice": round(measured.weighted, 4),
        "wrong_yes": measured.wrong_yes,
        "wrong_no": measured.wrong_no,
        "risk": round(measured.right_risk / measured.count, 4),
        "stands_alone": round(measured.right_alone / measured.count, 4),
        "by_language": measured.by(0),
        "by_kind": measured.by(1),
    }


def speed(texts: list[str]) -> dict[str, float]:
    """Median and 99th percentile of the best of some rounds, per question."""
    best = [float("inf")] * len(texts)
    for _ in range(ROUNDS):
        for number, text in enumerate(texts):
            begin = time.perf_counter()
            classify(text)
            best[number] = min(best[number], (time.perf_counter() - begin) * 1000)
    return {"median": round(median(best), 3), "p99": round(sorted(best)[len(best) * 99 // 100], 3)}


def natural(path: Path) -> dict[str, Any]:
    """The share of a sample of a set's questions that is cacheable, and the reasons given."""
    texts: set[str] = set()
    for line in path.read_text("utf-8").splitlines():
        pair = msgspec.json.decode(line)
        texts |= {pair["q1"], pair["q2"]}
    sample = random.Random(1).sample(sorted(texts), SAMPLE)
    said = [
        confirm(promising(text), packaged_head(), vector)
        for text, vector in zip(sample, vectors_of(sample), strict=True)
    ]
    reasons = Counter(one.reason for one in said)
    return {"cacheable": sum(one.cacheable for one in said) / SAMPLE, "reasons": dict(reasons.most_common())}


if __name__ == "__main__":
    main()

"""Train the classifier's network over vectors of the default embedder; a few minutes on one core.

    python -m stratacache.training.cacheability.head [--seed N] [--out DIR] [--folds]

The same questions as ``train``, by their vectors; several networks side by side, which answer by their mean.
``--folds`` leaves out one fifth of the domains after the other and reports on what was left out, words and vector
together: the figures to tune by.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stratacache.errors import ModelError
from stratacache.models.pool import Pool
from stratacache.models.use import UseEmbedder, default_fingerprint
from stratacache.policy.cacheability import CACHEABLE
from stratacache.policy.cacheability.head import DIGEST, WEIGHTS, Head
from stratacache.policy.cacheability.model import KINDS, LinearModel
from stratacache.training.cacheability.evaluate import Report, report
from stratacache.training.cacheability.questions import Row, hand_written, templated
from stratacache.training.cacheability.train import DECISION, EPOCHS, WRONG_YES, folded
from stratacache.training.cacheability.train import train as train_words

Floats = NDArray[np.float32]
UNITS, MEMBERS = 128, 3
ROUNDS, BATCH, RATE, DECAY, DROPOUT = 30, 256, 2e-3, 1e-2, 0.3
STRETCH = 8.0
"""What vectors are multiplied by, so that their 512 small numbers have a say from the first step."""


def vectors_of(texts: Sequence[str]) -> Floats:
    """Shape (texts, dimension), by the default embedder; zeros for a text that has none. Blocks."""
    return asyncio.run(_embedded(texts))


async def _embedded(texts: Sequence[str]) -> Floats:
    pool = Pool(1, 4)
    embedder = UseEmbedder(pool, budget=60.0)
    embedder.start()
    found = np.zeros((len(texts), embedder.dimension), np.float32)
    try:
        await embedder.ready()
        for number, text in enumerate(texts):
            try:
                found[number] = await embedder.embed(text)
            except ModelError as error:
                if error.code != "nothing_to_embed":
                    raise
    finally:
        await embedder.close()
        await pool.close()
    return found


def train(rows: list[Row], vectors: Floats, seed: int, rounds: int = ROUNDS) -> Head:
    """Fit :data:`MEMBERS` networks and lay them side by side as one."""
    members = [_member(rows, vectors, seed + number, rounds) for number in range(MEMBERS)]
    into, into_bias, out, out_bias = zip(*members, strict=True)
    return Head(
        default_fingerprint(),
        np.concatenate(into, axis=1) * np.float32(STRETCH),
        np.concatenate(into_bias),
        (np.concatenate(out) / MEMBERS).astype(np.float32),
        np.stack(out_bias).mean(axis=0),
    )


def _member(
    rows: list[Row], vectors: Floats, seed: int, rounds: int
) -> tuple[Floats, Floats, Floats, Floats]:
    torch.manual_seed(seed)
    first, last = nn.Linear(vectors.shape[1], UNITS), nn.Linear(UNITS, len(KINDS))
    net = nn.Sequential(nn.Dropout(DROPOUT), first, nn.ReLU(), nn.Dropout(DROPOUT), last)
    inputs = torch.from_numpy(vectors) * STRETCH
    kinds = torch.tensor([KINDS.index(row.kind) for row in rows])
    weights = torch.tensor([row.weight for row in rows])
    cacheable = torch.tensor([kind in CACHEABLE for kind in KINDS])
    cost = torch.where(cacheable[kinds], 1.0, WRONG_YES) * DECISION
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=DECAY)
    steps = rounds * -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(rounds):
        for chosen in torch.split(torch.randperm(len(rows)), BATCH):
            logs = net(inputs[chosen]).log_softmax(dim=1)
            alike = cacheable == cacheable[kinds[chosen], None]
            decided = logs.masked_fill(~alike, float("-inf")).logsumexp(dim=1)
            right = logs.gather(1, kinds[chosen, None])[:, 0]
            loss = -(weights[chosen] * (right + cost[chosen] * decided)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    parts = (first.weight.T, first.bias, last.weight.T, last.bias)
    return tuple(part.detach().numpy().copy() for part in parts)  # type: ignore[return-value]


def save(head: Head, weights: Path, digest: Path) -> None:
    raw = head.to_bytes()
    weights.write_bytes(raw)
    digest.write_text(hashlib.sha256(raw).hexdigest() + "\n")


def folds(rows: list[Row], extra: list[Row], seed: int, epochs: int) -> Report:
    """Each question is asked of words and vector that saw nothing of its domain but what ``extra`` says."""
    vectors, more = (vectors_of([row.text for row in part]) for part in (rows, extra))
    total = Report()
    for left_out in folded(rows, seed):
        kept = [number for number, row in enumerate(rows) if row.domain not in left_out]
        asked = [number for number, row in enumerate(rows) if row.domain in left_out]
        shown = [rows[number] for number in kept] + extra
        words: LinearModel = train_words(shown, seed, epochs)
        head = train(shown, np.concatenate([vectors[kept], more]), seed)
        total = total.merged(report(words, [rows[number] for number in asked], head, vectors[asked]))
    return total


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fewer for a quick look")
    parser.add_argument("--out", type=Path, default=WEIGHTS.parent)
    parser.add_argument("--folds", action="store_true", help="report on left-out domains, write nothing")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = [row for row in hand_written() if row.split == "train"]
    extra = templated(arguments.seed)
    if arguments.folds:
        print(folds(rows, extra, arguments.seed, EPOCHS).text(errors=True))
        return
    shown = rows + extra
    head = train(shown, vectors_of([row.text for row in shown]), arguments.seed, arguments.rounds)
    save(head, arguments.out / WEIGHTS.name, arguments.out / DIGEST.name)


if __name__ == "__main__":
    main()

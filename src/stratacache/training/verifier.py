"""Trains the verifier: natural and synthetic pairs, resumable, the same script on a CPU and on a GPU."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.nn import functional

from stratacache.training.e5 import (
    PAD,
    Base,
    build_tokenizer,
    kept_pieces,
    read_base,
    tokenizer_json,
    weights_path,
)
from stratacache.training.model import CrossEncoder, from_base, pair_input, parameter_groups
from stratacache.training.pairs import Pair, Source, Split, read_manifest, read_pairs, split
from stratacache.training.synthetic import Sourced, generate

log = logging.getLogger(__name__)

LONGEST = 96  # tokens of a pair


class Recipe(msgspec.Struct, frozen=True):
    """Everything that decides the weights, besides the data.

    ``pairs`` to train on in all; the first ``natural_first`` of them without synthetic ones, later a share of
    ``synthetic`` is, made by at most ``per_rule`` uses of every rule; ``per_rule_unseen`` uses make the pairs that it
    is measured by. Sets of the domain ``leave_out`` are not trained on, to see how the rest carries over.
    """

    seed: int = 20261202
    pairs: int = 200_000
    natural_first: int = 40_000
    synthetic: float = 0.35
    per_rule: int = 4000
    per_rule_unseen: int = 150
    batch: int = 64
    rate: float = 1e-4
    head_rate: float = 5e-4
    decay: float = 0.9
    smoothing: float = 0.02
    averaging: float = 0.998
    vocabulary: int = 50_000
    leave_out: str = ""


class Example(msgspec.Struct, frozen=True, gc=False):
    first: tuple[int, ...]
    second: tuple[int, ...]
    label: float
    weight: float


class Data(msgspec.Struct, frozen=True):
    """The pairs of one run by role; ``left_out`` are those of the recipe's left-out domain."""

    natural: Split
    synthetic: list[Pair]
    unseen: list[Pair]
    evaluate: list[Pair]
    left_out: list[Pair]


def load_data(manifest: Path, root: Path, recipe: Recipe) -> Data:
    """Read the sets of ``manifest`` below ``root`` and make the synthetic pairs."""
    sources = read_manifest(manifest)
    evaluate = _read([source for source in sources if source.role == "evaluate"], root)
    trainable = [source for source in sources if source.role == "train"]
    kept = _read([s for s in trainable if s.domain != recipe.leave_out], root)
    left_out = _read([s for s in trainable if s.domain == recipe.leave_out], root)
    natural = split(kept, excluded=[*evaluate, *left_out])
    questions = sorted({(p.q1, p.language) for p in natural.train if len(p.q1) < 120})
    sourced = [Sourced(text, language) for text, language in questions]
    made = (
        generate(recipe.seed, sourced, recipe.per_rule, part="train"),
        generate(recipe.seed, sourced, recipe.per_rule_unseen, part="eval"),
    )
    train, unseen = (
        [Pair(p.q1, p.q2, p.label, p.language, "synthetic", p.rule) for p in part] for part in made
    )
    return Data(natural, train, unseen, evaluate, left_out)


def _read(sources: Sequence[Source], root: Path) -> list[Pair]:
    return [pair for source in sources for pair in read_pairs(source, root)]


def encode(pairs: Sequence[Pair], tokenizer: Tokenizer) -> list[Example]:
    """Tokens of each pair."""
    firsts = tokenizer.encode_batch([p.q1 for p in pairs], add_special_tokens=False)
    seconds = tokenizer.encode_batch([p.q2 for p in pairs], add_special_tokens=False)
    return [
        Example(tuple(a.ids), tuple(b.ids), float(pair.label), pair.weight)
        for pair, a, b in zip(pairs, firsts, seconds, strict=True)
    ]


def collate(examples: Sequence[Example], swap: Sequence[bool]) -> tuple[torch.Tensor, ...]:
    """Padded ids and segments, labels and weights; ``swap`` says whose questions change places."""
    rows = [
        pair_input(e.second, e.first, LONGEST) if swapped else pair_input(e.first, e.second, LONGEST)
        for e, swapped in zip(examples, swap, strict=True)
    ]
    length = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), length), PAD)
    segments = torch.zeros((len(rows), length), dtype=torch.long)
    for number, (tokens, places) in enumerate(rows):
        ids[number, : len(tokens)] = torch.tensor(tokens)
        segments[number, : len(places)] = torch.tensor(places)
    labels = torch.tensor([e.label for e in examples])
    return ids, segments, labels, torch.tensor([e.weight for e in examples])


class Sampler:
    """Batches of like lengths, endlessly: every example of a kind once before any again.

    A synthetic kind is drawn in proportion to the root of its size: rare edits would else hardly be seen.
    """

    def __init__(
        self, natural: Sequence[Example], synthetic: Mapping[str, Sequence[Example]], recipe: Recipe
    ) -> None:
        self._recipe = recipe
        self._random = random.Random(recipe.seed)
        self._natural = self._endless(natural)
        self._kinds = [self._endless(examples) for examples in synthetic.values()]
        self._shares = [math.sqrt(len(examples)) for examples in synthetic.values()]

    def _endless(self, examples: Sequence[Example]) -> Iterator[Example]:
        while True:
            order = list(range(len(examples)))
            self._random.shuffle(order)
            for number in order:
                yield examples[number]

    def batches(self) -> Iterator[list[Example]]:
        drawn = 0
        size = self._recipe.batch
        while True:
            pool = []
            for _ in range(size * 32):
                mixed = drawn >= self._recipe.natural_first and self._kinds
                kind = self._natural
                if mixed and self._random.random() < self._recipe.synthetic:
                    (kind,) = self._random.choices(self._kinds, self._shares)
                pool.append(next(kind))
                drawn += 1
            pool.sort(key=lambda e: len(e.first) + len(e.second))
            groups = [pool[i : i + size] for i in range(0, len(pool), size)]
            self._random.shuffle(groups)
            yield from groups


def by_kind(pairs: Sequence[Pair], tokenizer: Tokenizer) -> dict[str, list[Example]]:
    """Examples by language and rule; those of the grammar by its block."""
    kinds: dict[str, list[Example]] = {}
    for pair, example in zip(pairs, encode(pairs, tokenizer), strict=True):
        kind = pair.kind.rsplit(".", 1)[0]
        kinds.setdefault(f"{pair.language} {kind}", []).append(example)
    return kinds


def train(data: Data, recipe: Recipe, out: Path, start: Path | None = None) -> None:
    """Train, or go on from the last checkpoint in ``out``; leaves ``final.pt`` (averaged weights) and the tokenizer.

    ``start``: the folder of a finished run, whose weights and vocabulary this one begins with.
    """
    torch.manual_seed(recipe.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out.mkdir(parents=True, exist_ok=True)
    base = read_base(weights_path())
    if start is not None:
        (out / "vocabulary.json").write_text((start / "vocabulary.json").read_text())
    kept = _vocabulary(base, data, recipe, out)
    tokenizer = build_tokenizer([base.pieces[number] for number in kept])
    (out / "tokenizer.json").write_text(tokenizer_json(tokenizer))
    model = from_base(base, kept).to(device)
    if start is not None:
        model.load_state_dict(torch.load(start / "final.pt", weights_only=True)["model"])
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.AdamW(parameter_groups(model, recipe.rate, recipe.head_rate, recipe.decay))
    done = _resume(out, model, average, optimiser)
    sampler = Sampler(encode(data.natural.train, tokenizer), by_kind(data.synthetic, tokenizer), recipe)
    batches = sampler.batches()
    swaps = random.Random(recipe.seed + 1 + done)
    for _ in range(done):
        next(batches)
    total = recipe.pairs // recipe.batch
    began, losses = time.monotonic(), []
    for step in range(done, total):
        batch = next(batches)
        loss = _step(
            model, optimiser, batch, [swaps.random() < 0.5 for _ in batch], step / total, recipe, device
        )
        losses.append(loss)
        _follow(average, model, min(recipe.averaging, (step + 1) / (step + 10)))
        if (step + 1) % 50 == 0:
            speed = (step + 1 - done) * recipe.batch / (time.monotonic() - began)
            log.info("step %d of %d, loss %.4f, %.0f pairs/s", step + 1, total, np.mean(losses[-50:]), speed)
        if (step + 1) % 200 == 0 or step + 1 == total:
            _save(out, model, average, optimiser, step + 1)
    torch.save({"model": average, "kept": kept, "recipe": msgspec.to_builtins(recipe)}, out / "final.pt")


def kept_of(out: Path) -> list[int]:
    """Ids of the base model's pieces that the run in ``out`` uses, in the order of its own ids."""
    kept: list[int] = json.loads((out / "vocabulary.json").read_text())
    return kept


def _vocabulary(base: Base, data: Data, recipe: Recipe, out: Path) -> list[int]:
    """Fixed by the first run in ``out``, so that a checkpoint fits."""
    path = out / "vocabulary.json"
    if not path.exists():
        texts = [text for pair in (*data.natural.train, *data.synthetic) for text in (pair.q1, pair.q2)]
        path.write_text(json.dumps(kept_pieces(base, texts, recipe.vocabulary)))
    return kept_of(out)


def _step(
    model: CrossEncoder,
    optimiser: torch.optim.Optimizer,
    batch: Sequence[Example],
    swap: Sequence[bool],
    progress: float,
    recipe: Recipe,
    device: torch.device,
) -> float:
    model.train()
    ids, segments, labels, weights = (part.to(device) for part in collate(batch, swap))
    scale = min(1.0, progress / 0.03) * (0.05 + 0.95 * (1 + math.cos(math.pi * progress)) / 2)
    for group in optimiser.param_groups:
        group["lr"] = group["rate"] * scale
    with torch.autocast(device.type, torch.bfloat16):
        logits = model(ids, segments)
    targets = labels * (1 - 2 * recipe.smoothing) + recipe.smoothing
    loss = functional.binary_cross_entropy_with_logits(logits.float(), targets, weight=weights)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def _follow(average: dict[str, torch.Tensor], model: CrossEncoder, keep: float) -> None:
    for name, value in model.state_dict().items():
        if name != "words.weight":
            average[name].mul_(keep).add_(value, alpha=1 - keep)


def _save(
    out: Path,
    model: CrossEncoder,
    average: dict[str, torch.Tensor],
    optimiser: torch.optim.Optimizer,
    done: int,
) -> None:
    state = {
        "model": model.state_dict(),
        "average": average,
        "optimiser": optimiser.state_dict(),
        "done": done,
    }
    torch.save(state, out / "checkpoint.tmp")
    (out / "checkpoint.tmp").replace(out / "checkpoint.pt")


def _resume(
    out: Path, model: CrossEncoder, average: dict[str, torch.Tensor], optimiser: torch.optim.Optimizer
) -> int:
    path = out / "checkpoint.pt"
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    average.update(state["average"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["done"])


@torch.no_grad()
def score(
    model: CrossEncoder, tokenizer: Tokenizer, pairs: Sequence[Pair], batch: int = 64
) -> NDArray[np.float32]:
    """The logit of each pair, its questions in canonical order."""
    model.eval()
    device = next(model.parameters()).device
    examples = encode(pairs, tokenizer)
    order = sorted(range(len(pairs)), key=lambda i: len(examples[i].first) + len(examples[i].second))
    logits = np.empty(len(pairs), np.float32)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        swap = [pairs[i].q1 > pairs[i].q2 for i in chosen]
        ids, segments, _, _ = collate([examples[i] for i in chosen], swap)
        with torch.autocast(device.type, torch.bfloat16):
            made = model(ids.to(device), segments.to(device))
        logits[chosen] = made.float().cpu().numpy()
    return logits


def load(out: Path, name: str = "final.pt") -> tuple[CrossEncoder, Tokenizer]:
    """The averaged weights that :func:`train` left in ``out``, of the end or of the last checkpoint."""
    state = torch.load(out / name, weights_only=True)
    kept = kept_of(out)
    base = read_base(weights_path())
    model = from_base(base, kept)
    model.load_state_dict(state["model" if name == "final.pt" else "average"])
    return model, build_tokenizer([base.pieces[number] for number in kept])

"""The verifier as a PyTorch module: a BERT encoder that reads both questions at once, and its head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stratacache.training.e5 import BOS, EOS, PAD, Base, Dimensions, dequantise

HEAD_WIDTH = 256
SEGMENTS = 4  # which question, and whether the token occurs in the other one


class Layer(nn.Module):
    """One post-norm transformer layer."""

    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__()
        hidden = dimensions.hidden
        self.heads = dimensions.heads
        self.q, self.k, self.v, self.ao = (nn.Linear(hidden, hidden) for _ in range(4))
        self.fi, self.fo = nn.Linear(hidden, dimensions.inner), nn.Linear(dimensions.inner, hidden)
        self.aln = nn.LayerNorm(hidden, eps=dimensions.epsilon)
        self.oln = nn.LayerNorm(hidden, eps=dimensions.epsilon)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """``x`` (batch, length, hidden); ``mask`` (batch, 1, 1, length), True where there is a token."""
        batch, length, hidden = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.aln(x + self.ao(mixed.transpose(1, 2).reshape(batch, length, hidden)))
        out: Tensor = self.oln(x + self.fo(functional.gelu(self.fi(x))))
        return out


class CrossEncoder(nn.Module):
    """Scores a pair: a logit, positive when one answer serves both questions.

    The embedding table is not trained: words that the training data lacks stay comparable with those that it has.
    """

    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__()
        hidden = dimensions.hidden
        self.words = nn.Embedding(dimensions.vocabulary, hidden)
        self.words.weight.requires_grad_(False)
        self.positions = nn.Embedding(dimensions.positions, hidden)
        self.segments = nn.Embedding(SEGMENTS, hidden)
        self.norm = nn.LayerNorm(hidden, eps=dimensions.epsilon)
        self.layers = nn.ModuleList(Layer(dimensions) for _ in range(dimensions.layers))
        self.dense = nn.Linear(4 * hidden, HEAD_WIDTH)
        self.out = nn.Linear(HEAD_WIDTH, 1)
        self.dropout = nn.Dropout(0.1)

    def encode(self, ids: Tensor, segments: Tensor) -> Tensor:
        """Hidden states (batch, length, hidden); padding has the id ``PAD``."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x: Tensor = self.norm(self.words(ids) + self.positions(places) + self.segments(segments))
        mask = (ids != PAD)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """Logits (batch,) of ``ids`` and ``segments`` (batch, length)."""
        states = self.encode(ids, segments)
        first = self._mean(states, (segments % 2 == 0) & (ids != PAD))
        second = self._mean(states, (segments % 2 == 1) & (ids != PAD))
        seen = torch.cat([states[:, 0], (first + second) / 2, (first - second).abs(), first * second], dim=-1)
        logits: Tensor = self.out(self.dropout(torch.tanh(self.dense(self.dropout(seen)))))
        return logits.squeeze(-1)

    @staticmethod
    def _mean(states: Tensor, chosen: Tensor) -> Tensor:
        weights = chosen.to(states.dtype)[:, :, None]
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def from_base(base: Base, kept: Sequence[int]) -> CrossEncoder:
    """The encoder of ``base`` with the rows ``kept`` of its vocabulary; the head is new."""
    dimensions = Dimensions(
        base.dimensions.hidden,
        base.dimensions.layers,
        base.dimensions.heads,
        base.dimensions.inner,
        len(kept),
        base.dimensions.positions,
        base.dimensions.epsilon,
    )
    model = CrossEncoder(dimensions)
    tensors = {name: torch.from_numpy(value) for name, value in base.tensors.items()}
    segment = tensors["emb.type"].view(-1, dimensions.hidden)[0]
    state = model.state_dict()
    state["words.weight"] = torch.from_numpy(dequantise(base.words[list(kept)]))
    state["positions.weight"] = tensors["emb.pos"].view(-1, dimensions.hidden)
    state["segments.weight"] = segment + 0.02 * torch.randn(SEGMENTS, dimensions.hidden)
    state["norm.weight"], state["norm.bias"] = tensors["emb.ln.w"], tensors["emb.ln.b"]
    for number in range(dimensions.layers):
        for part in ("q", "k", "v", "ao", "fi", "fo", "aln", "oln"):
            state[f"layers.{number}.{part}.weight"] = tensors[f"l{number}.{part}.w"]
            state[f"layers.{number}.{part}.bias"] = tensors[f"l{number}.{part}.b"]
    model.load_state_dict(state)
    return model


def pair_input(first: Sequence[int], second: Sequence[int], longest: int) -> tuple[list[int], list[int]]:
    """Token ids and segments of ``<s> first </s></s> second </s>``, each question cut to its half of ``longest``."""
    room = (longest - 4) // 2
    first, second = first[:room], second[:room]
    in_first, in_second = set(first), set(second)
    ids = [BOS, *first, EOS, EOS, *second, EOS]
    segments = [
        0,
        *(2 * (t in in_second) for t in first),
        0,
        1,
        *(1 + 2 * (t in in_first) for t in second),
        1,
    ]
    return ids, segments


def parameter_groups(
    model: CrossEncoder, rate: float, head_rate: float, decay: float
) -> list[dict[str, Any]]:
    """AdamW groups: the lower a layer, the smaller its rate (by ``decay`` a layer); the head has its own."""
    groups: list[dict[str, Any]] = []
    depth = len(model.layers)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.startswith(("dense", "out")):
            own = head_rate
        else:
            level = int(name.split(".")[1]) if name.startswith("layers.") else 0
            own = rate * decay ** (depth - 1 - level)
        shrinks = parameter.ndim > 1
        groups.append(
            {"params": [parameter], "lr": own, "rate": own, "weight_decay": 0.01 if shrinks else 0.0}
        )
    return groups

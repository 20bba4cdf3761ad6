"""The decoder's forward pass over a paged KV store: one pass for any mix of prefill chunks and decodes.

Llama, Mistral, Qwen2 and Qwen3 differ in a bias, a norm and how far some layers look back: one code path,
on any device of PyTorch's. Shapes: N rows (tokens) of the whole batch, S tokens of one sequence's context,
H query and G key/value heads of size d. The KV store is one tensor [layers, 2, slots, G, d]; slot = block ·
block_size + offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stratacache.engine.config import ModelConfig
from stratacache.engine.sequence import Work
from stratacache.engine.weights import DTYPES, LayerWeights, Weights


def rope_table(config: ModelConfig, length: int, dtype: torch.dtype) -> Tensor:
    """Rotations e^(i·p·f_j), complex [length, d/2], f_j = θ^(-2j/d) as `config.rope` scales it.

    Angles are formed in float32 on purpose, as the reference implementation does: at position 8,000
    a float64 table differs by up to 5e-4, and greedy answers would drift apart.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    inverse = config.rope.frequencies(1.0 / (config.rope.theta**exponents))
    angles = torch.arange(length).float()[:, None] * inverse
    return torch.polar(torch.ones_like(angles), angles).to(_complex_of(dtype))


def _complex_of(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype is torch.float64 else torch.complex64


def zeroed(shape: Seq[int], dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """Zeros; on a CPU the operating system provides them on first touch: a large, idle pool costs no memory.

    Zeros and not garbage, because a NaN in a masked slot would survive the mask.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(*shape)


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's part of a batch: rows [first, last) attend to `length` tokens of its context.

    They begin at slot `start` when the blocks are neighbours in order, else `skip` tokens into `blocks`.
    Without a mask every row sees all of them, or with `causal` those up to its own.
    """

    first: int
    last: int
    length: int
    start: int
    skip: int
    blocks: Tensor | None
    mask: Tensor | None
    causal: bool


class Batch:
    """Index tensors of a step, built once and used by every layer; `spans` by the layers' window."""

    __slots__ = ("positions", "samples", "slots", "spans", "tokens")

    def __init__(
        self, work: Seq[Work], block_size: int, windows: Iterable[int | None] = (None,), device: str = "cpu"
    ) -> None:
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        samples: list[int] = []
        self.spans: dict[int | None, list[Span]] = {window: [] for window in windows}
        for part in work:
            first, end, table = len(tokens), part.start + part.count, part.sequence.table
            tokens += part.sequence.tokens[part.start : end]
            positions += range(part.start, end)
            slots += [table[p // block_size] * block_size + p % block_size for p in range(part.start, end)]
            if part.samples:
                samples.append(len(tokens) - 1)
            for window, spans in self.spans.items():
                spans.append(_span(first, part, block_size, window, device))
        self.tokens, self.positions, self.slots, self.samples = (
            torch.tensor(values, dtype=torch.int64, device=device)
            for values in (tokens, positions, slots, samples)
        )


def _span(first: int, part: Work, block_size: int, window: int | None, device: str) -> Span:
    end = part.start + part.count
    low = 0 if window is None else max(0, part.start + 1 - window)  # the first token that the first row sees
    blocks = part.sequence.table[low // block_size : -(-end // block_size)]
    in_order = blocks == list(range(blocks[0], blocks[0] + len(blocks)))
    skip = low % block_size
    causal = part.start == 0 and (window is None or end <= window)
    mask = None
    if (
        part.count > 1 and not causal
    ):  # a chunk sees what its window holds of its history and, causally, itself
        mask = torch.ones(part.count, end - low, dtype=torch.bool, device=device).tril(part.start - low)
        if window is not None:
            mask = mask.triu(part.start - low - window + 1)
    return Span(
        first,
        first + part.count,
        end - low,
        blocks[0] * block_size + skip,
        skip,
        None if in_order else torch.tensor(blocks, device=device),
        mask,
        causal,
    )


class PagedModel:
    """Weights, RoPE table and KV store. Not safe for concurrent use."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        *,
        dtype: str,
        num_blocks: int,
        block_size: int,
        context: int,
        device: str = "cpu",
    ) -> None:
        self.config = config
        self.weights = weights
        self.block_size = block_size
        self.device = device
        self._rope = rope_table(config, context, DTYPES[dtype]).to(device)
        self._windows = tuple(dict.fromkeys(config.windows))
        heads, size = config.num_key_value_heads, config.head_dim
        shape = (config.num_hidden_layers, 2, num_blocks * block_size, heads, size)
        self.kv = zeroed(shape, DTYPES[dtype], device)

    def copy_blocks(self, copies: Seq[tuple[int, int]]) -> None:
        """Copies whole blocks of the KV store, (from, to), one after the other: a later one may reuse a place."""
        blocks = self.kv.view(*self.kv.shape[:2], -1, self.block_size, *self.kv.shape[3:])
        for source, target in copies:
            blocks[:, :, target].copy_(blocks[:, :, source])

    @torch.inference_mode()
    def forward(self, work: Seq[Work]) -> Tensor:
        """Computes the parts' tokens, writes their KV, and returns logits [parts that sample, vocab]."""
        batch = Batch(work, self.block_size, self._windows, self.device)
        x = self._embed(batch.tokens)
        rotation = self._rope[batch.positions].unsqueeze(1)
        for layer, kv, window in zip(self.weights.layers, self.kv, self.config.windows, strict=True):
            attended = self._attention(layer, kv, self._norm(x), rotation, batch, batch.spans[window])
            x.addmm_(attended, layer.out)
            x.addmm_(self._mlp(layer, self._norm(x)), layer.down)
        x = self._norm(x[batch.samples]).mul_(self.weights.norm)
        return torch.mm(x, self.weights.head).float()

    def _embed(self, tokens: Tensor) -> Tensor:
        if self.weights.embed is None:
            return self.weights.head[:, tokens].t().contiguous()
        return self.weights.embed[tokens]

    def _norm(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)

    @staticmethod
    def _mlp(layer: LayerWeights, x: Tensor) -> Tensor:
        gate, up = torch.mm(x, layer.gate_up).chunk(2, dim=1)
        return F.silu(gate, inplace=True).mul_(up)

    def _attention(
        self, layer: LayerWeights, kv: Tensor, x: Tensor, rotation: Tensor, batch: Batch, spans: list[Span]
    ) -> Tensor:
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        flat = torch.mm(x, layer.qkv) if layer.qkv_bias is None else torch.addmm(layer.qkv_bias, x, layer.qkv)
        rows = flat.view(len(x), heads + 2 * kv_heads, self.config.head_dim)
        turned = rows[:, : heads + kv_heads]
        if layer.q_norm is not None:
            query, key = turned[:, :heads], turned[:, heads:]
            turned = torch.cat((self._norm(query, layer.q_norm), self._norm(key, layer.k_norm)), dim=1)
        rotated = self._rotate(turned, rotation)
        keys, values = kv.unbind(0)
        keys.index_copy_(0, batch.slots, rotated[:, heads:])
        values.index_copy_(0, batch.slots, rows[:, heads + kv_heads :])
        query = rotated[:, :heads]
        parts = [
            self._attend(query, self._read(keys, span), self._read(values, span), span) for span in spans
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def _rotate(rows: Tensor, rotation: Tensor) -> Tensor:
        """RoPE on [N, heads, d] whose pairs are neighbours; complex arithmetic needs at least float32."""
        wide = rows if rows.dtype is torch.float64 else rows.float()
        pairs = torch.view_as_complex(wide.view(*wide.shape[:2], -1, 2))
        return torch.view_as_real(pairs * rotation).flatten(2).to(rows.dtype)

    def _read(self, store: Tensor, span: Span) -> Tensor:
        """A sequence's keys or values [G, S, d]: a view when its blocks are in order, else one gather."""
        if span.blocks is None:
            return store.narrow(0, span.start, span.length).transpose(0, 1)
        blocks = store.view(-1, self.block_size, *store.shape[1:]).index_select(0, span.blocks)
        return blocks.flatten(0, 1).narrow(0, span.skip, span.length).transpose(0, 1)

    @staticmethod
    def _attend(query: Tensor, keys: Tensor, values: Tensor, span: Span) -> Tensor:
        """Attention of rows [first, last) of query [N, H, d]; returns [last - first, H·d]."""
        rows = query[span.first : span.last]
        if len(rows) == 1:
            # One row sees everything, so the H/G heads that share keys go as H/G rows: nothing to expand.
            grouped = rows.view(1, keys.shape[0], -1, rows.shape[2])
            return F.scaled_dot_product_attention(grouped, keys[None], values[None]).reshape(1, -1)
        out = F.scaled_dot_product_attention(
            rows.transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=span.mask,
            is_causal=span.causal,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).flatten(1)

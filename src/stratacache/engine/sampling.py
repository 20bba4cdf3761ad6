"""Draws the next token of each sequence from its logits."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Generator, Tensor

from stratacache.engine.sequence import Sampling


class Sampler:
    """Greedy at temperature 0; else temperature, then top-k, then top-p, as OpenAI and vLLM define them.

    A seeded request has its own random stream, advanced once per token of its own: its draws depend
    neither on its neighbours in the batch nor on preemption.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._shared = Generator()
        if seed is None:
            self._shared.seed()
        else:
            self._shared.manual_seed(seed)
        self._streams: dict[str, Generator] = {}

    def forget(self, request_id: str) -> None:
        """Drops a finished request's stream."""
        self._streams.pop(request_id, None)

    @torch.inference_mode()
    def sample(self, logits: Tensor, requests: Seq[tuple[str, Sampling]]) -> list[int]:
        """One token per row of `logits` [rows, vocab]; row i belongs to requests[i]."""
        tokens: list[int] = logits.argmax(dim=1).tolist()
        for row, (request_id, sampling) in enumerate(requests):
            if sampling.temperature > 0:
                tokens[row] = self._draw(logits[row], sampling, self._stream(request_id, sampling.seed))
        return tokens

    def _stream(self, request_id: str, seed: int | None) -> Generator:
        if seed is None:
            return self._shared
        if request_id not in self._streams:
            self._streams[request_id] = Generator().manual_seed(seed)
        return self._streams[request_id]

    @staticmethod
    def _draw(logits: Tensor, sampling: Sampling, stream: Generator) -> int:
        probabilities = torch.softmax(logits / sampling.temperature, dim=0)
        ids = None
        if sampling.top_k or sampling.top_p < 1:
            count = min(sampling.top_k or len(probabilities), len(probabilities))
            probabilities, ids = probabilities.topk(count)
            if sampling.top_p < 1:
                total = probabilities.sum()
                before = probabilities.cumsum(0) - probabilities
                probabilities = probabilities.masked_fill(before >= sampling.top_p * total, 0)
        # argmax(p / e) with e ~ Exp(1) is a draw from p: no normalisation, no CPU multinomial limits.
        noise = torch.empty_like(probabilities).exponential_(generator=stream)
        choice = int((probabilities / noise).argmax())
        return choice if ids is None else int(ids[choice])

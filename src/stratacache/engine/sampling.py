"""Draws the next token of each sequence from its logits."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from stratacache.engine.sequence import Sampling, Sequence

_ANSWER_STRIDE = 0x9E3779B97F4A7C15  # keeps the streams of a request's answers apart, also for near seeds


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of the model's own probabilities: the drawn token's, and (token, logprob) of the likeliest."""

    drawn: float
    top: tuple[tuple[int, float], ...]


class Sampler:
    """Greedy at temperature 0; else temperature, then top-k, then top-p, as OpenAI and vLLM define them.

    A seeded request has a random stream for each of its answers, advanced once per token: its draws
    depend neither on its neighbours in the batch nor on preemption.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._shared = Generator()
        if seed is None:
            self._shared.seed()
        else:
            self._shared.manual_seed(seed)
        self._streams: dict[str, dict[int, Generator]] = {}

    def forget(self, request_id: str, index: int | None = None) -> None:
        """Drops a finished answer's stream, or all of a request's."""
        streams = self._streams.get(request_id, {})
        streams.pop(index, None) if index is not None else streams.clear()
        if not streams:
            self._streams.pop(request_id, None)

    @torch.inference_mode()
    def sample(
        self, logits: Tensor, sequences: Seq[Sequence]
    ) -> tuple[list[int], list[TokenLogprobs | None]]:
        """One token per row of `logits` [rows, vocab], and its logprobs where wanted; row i is sequences[i]'s.

        Logprobs are of the logits as they come; then a grammar removes what it does not allow, in place.
        """
        wanted = [sequence.request.sampling.top_logprobs for sequence in sequences]
        logs = [
            None if count is None else torch.log_softmax(row, 0)
            for row, count in zip(logits, wanted, strict=True)
        ]
        for row, sequence in zip(logits, sequences, strict=True):
            if sequence.matcher is not None:
                sequence.matcher.mask(row)
        tokens: list[int] = logits.argmax(dim=1).tolist()
        for row, sequence in enumerate(sequences):
            sampling = sequence.request.sampling
            if sampling.temperature > 0:
                tokens[row] = self._draw(logits[row].cpu(), sampling, self._stream(sequence))
        return tokens, [_logprobs(*each) for each in zip(logs, tokens, wanted, strict=True)]

    def _stream(self, sequence: Sequence) -> Generator:
        seed = sequence.request.sampling.seed
        if seed is None:
            return self._shared
        streams = self._streams.setdefault(sequence.request.id, {})
        if sequence.index not in streams:
            own = (seed + sequence.index * _ANSWER_STRIDE) % (1 << 63)
            streams[sequence.index] = Generator().manual_seed(own if sequence.index else seed)
        return streams[sequence.index]

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


def _logprobs(logs: Tensor | None, token: int, count: int | None) -> TokenLogprobs | None:
    if logs is None:
        return None
    values, ids = logs.topk(min(count or 0, len(logs)))
    return TokenLogprobs(float(logs[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))

"""OpenAI's JSON for answers, chunks and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stratacache.engine.errors import RequestError
from stratacache.engine.sampling import TokenLogprobs
from stratacache.engine.tokenizer import Tokenizer

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Header:
    """What every chunk and answer of one request repeats."""

    id: str
    created: int
    model: str
    fingerprint: str

    def _base(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def answer(self, choices: list[Json], usage: Json) -> Json:
        """A whole `chat.completion`."""
        return self._base("chat.completion") | {"choices": choices, "usage": usage}

    def chunk(
        self, index: int, delta: Json, reason: str | None, with_usage: bool, logprobs: Json | None = None
    ) -> Json:
        """A `chat.completion.chunk`; where usage was asked for, all but the last one carry null."""
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        tail: Json = {"usage": None} if with_usage else {}
        return self._base("chat.completion.chunk") | {"choices": [choice]} | tail

    def usage_chunk(self, usage: Json) -> Json:
        """The chunk after the last one: no choices, only the counts."""
        return self._base("chat.completion.chunk") | {"choices": [], "usage": usage}


def choice(index: int, text: str, reason: str, logprobs: Json | None) -> Json:
    """One answer of a `chat.completion`."""
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def token_logprobs(tokenizer: Tokenizer, token: int, found: TokenLogprobs) -> Json:
    """An entry of `logprobs.content`: the token's text and bytes, and the likeliest ones in its place."""

    def entry(one: int, value: float) -> Json:
        spelt = tokenizer.spelling(one)
        # OpenAI's floor for what is impossible: JSON has no infinity.
        return {
            "token": spelt.decode("utf-8", "replace"),
            "logprob": max(value, -9999.0),
            "bytes": list(spelt),
        }

    return entry(token, found.drawn) | {"top_logprobs": [entry(*one) for one in found.top]}


def usage(prompt: int, completion: int, cached: int) -> Json:
    """Token counts; `cached_tokens` is always there, 0 included."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def error_body(error: RequestError) -> Json:
    """OpenAI's error shape."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}

"""A server of ``/v1/embeddings`` for tests: the fake upstream, with vectors made of the texts."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.fakes.upstream import Call, FakeUpstream, Reply

EMBEDDINGS = "/v1/embeddings"


class FakeEmbeddings(FakeUpstream):
    """Answers like OpenAI's; ``routes`` and everything else as its base class."""

    dimension = 16

    def vector(self, text: str) -> list[float]:
        digest = hashlib.shake_128(text.encode()).digest(self.dimension)
        return [byte - 127.5 for byte in digest]

    def answer(self, texts: list[str]) -> dict[str, Any]:
        rows = [{"object": "embedding", "index": i, "embedding": self.vector(t)} for i, t in enumerate(texts)]
        return {
            "object": "list",
            "data": rows,
            "model": "m",
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }

    def _choose(self, call: Call) -> Reply:
        if call.path == EMBEDDINGS and EMBEDDINGS not in self.routes:
            return Reply(body=self.answer(call.json["input"]))
        return super()._choose(call)

"""Answers as token ids, so that a next turn's prompt begins with exactly the tokens that have KV.

A model may spell a text otherwise than its tokenizer would ("un" + "happy" for "unhappy"). Tokenising the
answer anew then changes ids in the middle of the history, and everything behind them must be recomputed.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from stratacache.engine.conversations import digest
from stratacache.engine.tokenizer import Tokenizer

_LOOK_BACK = 3  # answers of a history that are tried, the latest first: the client may have edited one


class Transcripts:
    """Remembers the ids behind the text of recent answers. Safe for concurrent use.

    An entry is found again only by the same fingerprint (system prompt, topic, model, template, salt), the
    same prompt text and the same answer. Bounded by tokens; the least recently used goes first.
    """

    def __init__(self, tokenizer: Tokenizer, most_tokens: int = 1 << 20) -> None:
        self._tokenizer = tokenizer
        self._most_tokens = most_tokens
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._tokens = 0
        self._lock = threading.Lock()

    def encode(
        self,
        fingerprint: bytes,
        text: str,
        messages: Sequence[Mapping[str, str]],
        render: Callable[[Sequence[Mapping[str, str]]], str],
    ) -> list[int]:
        """The ids of `text`, which is `render(messages)`: those of its history are taken over if they are known."""
        if not self._tokenizer.joins:
            return self._tokenizer.encode(text)
        answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        for place in answers[: -_LOOK_BACK - 1 : -1]:
            head, answer = render(messages[:place]), messages[place]["content"]
            if not text.startswith(head + answer):
                continue
            known = self._find(_key(fingerprint, head, answer))
            if known is not None:
                return [*known, *self._tokenizer.encode(text[len(head) + len(answer) :])]
        return self._tokenizer.encode(text)

    def remember(
        self, fingerprint: bytes, prompt: str, answer: str, ids: Sequence[int], generated: Sequence[int]
    ) -> None:
        """Keeps `ids` (the prompt's) + `generated` (without the end of text), if they spell `answer` exactly."""
        spells = all(map(self._tokenizer.token_bytes, generated))
        if not (generated and spells and self._tokenizer.decode(generated) == answer):
            return
        key = _key(fingerprint, prompt, answer)
        with self._lock:
            self._drop(key)
            self._ids[key] = array("I", (*ids, *generated))
            self._tokens += len(self._ids[key])
            while self._tokens > self._most_tokens:
                self._drop(next(iter(self._ids)))

    def _find(self, key: bytes) -> array[int] | None:
        with self._lock:
            known = self._ids.get(key)
            if known is not None:
                self._ids.move_to_end(key)
            return known

    def _drop(self, key: bytes) -> None:
        self._tokens -= len(self._ids.pop(key, ()))


def _key(fingerprint: bytes, prompt: str, answer: str) -> bytes:
    return digest(fingerprint.hex(), prompt, answer)

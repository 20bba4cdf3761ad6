"""Answers that follow a JSON schema: a mask over the vocabulary before each token is drawn.

The grammar engine is llguidance (MIT, 3 MB, no dependencies): it knows JSON schema and byte-level
vocabularies, and a mask takes it well under a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from stratacache.engine.errors import InvalidRequest, UnsupportedFeature

_KEPT = 64  # schemas whose grammar is kept
# Free white space would let a small model write blank lines until its tokens are spent.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class JsonMatcher:
    """One answer's place in its grammar."""

    def __init__(self, matcher: Any, ends: tuple[int, ...]) -> None:
        self._matcher = matcher
        self._ends = ends

    def mask(self, logits: Tensor) -> None:
        """See `sequence.Matcher`."""
        words = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        refused = torch.from_numpy(np.unpackbits(~words, bitorder="little")[: len(logits)]).bool()
        logits.masked_fill_(refused.to(logits.device), -torch.inf)

    def accept(self, token: int) -> bool:
        """See `sequence.Matcher`."""
        if token in self._ends:
            return True
        taken = self._matcher.consume_token(token)
        assert taken, f"the grammar refuses token {token}, which it allowed: {self._matcher.get_error()}"
        return bool(self._matcher.is_stopped())


class JsonGrammar:
    """A schema, compiled for one vocabulary."""

    def __init__(self, matcher: Any, ends: tuple[int, ...]) -> None:
        self._first = matcher
        self._ends = ends

    def begin(self) -> JsonMatcher:
        """See `sequence.Grammar`."""
        return JsonMatcher(self._first.deep_copy(), self._ends)


class GrammarCompiler:
    """Makes grammars for a model folder's tokenizer. Safe for concurrent use."""

    def __init__(self, folder: Path, vocab_size: int, ends: tuple[int, ...]) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._ends = ends
        self._compile = lru_cache(_KEPT)(self._compile_text)
        self._tokenizer = lru_cache(1)(self._load)

    def compile(self, schema: Mapping[str, Any]) -> JsonGrammar:
        """Raises InvalidRequest for a schema that is none, UnsupportedFeature when the library is missing."""
        return self._compile(json.dumps(schema))

    def _load(self) -> Any:
        try:
            from llguidance import LLTokenizer
        except ImportError as error:
            raise UnsupportedFeature(
                "JSON answers need the package llguidance: pip install llguidance", "response_format"
            ) from error
        text = (self._folder / "tokenizer.json").read_text(encoding="utf-8")
        return LLTokenizer(text, n_vocab=self._vocab_size, eos_token=list(self._ends))

    def _compile_text(self, schema: str) -> JsonGrammar:
        tokenizer = self._tokenizer()
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_json_schema(schema, overrides=cast(Any, _STYLE))
        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise InvalidRequest(f"the schema cannot be followed: {matcher.get_error()}", "response_format")
        return JsonGrammar(matcher, self._ends)

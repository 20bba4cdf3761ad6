"""Traces of model traffic as requests with prefix blocks: Mooncake's block ids, or the text of agents' calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stratacache.errors import StrataError

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English, where a trace holds text and no token counts."""

_LONGEST_LINE = 64 << 20
_PREFIXLESS = (
    "has lengths and no prefixes: a cache can only be simulated from hash_ids (Mooncake's format) or from "
    "the text that was sent (input)"
)


class TraceRequest(NamedTuple):
    """``prefix`` names the prompt's blocks, each by all that comes before it as well; ``at`` in seconds."""

    at: float
    prefix: tuple[bytes, ...]


class _Line(msgspec.Struct):
    timestamp: float | None = None
    hash_ids: list[int] | None = None
    input: str | None = None


def read_trace(path: Path, block_tokens: int) -> list[TraceRequest]:
    """The trace's requests in the order of time; ``block_tokens`` cuts text, block ids are taken as they are.

    Raises StrataError when the file cannot be read, holds no requests, or tells nothing of prefixes.
    """
    found = [_request(line, number, path, block_tokens) for number, line in _lines(path)]
    if not found:
        raise StrataError(f"{path}: no requests in it")
    found.sort(key=lambda request: request.at)
    start = found[0].at
    return [TraceRequest(request.at - start, request.prefix) for request in found]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise StrataError(f"cannot read {path}: {error.strerror}") from None


def _request(line: bytes, number: int, path: Path, block_tokens: int) -> TraceRequest:
    if not line.lstrip().startswith(b"{"):
        raise StrataError(f"{path}: line {number} is no JSON object; such a table of lengths {_PREFIXLESS}")
    try:
        fields = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        raise StrataError(f"{path}: line {number}: {error}") from None
    if fields.timestamp is None:
        raise StrataError(f"{path}: line {number} has no timestamp")
    if fields.hash_ids is not None:
        return TraceRequest(fields.timestamp / 1e3, tuple(b"%d" % block for block in fields.hash_ids))
    if fields.input is not None:
        return TraceRequest(fields.timestamp / 1e6, text_blocks(fields.input, block_tokens))
    raise StrataError(f"{path}: line {number} {_PREFIXLESS}")


def text_blocks(text: str, block_tokens: int) -> tuple[bytes, ...]:
    """Hash chain over the text's blocks of about ``block_tokens`` tokens; what fills no block is left out."""
    size = block_tokens * CHARACTERS_PER_TOKEN
    blocks: list[bytes] = []
    before = b""
    for start in range(0, len(text) - size + 1, size):
        before = hashlib.sha256(
            before + text[start : start + size].encode("utf-8", "surrogatepass")
        ).digest()[:16]
        blocks.append(before)
    return tuple(blocks)


def summary(trace: Sequence[TraceRequest]) -> dict[str, Any]:
    """Requests, seconds from first to last, blocks in all and of the longest prompt."""
    sizes = [len(request.prefix) for request in trace]
    return {"requests": len(trace), "seconds": trace[-1].at, "blocks": sum(sizes), "longest": max(sizes)}

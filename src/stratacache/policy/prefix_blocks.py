"""Where prompts begin alike: a request's text in blocks of bytes, each with the hash of all up to its end; pure.

The gateway has no tokenizer, as it would need that of every model behind it. An engine's blocks are tokens of the text
that its template renders from the same fields in the same order: prompts that share bytes from the start share blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from stratacache.types import JSON

BLOCK_BYTES = 256
"""About 64 tokens of English: a few blocks of an engine's, as what differs within one is not worth a choice."""
MAX_BLOCKS = 1024
"""Text beyond 256 KiB does not matter for the choice of a replica."""

_FIELDS = ("instructions", "system", "messages", "input", "prompt")
_SEED = 0x5374726174614B56


def prefix_blocks(body: Mapping[str, JSON], root: str) -> list[bytes]:
    """Hashes (8 bytes each) of the whole blocks of ``body``'s prompt, from its start; a last part is left out.

    ``root`` is what no two prompts share a prefix without: model and salt. The hashes are those of this process only,
    and a collision costs a detour, never an answer.
    """
    text = b"".join(_parts(body, MAX_BLOCKS * BLOCK_BYTES))
    whole = min(len(text) // BLOCK_BYTES, MAX_BLOCKS)
    chain = hash((_SEED, root))
    blocks = []
    for start in range(0, whole * BLOCK_BYTES, BLOCK_BYTES):
        chain = hash((chain, text[start : start + BLOCK_BYTES]))
        blocks.append(chain.to_bytes(8, "little", signed=True))
    return blocks


def _parts(body: Mapping[str, JSON], most: int) -> Iterator[bytes]:
    """The prompt's fields in the order of a chat template: tools stand before all messages."""
    tools = body.get("tools")
    size = 0
    if tools:
        text = msgspec.json.encode(tools)
        size += len(text)
        yield text
    for field in _FIELDS:
        value = body.get(field)
        for item in value if isinstance(value, list) else () if value is None else (value,):
            part = _part(item)
            size += len(part)
            yield part
            if size >= most:
                return


def _part(item: JSON) -> bytes:
    """One message, or a text. Its end is marked, or ("ab", "c") would begin as ("a", "bc") does."""
    if isinstance(item, dict):
        content = item.get("content")
        if len(item) == 2 and isinstance(content, str):
            role = item.get("role")
            return f"{role}\0{content}\0".encode("utf-8", "surrogatepass")
        return msgspec.json.encode(item) + b"\0"
    if isinstance(item, str):
        return item.encode("utf-8", "surrogatepass") + b"\0"
    return msgspec.json.encode(item) + b"\0"

"""A prompt as the row of segments that a provider caches prefixes of: tools, then system, then messages; pure.

Source of the order and of what is one position: Anthropic's documentation, "Prompt caching". Other providers and
engines render the same fields in the same order, so one row serves them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from stratacache.types import JSON

Form = Literal["messages", "chat"]
Kind = Literal["tool", "system", "message"]

MARK: Final = "cache_control"
IMAGE_TOKENS: Final = 1500
"""What an image or a document counts, whatever its bytes: the larger of the providers' usual figures."""

BYTES_A_TOKEN: Final = 4.2
TOKENS_A_WIDE_CHARACTER: Final = 0.72
"""Of text in three bytes of UTF-8 a character, which is mostly Han."""

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_PICTURES: Final = frozenset({"image", "image_url", "input_image", "document", "file", "input_audio"})
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_encode: Final = msgspec.json.Encoder().encode


class Segment(msgspec.Struct, frozen=True, gc=False):
    """One position of a prompt.

    ``index`` counts the tools, system blocks or messages, ``part`` the blocks within a message. ``content`` is JSON as
    the provider sees it: without marks; a string is one block of text; members of the block itself in one order, those
    inside (schemas, arguments) in the client's. ``tokens`` is an estimate (:func:`estimated_tokens`). ``mark`` is the
    client's own ``cache_control``; of several the last.
    """

    kind: Kind
    index: int
    part: int
    role: str
    content: bytes
    tokens: int
    mark: Mapping[str, JSON] | None = None

    @property
    def name(self) -> str:
        """Where it is, for people: ``tools[3]``, ``system[0]``, ``messages[2].content[1]``."""
        if self.kind == "message":
            return f"messages[{self.index}].content[{self.part}]"
        return f"{'tools' if self.kind == 'tool' else 'system'}[{self.index}]"


def segments_of(body: Mapping[str, JSON], form: Form) -> list[Segment]:
    """The segments of ``body``: of Anthropic's messages form, or of OpenAI's chat form.

    What is malformed is passed over: the upstream will say what is wrong with it. In the chat form the system
    messages at the start are the system, and each tool call is a position of its own, as it is in the other form.
    """
    found = [_tool(i, tool) for i, tool in enumerate(_listed(body.get("tools"))) if isinstance(tool, Mapping)]
    messages = [one for one in _listed(body.get("messages")) if isinstance(one, Mapping)]
    if form == "messages":
        found.extend(_system(_parts(body.get("system")), 0))
        first = 0
    else:
        first = _leading(messages)
        index = 0
        for message in messages[:first]:
            blocks = list(_system(_parts(message.get("content")), index, str(message["role"])))
            found.extend(_marked_last(blocks, message))
            index += len(blocks)
    for i, message in enumerate(messages[first:], first):
        found.extend(_message(i, message))
    return found


def estimated_tokens(text: str) -> int:
    """The tokens of ``text`` without a tokenizer, at least 1; the guide states the error that was measured."""
    characters = len(text)
    if text.isascii():
        return max(1, round(characters / BYTES_A_TOKEN))
    # Bytes beyond one a character come in twos for Han, whose share follows without a look at each character.
    wide = (len(text.encode("utf-8", "surrogatepass")) - characters) // 2
    return max(1, round((characters - wide) / BYTES_A_TOKEN + wide * TOKENS_A_WIDE_CHARACTER))


class Chain:
    """Digests of all prefixes of prompts; what it met before is not hashed with SHA-256 again.

    Keeps digests only, of the last ``most`` to twice as many segments. Not safe across threads.
    """

    def __init__(self, most: int = 16_384) -> None:
        self._most = most
        self._new: dict[tuple[bytes, int, int], bytes] = {}
        self._old: dict[tuple[bytes, int, int], bytes] = {}

    def digests(self, segments: Sequence[Segment], root: bytes = b"") -> list[bytes]:
        """For each segment 16 bytes that stand for it and all before it. Mutates the memory only.

        ``root`` is what no two prompts share a prefix without: tenant, upstream, model.
        """
        before = hashlib.sha256(root).digest()[:16]
        made = []
        for one in segments:
            # Python's hash is keyed at random in each process, and three times as fast: nobody can aim at a collision.
            known = (before, len(one.content), hash((one.kind, one.role, one.part == 0, one.content)))
            digest = self._new.get(known)
            if digest is None:
                digest = self._old.get(known) or _linked(before, one)
                self._keep(known, digest)
            made.append(digest)
            before = digest
        return made

    def check(self) -> None:
        """Raise AssertionError when more is kept than allowed."""
        assert len(self._new) <= self._most
        assert len(self._old) <= self._most

    def _keep(self, known: tuple[bytes, int, int], digest: bytes) -> None:
        if len(self._new) >= self._most:
            self._new, self._old = {}, self._new
        self._new[known] = digest


def _linked(before: bytes, one: Segment) -> bytes:
    head = f"{one.kind}\0{one.role}\0{'' if one.part else 'first'}\0".encode("utf-8", "surrogatepass")
    return hashlib.sha256(b"".join((before, head, one.content))).digest()[:16]


def _listed(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _parts(content: JSON) -> list[JSON]:
    if isinstance(content, str):
        return [content] if content else []
    return _listed(content)


def _leading(messages: Sequence[Mapping[str, JSON]]) -> int:
    return next(
        (i for i, one in enumerate(messages) if not _among(one.get("role"), _SYSTEM_ROLES)), len(messages)
    )


def _system(parts: Sequence[JSON], first: int, role: str = "system") -> Iterator[Segment]:
    for i, part in enumerate(parts, first):
        yield _block("system", i, 0, role, part)


def _message(index: int, message: Mapping[str, JSON]) -> list[Segment]:
    """Content blocks, then (in the chat form) what else the message says, then its calls."""
    role = str(message.get("role", ""))
    if role == "tool":
        return [_block("message", index, 0, role, message)]
    parts: list[JSON] = _parts(message.get("content"))
    if len(message) > 2:
        rest = {name: value for name, value in message.items() if name not in _TAKEN_APART and value}
        calls = _listed(message.get("tool_calls"))
        parts = [*parts, *([rest] if rest else []), *calls]
    blocks = [_block("message", index, j, role, part) for j, part in enumerate(parts)]
    return _marked_last(blocks, message)


_TAKEN_APART: Final = frozenset({"role", "content", "tool_calls", MARK})


def _marked_last(blocks: list[Segment], message: Mapping[str, JSON]) -> list[Segment]:
    """Some servers take a mark on the message itself, which then is one on its last block."""
    mark = message.get(MARK)
    if blocks and isinstance(mark, Mapping) and blocks[-1].mark is None:
        blocks[-1] = msgspec.structs.replace(blocks[-1], mark=mark)
    return blocks


def _tool(index: int, tool: Mapping[str, JSON]) -> Segment:
    mark = tool.get(MARK)
    bare = _bare(tool)
    function = bare.get("function")
    if isinstance(function, Mapping):
        mark = mark or function.get(MARK)
        bare["function"] = _bare(function)
    content = _encode(bare)
    return Segment("tool", index, 0, "", content, _tokens_of(content), _mapping(mark))


def _block(kind: Kind, index: int, part: int, role: str, value: JSON) -> Segment:
    if isinstance(value, str):
        return Segment(kind, index, part, role, _text(value), estimated_tokens(value))
    if not isinstance(value, Mapping):
        content = _encode(value)
        return Segment(kind, index, part, role, content, _tokens_of(content))
    mark = _mapping(value.get(MARK))
    text = value.get("text")
    if isinstance(text, str) and _among(value.get("type"), _TEXTS) and len(value) - (MARK in value) == 2:
        return Segment(kind, index, part, role, _text(text), estimated_tokens(text), mark)
    bare = _bare(value)
    inside = bare.get("content")
    pictures = _is_picture(value)
    if isinstance(inside, list):
        mark = mark or next((m for one in reversed(inside) if (m := _mark_on(one)) is not None), None)
        bare["content"] = [_bare(one) if isinstance(one, Mapping) else one for one in inside]
        shown = [one for one in inside if _is_picture(one)]
        if shown:
            told = _encode({**bare, "content": [one for one in bare["content"] if not _is_picture(one)]})
            tokens = _tokens_of(told) + IMAGE_TOKENS * len(shown)
            return Segment(kind, index, part, role, _encode(bare), tokens, mark)
    content = _encode(bare)
    return Segment(kind, index, part, role, content, IMAGE_TOKENS if pictures else _tokens_of(content), mark)


def _is_picture(value: JSON) -> bool:
    return isinstance(value, Mapping) and _among(value.get("type"), _PICTURES)


def _among(value: JSON, words: frozenset[str]) -> bool:
    """Whether ``value`` is one of ``words``; a list or object, which a set cannot look up, is none."""
    return isinstance(value, str) and value in words


def _mark_on(value: JSON) -> Mapping[str, JSON] | None:
    return _mapping(value.get(MARK)) if isinstance(value, Mapping) else None


def _mapping(value: JSON) -> Mapping[str, JSON] | None:
    return value if isinstance(value, Mapping) else None


def _bare(value: Mapping[str, JSON]) -> dict[str, Any]:
    """Its members by name: their order is not part of the prompt, and a mark is not either."""
    return {name: value[name] for name in sorted(value) if name != MARK}


def _text(text: str) -> bytes:
    return b'{"text":%b,"type":"text"}' % _encode(text)


def _tokens_of(content: bytes) -> int:
    """As :func:`estimated_tokens`, of JSON."""
    return estimated_tokens(content.decode("utf-8"))

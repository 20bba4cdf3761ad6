"""What must be equal between two requests for one to be answered with the other's answer: all but the question's words.

A semantic hit is found by its partition and trusted for its scope: the exact canonical form with the text of the last
question blanked. So tenant, namespace, profile, model, system prompt, tools, parameters, images and history must be
equal to the byte, whatever an index says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from stratacache.policy.key import (
    CONVERSATIONS,
    INSTRUCTING,
    SHOWS_PROMPT,
    conversation_of,
    system_of,
    uses_tools,
)
from stratacache.policy.normalise import is_material_prompt
from stratacache.types import JSON, Request

PARTITION_VERSION = 1
"""Part of every partition: raise it when what it is made of changes."""

MAX_QUESTION = 400
"""Characters. Longer ones bring material of their own; neither embedder nor verifier was made for them."""

_BODY = 6  # where the canonical form of ``policy.key`` has the body
_TOOL_ROLES = frozenset({"tool", "function"})
_Raw = dict[str, msgspec.Raw]
_BLANK = msgspec.Raw(b'""')
_decode_form = msgspec.json.Decoder(tuple[msgspec.Raw, ...]).decode
_decode_object = msgspec.json.Decoder(_Raw).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Unfit(msgspec.Struct, frozen=True):
    """A request that the semantic tier has no business with; ``reason`` is a word of ``docs/guide/reasons.md``.

    ``kind`` is the kind of its question when that is what is wrong with it, else "".
    """

    reason: str
    kind: str = ""


class Scoped(msgspec.Struct, frozen=True, gc=False):
    """A canonical form without its last question: ``form`` with the text blanked, and the ``text`` that stood there."""

    form: bytes
    text: str

    def partition(self, language: str) -> bytes:
        """16 bytes under which an index files questions in ``language`` that may share answers."""
        head = msgspec.json.encode(["stratacache partition", PARTITION_VERSION, language])
        return hashlib.sha256(head + b"\0" + self.form).digest()[:16]


def question_of(request: Request) -> str | Unfit:
    """The text of the last question, trimmed, or why the semantic tier must leave the request alone. Pure."""
    body = request.body
    messages = conversation_of(request.endpoint, body)
    if request.endpoint not in CONVERSATIONS or not isinstance(messages, list) or not messages:
        return Unfit("no_question")
    if any(body.get(name) for name in ("logprobs", *SHOWS_PROMPT)) or body.get("n") not in (None, 1):
        return Unfit("shows_question")
    roles = [m.get("role") if isinstance(m, Mapping) else None for m in messages]
    if roles[-1] != "user":
        return Unfit("no_question")
    if not _TOOL_ROLES.isdisjoint(roles) or any(map(uses_tools, messages)):
        return Unfit("tool_results")
    texts = _texts(messages[-1].get("content"))
    if len(texts) > 1:
        return Unfit("several_texts")
    question = texts[0].strip() if texts else ""
    if not question:
        return Unfit("no_question")
    if len(question) > MAX_QUESTION:
        return Unfit("question_too_long")
    told = (
        t
        for m, role in zip(messages, roles, strict=True)
        if role in INSTRUCTING
        for t in _texts(m.get("content"))
    )
    instructions = (*_texts(system_of(request.endpoint, body)), *told)
    return Unfit("works_on_text") if any(map(is_material_prompt, instructions)) else question


def scope_of(form: bytes, *, alone: bool = False) -> Scoped | None:
    """``form``, the canonical form of a conversation, without the words of its last question.

    Args:
        alone: without the turns before the question too, for one that stands alone; what instructs the model stays.

    Returns None when it has no last question of one text. Numbers and strings are kept to the byte: nothing is parsed
    and written anew.
    """
    try:
        parts = list(_decode_form(form))
        body = _decode_object(parts[_BODY])
        messages = [_decode_object(raw) for raw in _decode_list(body["messages"])]
        last = messages[-1]
        if _word(last.get("role")) != "user":
            return None
        blanked = _blank(last)
    except (msgspec.DecodeError, LookupError, RecursionError):
        return None
    if blanked is None:
        return None
    text, last = blanked
    before = [m for m in messages[:-1] if not alone or _word(m.get("role")) in INSTRUCTING]
    body["messages"] = _joined([_object(message) for message in (*before, last)])
    parts[_BODY] = _object(body)
    return Scoped(bytes(_joined(parts)), text)


def has_history(request: Request) -> bool:
    """Whether turns of a conversation come before the last question of ``request``."""
    messages: Sequence[JSON] = conversation_of(request.endpoint, request.body)
    return any(message.get("role") not in INSTRUCTING for message in messages[:-1])


def _texts(content: JSON) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [p["text"] for p in parts if p.get("type") == "text" and isinstance(p.get("text"), str)]


def _blank(message: _Raw) -> tuple[str, _Raw] | None:
    """The one text of a message, and the message without it."""
    content = message["content"]
    if bytes(content)[:1] == b'"':
        return msgspec.json.decode(content, type=str), {**message, "content": _BLANK}
    parts = [_decode_object(raw) for raw in _decode_list(content)]
    texts = [i for i, part in enumerate(parts) if _word(part.get("type")) == "text"]
    if len(texts) != 1:
        return None
    part = parts[texts[0]]
    text = msgspec.json.decode(part["text"], type=str)
    parts[texts[0]] = {**part, "text": _BLANK}
    return text, {**message, "content": _joined([_object(part) for part in parts])}


def _word(raw: msgspec.Raw | None) -> JSON:
    return None if raw is None else msgspec.json.decode(raw)


def _joined(items: Sequence[msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(items))


def _object(members: _Raw) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(members, order="sorted"))

"""A request's positions as the planner sees them, and its body with the marks of a plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec

from stratacache.policy.prompt.plan import Layout, Mark, Plan
from stratacache.policy.prompt.segments import MARK, Chain, Form, Segment, segments_of
from stratacache.types import JSON

_BREAKPOINT: Final = "prompt_cache_breakpoint"
_OPTIONS: Final = ("prompt_cache_options", "prompt_cache_retention")
_THOUGHTS: Final = (b'"type":"thinking"}', b'"type":"redacted_thinking"}')
_TEXT: Final = b'{"text":"'
_EMPTY_TEXT: Final = b'{"text":"",'
_DEFERRED: Final = b'"defer_loading":true'
"""Anthropic's tools that the model has to look for are not in the prompt, and take no mark."""


class Sketch(msgspec.Struct, frozen=True):
    """A request that was taken apart: the segments, and the layout made of them."""

    segments: Sequence[Segment]
    layout: Layout


def sketch(body: Mapping[str, JSON], form: Form, chain: Chain, root: bytes) -> Sketch:
    """``body`` as positions. ``root`` is what no two requests share a prefix without: tenant, upstream, model."""
    segments = segments_of(body, form)
    kinds = [one.kind for one in segments]
    tools = kinds.count("tool")
    system = tools + kinds.count("system")
    digests = chain.digests(segments, root)
    void = _voids(body, segments)
    if void:
        # Settings that the provider renders behind the system: with others no prefix of messages is found.
        digests[system:] = [digest + void for digest in digests[system:]]
    layout = Layout(
        sums=list(accumulate([one.tokens for one in segments])),
        digests=digests,
        markable=[_markable(one, form) for one in segments],
        tools=tools,
        system=system,
        marked=_has_marks(body, form, segments),
        answered=any(one.role == "assistant" for one in segments),
    )
    return Sketch(segments, layout)


def with_marks(
    body: Mapping[str, JSON], form: Form, made: Sketch, plan: Plan, *, explicit: bool
) -> dict[str, JSON]:
    """``body`` with the plan's marks, and else the same; a string that carries a mark becomes one block of text.

    ``body`` is not changed. ``explicit``: the marks are OpenAI's breakpoints.
    """
    marked = dict(body)
    name = _BREAKPOINT if explicit else MARK
    for mark in plan.marks:
        value = _breakpoint(mark) if explicit else _ephemeral(mark)
        _place(marked, form, made.segments[mark.position], name, value)
    if not plan.implicit:
        marked["prompt_cache_options"] = {"mode": "explicit"}
    return marked


def _ephemeral(mark: Mark) -> dict[str, JSON]:
    # Five minutes is what a bare mark means, and all that some servers know.
    return {"type": "ephemeral"} if mark.ttl == "5m" else {"type": "ephemeral", "ttl": mark.ttl}


def _breakpoint(mark: Mark) -> dict[str, JSON]:
    return {"mode": "explicit"} if mark.ttl == "30m" else {"mode": "explicit", "ttl": mark.ttl}


def _place(body: dict[str, JSON], form: Form, segment: Segment, name: str, value: dict[str, JSON]) -> None:
    """Put a mark on the segment's block; whatever is changed was copied before, once or again."""
    if segment.kind == "tool":
        body["tools"] = _with(body["tools"], segment.index, {**body["tools"][segment.index], name: value})
    elif segment.kind == "system" and form == "messages":
        body["system"] = _marked_content(body["system"], segment.index, name, value)
    else:
        index, part = (
            _message_of(body["messages"], segment)
            if segment.kind == "system"
            else (segment.index, segment.part)
        )
        message = body["messages"][index]
        content = _marked_content(message["content"], part, name, value)
        body["messages"] = _with(body["messages"], index, {**message, "content": content})


def _message_of(messages: Sequence[Mapping[str, JSON]], segment: Segment) -> tuple[int, int]:
    """The message and part of a chat request's system segment, whose index counts the blocks of all of them."""
    left = segment.index
    for i, message in enumerate(messages):
        content = message.get("content")
        parts = len(content) if isinstance(content, list) else bool(content)
        if left < parts:
            return i, left
        left -= parts
    raise LookupError("the segment is not of this request")


def _marked_content(content: JSON, part: int, name: str, value: dict[str, JSON]) -> list[JSON]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    block = blocks[part]
    block = {"type": "text", "text": block} if isinstance(block, str) else block
    return _with(blocks, part, {**block, name: value})


def _with(items: Sequence[JSON], index: int, item: JSON) -> list[JSON]:
    made = list(items)
    made[index] = item
    return made


def _markable(segment: Segment, form: Form) -> bool:
    """Whether the provider takes a mark on it: no thoughts, no empty text, and in the chat form texts alone."""
    content = segment.content
    if content.startswith(_EMPTY_TEXT):
        return False
    if form == "chat":
        return segment.kind != "tool" and segment.role != "tool" and content.startswith(_TEXT)
    if segment.kind == "tool":
        return _DEFERRED not in content
    return content.startswith(b"{") and not content.endswith(_THOUGHTS)


def _has_marks(body: Mapping[str, JSON], form: Form, segments: Sequence[Segment]) -> bool:
    """Whether the client steers the provider's cache itself."""
    if body.get(MARK) is not None or any(one.mark is not None for one in segments):
        return True
    if form == "messages":
        return False
    return any(body.get(name) is not None for name in _OPTIONS) or any(
        b'"prompt_cache_breakpoint":' in one.content for one in segments
    )


def _voids(body: Mapping[str, JSON], segments: Sequence[Segment]) -> bytes:
    """What voids every cached prefix of messages when it changes (Anthropic: tool choice, thinking, images)."""
    settings: list[Any] = [body.get("tool_choice"), body.get("thinking")]
    images = any(one.kind == "message" and b'"type":"image' in one.content for one in segments)
    if settings == [None, None] and not images:
        return b""
    return msgspec.json.encode([*settings, images])

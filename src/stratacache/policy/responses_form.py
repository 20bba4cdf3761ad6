"""The canonical form of a Responses request's prompt: a conversation as the key and the semantic tier know one.

A string is shorthand for one message of a user: OpenAI's API reference, "Create a model response". ``input`` becomes
``messages``, and texts are of the type that they have in chat; ``instructions`` stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratacache.types import JSON

_TEXTS = frozenset({"input_text", "output_text"})


def messages_of(body: Mapping[str, JSON]) -> list[JSON] | None:
    """The items of ``input`` as messages, None when there are none. Items that are no messages keep their form."""
    told = body.get("input")
    if isinstance(told, str):
        return [{"role": "user", "content": told}]
    return [_message(item) for item in told] if isinstance(told, list) else None


def canonical_input(body: Mapping[str, JSON]) -> dict[str, JSON]:
    """``body`` with its input as ``messages``. ``body`` is not changed."""
    messages = messages_of(body)
    if messages is None:
        return dict(body)
    return {**{name: value for name, value in body.items() if name != "input"}, "messages": messages}


def _message(item: JSON) -> JSON:
    if not isinstance(item, Mapping) or item.get("type", "message") != "message":
        return item
    made = {name: value for name, value in item.items() if name != "type"}
    content = item.get("content")
    if isinstance(content, list):
        made["content"] = [_part(part) for part in content]
    return made


def _part(part: JSON) -> JSON:
    is_text = isinstance(part, Mapping) and part.get("type") in _TEXTS
    return {**part, "type": "text"} if is_text and isinstance(part, Mapping) else part

"""The canonical form of an Anthropic request's prompt: what does not change the answer is left out at every depth.

``cache_control`` says where the provider caches a prefix, and a string is shorthand for one block of text: Anthropic's
documentation, "Prompt caching" and "Messages". So a marked prompt, an unmarked one, and one that was converted from
another dialect have one key.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratacache.types import JSON

_MARK = "cache_control"


def canonical_prompt(body: Mapping[str, JSON]) -> dict[str, JSON]:
    """``body`` with its tools, system and messages in canonical form. ``body`` is not changed."""
    made = dict(body)
    tools = body.get("tools")
    if isinstance(tools, list):
        made["tools"] = [_unmarked(tool) for tool in tools]
    if "system" in body:
        made["system"] = _content(body["system"])
    messages = body.get("messages")
    if isinstance(messages, list):
        made["messages"] = [_message(message) for message in messages]
    return made


def _message(message: JSON) -> JSON:
    if not isinstance(message, Mapping) or "content" not in message:
        return message
    return {**message, "content": _content(message["content"])}


def _content(content: JSON) -> JSON:
    if not isinstance(content, list):
        return content
    blocks = [_block(block) for block in content]
    if len(blocks) == 1 and isinstance(blocks[0], Mapping) and blocks[0].keys() == {"type", "text"}:
        return blocks[0]["text"] if blocks[0]["type"] == "text" else blocks
    return blocks


def _block(block: JSON) -> JSON:
    block = _unmarked(block)
    if isinstance(block, Mapping) and block.get("type") == "tool_result" and "content" in block:
        return {**block, "content": _content(block["content"])}
    return block


def _unmarked(value: JSON) -> JSON:
    if not isinstance(value, Mapping) or _MARK not in value:
        return value
    return {name: member for name, member in value.items() if name != _MARK}

"""Which dialect an endpoint's answers are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import anthropic_messages, openai_chat, openai_embeddings
from stratacache.dialects.base import Answers
from stratacache.policy.fields import CHAT, EMBEDDINGS, MESSAGES
from stratacache.types import JSON

_ANSWERS: Final[Mapping[str, Answers]] = {
    CHAT: openai_chat,
    MESSAGES: anthropic_messages,
    EMBEDDINGS: openai_embeddings,
}


def answers_of(endpoint: str) -> Answers:
    """How the answers of ``Request.endpoint`` are judged."""
    return _ANSWERS[endpoint]


def said_by(answer: JSON) -> str | None:
    """What a stored answer of a conversation says, None unless it is one whole text: several choices and calls of
    tools are no text."""
    is_message = type(answer) is dict and answer.get("type") == "message"
    dialect: Answers = anthropic_messages if is_message else openai_chat
    if dialect.completeness(answer) is not None or _acts(answer):
        return None
    texts = dialect.texts_of(answer)
    return texts[0] if len(texts) == 1 else None


def _acts(answer: Mapping[str, JSON]) -> bool:
    if "choices" not in answer:
        return any(block["type"] == "tool_use" for block in answer["content"])
    said = answer["choices"][0]["message"]
    return bool(len(answer["choices"]) > 1 or said.get("tool_calls") or said.get("function_call"))

"""Which dialect an endpoint's answers are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import (
    anthropic_messages,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_responses,
)
from stratacache.dialects.base import Answers
from stratacache.policy.fields import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES
from stratacache.types import JSON

_ANSWERS: Final[Mapping[str, Answers]] = {
    CHAT: openai_chat,
    MESSAGES: anthropic_messages,
    COMPLETIONS: openai_completions,
    RESPONSES: openai_responses,
    EMBEDDINGS: openai_embeddings,
}


def answers_of(endpoint: str) -> Answers:
    """How the answers of ``Request.endpoint`` are judged."""
    return _ANSWERS[endpoint]


def said_by(answer: JSON) -> str | None:
    """What a stored answer of a conversation says, None unless it is one whole text: several choices and calls of
    tools are no text."""
    dialect: Answers = openai_chat
    if type(answer) is dict:
        if answer.get("type") == "message":
            dialect = anthropic_messages
        elif answer.get("object") == "response":
            dialect = openai_responses
    if dialect.completeness(answer) is not None or _acts(answer):
        return None
    texts = dialect.texts_of(answer)
    return texts[0] if len(texts) == 1 else None


def _acts(answer: Mapping[str, JSON]) -> bool:
    if "output" in answer:
        return openai_responses.acts(answer)
    if "choices" not in answer:
        return any(block["type"] == "tool_use" for block in answer["content"])
    said = answer["choices"][0]["message"]
    return bool(len(answer["choices"]) > 1 or said.get("tool_calls") or said.get("function_call"))

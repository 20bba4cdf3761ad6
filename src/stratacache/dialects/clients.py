"""The endpoints that clients call: where they are, how their requests are checked, and how errors are worded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from stratacache.dialects import (
    anthropic_messages,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_responses,
)
from stratacache.dialects.base import Parsed
from stratacache.errors import StrataError
from stratacache.policy.fields import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES
from stratacache.types import JSON

ANTHROPIC_PATH: Final = "/v1/messages"


class Client(msgspec.Struct, frozen=True):
    """One endpoint. ``parse`` raises RequestError and never changes the body."""

    endpoint: str
    path: str
    parse: Callable[[dict[str, JSON]], Parsed]


CLIENTS: Final[Mapping[str, Client]] = {
    client.endpoint: client
    for client in (
        Client(CHAT, "/v1/chat/completions", openai_chat.parse),
        Client(MESSAGES, ANTHROPIC_PATH, anthropic_messages.parse),
        Client(COMPLETIONS, "/v1/completions", openai_completions.parse),
        Client(RESPONSES, "/v1/responses", openai_responses.parse),
        Client(EMBEDDINGS, "/v1/embeddings", openai_embeddings.parse),
    )
}


def error_words(path: str) -> Callable[[StrataError], bytes]:
    """How an error is said to who called ``path``: in Anthropic's JSON at and below its path, else in OpenAI's."""
    if path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/"):
        return anthropic_messages.error_body
    return openai_chat.error_body

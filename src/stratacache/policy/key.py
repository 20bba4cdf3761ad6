"""The exact key: one unambiguous encoding of everything that can change the answer, and 128 bits of its SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stratacache.policy.fields import CHAT, MESSAGES, RESPONSES, irrelevant_fields
from stratacache.policy.messages_form import canonical_prompt
from stratacache.policy.normalise import NORMALISER_VERSION, is_material_prompt, normalise_all, tidy
from stratacache.policy.responses_form import canonical_input, messages_of
from stratacache.types import JSON, Key, Request

KEY_VERSION: int = 3
"""Part of every key: raise it when the encoding or the classes in ``policy.fields`` change."""

CONVERSATIONS = frozenset({CHAT, MESSAGES, RESPONSES})
"""Endpoints whose body holds a conversation, with what instructs the model among its messages or in its own field."""

_INSTRUCTIONS = {MESSAGES: "system", RESPONSES: "instructions"}

INSTRUCTING = ("system", "developer")
_TOOL_BLOCKS = ("tool_use", "tool_result", "server_tool_use")
# With one of these the answer repeats or continues the prompt itself, so the prompt must match to the byte.
SHOWS_PROMPT = ("echo", "prompt_logprobs", "return_token_ids", "continue_final_message")


def exact_key(request: Request, *, history_window: int | None = None) -> Key:
    """The key under which the answer to ``request`` is stored. Pure; the request is not changed.

    ``form`` is a JSON list (sorted object keys, so wire order and white space do not matter) of: versions and
    the history window, endpoint, upstream and the server behind it, resolved model, scope, forwarded headers, and
    the body without the fields proved irrelevant. Lists keep neighbours apart: no text can move from one field
    into the next.

    Args:
        request: its body is a conversation for the prose rules to apply; other endpoints are taken to the byte.
        history_window: None for all turns, or the last n turns; see ``windowed``.

    Raises:
        ValueError: ``history_window`` is less than 1.
    """
    left_out = irrelevant_fields(request.endpoint)
    body = {name: value for name, value in request.body.items() if name not in left_out}
    body["model"] = request.resolved_model
    if request.endpoint == MESSAGES:
        body = canonical_prompt(body)
    elif request.endpoint == RESPONSES:
        body = canonical_input(body)
    if request.endpoint in CONVERSATIONS and isinstance(messages := body.get("messages"), list):
        exact = any(body.get(name) for name in SHOWS_PROMPT)
        folded = messages if exact else _fold_user_text(messages, system_of(request.endpoint, body))
        body["messages"] = folded if history_window is None else windowed(folded, history_window)
    scope = request.scope
    form = _encode(
        [
            ["stratacache", KEY_VERSION, NORMALISER_VERSION, history_window],
            request.endpoint,
            [request.upstream, request.server],
            request.resolved_model,
            [scope.tenant, scope.namespace, scope.profile, scope.credential],
            sorted(request.headers),
            body,
        ]
    )
    return Key(digest=hashlib.sha256(form).digest()[:16], form=form)


def system_of(endpoint: str, body: Mapping[str, JSON]) -> JSON:
    """What instructs the model beside the messages, in APIs that have a field for it."""
    field = _INSTRUCTIONS.get(endpoint)
    return None if field is None else body.get(field)


def conversation_of(endpoint: str, body: Mapping[str, JSON]) -> JSON:
    """The messages of a request to one of :data:`CONVERSATIONS`."""
    return messages_of(body) if endpoint == RESPONSES else body.get("messages")


def windowed(messages: Sequence[JSON], turns: int) -> list[JSON]:
    """System and developer messages, and all messages from the ``turns``-th last user message on (B3).

    A turn is a user message and what follows it, so calls of tools and their results are never torn apart.
    """
    if turns < 1:
        raise ValueError("history_window must be at least 1")
    starts = [i for i, message in enumerate(messages) if _role(message) == "user" and not uses_tools(message)]
    start = starts[-turns] if len(starts) >= turns else 0
    return [m for i, m in enumerate(messages) if i >= start or _role(m) in INSTRUCTING]


def uses_tools(message: JSON) -> bool:
    """Whether a message holds calls of tools or their results: as blocks of its content, in Anthropic's form, or as an
    item that is none, in that of Responses."""
    if isinstance(message, Mapping) and "role" not in message:
        return True
    content = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") in _TOOL_BLOCKS for part in content
    )


def _role(message: JSON) -> JSON:
    return message.get("role") if isinstance(message, Mapping) else None


def _fold_user_text(messages: Sequence[JSON], system: JSON) -> list[JSON]:
    """The messages with user prose in normal form; every other role is kept to the byte.

    Under a system prompt that works on the text itself (a translator, a proofreader) user text is only tidied.
    """
    texts = [t for message in messages if _role(message) == "user" for t in _texts(message.get("content"))]
    told = (t for m in messages if _role(m) in INSTRUCTING for t in _texts(m.get("content")))
    material = any(is_material_prompt(text) for text in (*_texts(system), *told))
    forms = iter([tidy(text) for text in texts] if material else normalise_all(texts))
    return [_with_forms(m, forms) if _role(m) == "user" else m for m in messages]


def _texts(content: JSON) -> list[str]:
    """The texts of a message's content, a string or a list of typed parts, in order."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if _is_text(part)] if isinstance(content, list) else []


def _is_text(part: JSON) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _with_forms(message: Mapping[str, JSON], forms: Iterator[str]) -> dict[str, JSON]:
    """A copy of a user message with its texts, in the order of ``_texts``, replaced by their normal forms."""
    content = message.get("content")
    if isinstance(content, str):
        content = next(forms)
    elif isinstance(content, list):
        content = [{**part, "text": next(forms)} if _is_text(part) else part for part in content]
    else:
        return dict(message)
    return {**message, "content": content}


def _encode(form: list[JSON]) -> bytes:
    try:
        return msgspec.json.encode(form, order="sorted")
    except UnicodeEncodeError:
        # A lone surrogate: never from JSON, but a library's caller may pass one. Escaped it stays unambiguous,
        # because the encoder above writes no surrogate escapes.
        return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()

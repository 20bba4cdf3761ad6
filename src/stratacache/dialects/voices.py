"""How clients are spoken to: in the dialect that an answer is kept in, or turned into their own. See ``base.Voice``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from stratacache.dialects import (
    anthropic_messages,
    anthropic_replay,
    openai_chat,
    openai_completions,
    openai_responses,
    sse,
    typed_events,
    wire,
)
from stratacache.dialects.base import Heard, Live, Voice
from stratacache.dialects.convert_answers import chat_answer, message_answer
from stratacache.dialects.convert_streams import ChatFromMessages, MessagesFromChat
from stratacache.errors import StrataError, UpstreamError
from stratacache.policy.fields import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES
from stratacache.types import JSON


class _ChatLive:
    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage

    def take(self, heard: Sequence[Heard]) -> bytes:
        payloads = [one.payload if self._include_usage else one.bare for one in heard]
        return b"".join([sse.encode(payload) for payload in payloads if payload is not None])

    def end(self) -> bytes:
        return sse.encode(sse.DONE)


class _ChatVoice:
    """A chat client before a chat upstream."""

    _replay: Callable[..., list[bytes]] = staticmethod(openai_chat.replay)
    _completeness: Callable[[JSON], str | None] = staticmethod(openai_chat.completeness)

    def body(self, answer: bytes, created: float, *, status: int) -> bytes:
        return answer

    def stream(self, answer: JSON, created: float, *, include_usage: bool) -> bytes:
        return sse.encode_stream(self._replay(answer, include_usage=include_usage))

    def live(self, created: float, *, include_usage: bool) -> Live:
        return _ChatLive(include_usage=include_usage)

    def failure(self, error: StrataError) -> bytes:
        # The status is sent already; SDKs raise on an error event, and the missing [DONE] tells the rest.
        return sse.encode(openai_chat.error_body(error))

    def can_stream(self, answer: JSON) -> bool:
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            return False
        ended = {**answer, "choices": [{**choice, "finish_reason": "stop"} for choice in choices]}
        return self._completeness(ended) in (None, "refused", "empty")


class _CompletionsVoice(_ChatVoice):
    """A client that has a text continued; told as in chat, in chunks of another shape."""

    _replay = staticmethod(openai_completions.replay)
    _completeness = staticmethod(openai_completions.completeness)


class _TypedLive:
    """``last``: the event that ends the stream where the upstream's own is but a mark."""

    def __init__(self, last: bytes = b"") -> None:
        self._last = last

    def take(self, heard: Sequence[Heard]) -> bytes:
        return typed_events.encode_stream([one.payload for one in heard])

    def end(self) -> bytes:
        return typed_events.encode_event(self._last) if self._last else b""


class _MessagesVoice:
    """An Anthropic client before an Anthropic upstream."""

    def body(self, answer: bytes, created: float, *, status: int) -> bytes:
        return answer

    def stream(self, answer: JSON, created: float, *, include_usage: bool) -> bytes:
        return typed_events.encode_stream(anthropic_replay.replay(answer))

    def live(self, created: float, *, include_usage: bool) -> Live:
        return _TypedLive(anthropic_replay.STOP)

    def failure(self, error: StrataError) -> bytes:
        return typed_events.encode_event(anthropic_messages.error_body(error))

    def can_stream(self, answer: JSON) -> bool:
        if not isinstance(answer, dict):
            return False
        calls = any(isinstance(b, dict) and b.get("type") == "tool_use" for b in answer.get("content") or ())
        ended = {**answer, "stop_reason": "tool_use" if calls else "end_turn"}
        return anthropic_messages.completeness(ended) in (None, "empty")


class _ResponsesVoice:
    """A client of the Responses API."""

    def body(self, answer: bytes, created: float, *, status: int) -> bytes:
        return answer

    def stream(self, answer: JSON, created: float, *, include_usage: bool) -> bytes:
        return typed_events.encode_stream(openai_responses.replay(answer))

    def live(self, created: float, *, include_usage: bool) -> Live:
        return _TypedLive()

    def failure(self, error: StrataError) -> bytes:
        return typed_events.encode_event(openai_responses.error_event(error))

    def can_stream(self, answer: JSON) -> bool:
        if not isinstance(answer, dict):
            return False
        return openai_responses.completeness({**answer, "status": "completed"}) in (None, "empty")


class _ChatOfMessages(_ChatVoice):
    """A chat client before an Anthropic upstream."""

    def body(self, answer: bytes, created: float, *, status: int) -> bytes:
        value = wire.decode_answer(answer)
        if status != 200:
            error = _error_of(value)
            told = {"message": _words(error), "type": error.get("type"), "param": None, "code": None}
            return wire.encode({"error": told})
        return wire.encode(chat_answer(_checked(value, anthropic_messages.completeness(value)), created))

    def stream(self, answer: JSON, created: float, *, include_usage: bool) -> bytes:
        return super().stream(chat_answer(answer, created), created, include_usage=include_usage)

    def live(self, created: float, *, include_usage: bool) -> Live:
        return ChatFromMessages(created, include_usage=include_usage)

    def can_stream(self, answer: JSON) -> bool:
        return _MESSAGES.can_stream(answer)


class _MessagesOfChat(_MessagesVoice):
    """An Anthropic client before a chat upstream."""

    def body(self, answer: bytes, created: float, *, status: int) -> bytes:
        value = wire.decode_answer(answer)
        if status != 200:
            return anthropic_messages.error_json(_words(_error_of(value)), status)
        return wire.encode(message_answer(_checked(value, openai_chat.completeness(value))))

    def stream(self, answer: JSON, created: float, *, include_usage: bool) -> bytes:
        return super().stream(message_answer(answer), created, include_usage=include_usage)

    def live(self, created: float, *, include_usage: bool) -> Live:
        return MessagesFromChat()

    def can_stream(self, answer: JSON) -> bool:
        return _CHAT.can_stream(answer)


def _error_of(body: JSON) -> dict[str, JSON]:
    error = body.get("error") if type(body) is dict else None
    return error if type(error) is dict else {"message": error}


def _words(error: dict[str, JSON]) -> str:
    return (
        error["message"]
        if type(error.get("message")) is str
        else "The upstream refused, and did not say why."
    )


def _checked(answer: JSON, fault: str | None) -> dict[str, JSON]:
    """``answer`` when it has the shape of one, though it need not be whole."""
    if type(answer) is not dict or fault in ("malformed", "error"):
        message = "the upstream sent something that is no answer"
        raise UpstreamError(message, code="upstream_malformed")
    return answer


_CHAT: Final = _ChatVoice()
_MESSAGES: Final = _MessagesVoice()
_VOICES: Final[dict[tuple[str, str], Voice]] = {
    (CHAT, CHAT): _CHAT,
    (MESSAGES, MESSAGES): _MESSAGES,
    (CHAT, MESSAGES): _ChatOfMessages(),
    (MESSAGES, CHAT): _MessagesOfChat(),
    (COMPLETIONS, COMPLETIONS): _CompletionsVoice(),
    (RESPONSES, RESPONSES): _ResponsesVoice(),
    (EMBEDDINGS, EMBEDDINGS): _CHAT,  # bodies as they are; nothing is streamed
}


def voice(client: str, kept: str) -> Voice:
    """For a client of the endpoint ``client`` and answers that are kept as those of ``kept``."""
    return _VOICES[client, kept]

"""A LlamaIndex model that is answered by the cache, or by the models behind it. Needs the extra ``llamaindex``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM


class Answer(Protocol):
    """What is needed of a ``Reply``."""

    @property
    def text(self) -> str: ...
    @property
    def body(self) -> Any: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class Cache(Protocol):
    """What is needed of a ``SyncStratacache``."""

    def answer(self, request: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Answer: ...
    def stream(
        self, request: Mapping[str, Any], *, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]: ...


class StratacacheLLM(CustomLLM):
    """A model of the settings, with every tier before it, for ``Settings.llm`` and query engines. Text only.

    Args:
        cache: a running ``SyncStratacache``.
        model: a model or alias of the settings.
        request: further fields of OpenAI's chat request, such as ``temperature``.
        headers: such as ``x-strata-namespace`` and ``x-strata-tags``.
    """

    model: str = Field(description="a model or alias of the settings")
    request: dict[str, Any] = Field(default_factory=dict, description="further fields of the request")
    headers: dict[str, str] = Field(
        default_factory=dict, description="of every request, such as x-strata-tags"
    )
    context_window: int = Field(default=4096, description="tokens of a prompt and its answer")
    _cache: Any = PrivateAttr()

    def __init__(self, cache: Cache, model: str, **fields: Any) -> None:
        super().__init__(model=model, **fields)
        self._cache = cache

    @classmethod
    def class_name(cls) -> str:
        return "StratacacheLLM"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=self.context_window, is_chat_model=True, model_name=self.model)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The whole answer; ``additional_kwargs`` has the headers that say what the cache did."""
        answer: Answer = self._cache.answer(self._body(messages, kwargs), headers=self.headers)
        said = ChatMessage(role=MessageRole.ASSISTANT, content=answer.text)
        return ChatResponse(
            message=said, raw=answer.body, additional_kwargs={"headers": dict(answer.headers)}
        )

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """As :meth:`chat`."""
        return await asyncio.to_thread(self.chat, messages, **kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The answer as it comes."""
        body = self._body(messages, kwargs)

        def grow() -> ChatResponseGen:
            text = ""
            for chunk in self._cache.stream(body, headers=self.headers):
                delta = (chunk["choices"][0]["delta"].get("content") or "") if chunk.get("choices") else ""
                text += delta
                said = ChatMessage(role=MessageRole.ASSISTANT, content=text)
                yield ChatResponse(message=said, delta=delta, raw=chunk)

        return grow()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The prompt as one user's question."""
        answer = self.chat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs)
        return CompletionResponse(
            text=answer.message.content or "", raw=answer.raw, additional_kwargs=answer.additional_kwargs
        )

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """As :meth:`complete`, as it comes."""
        answers = self.stream_chat([ChatMessage(role=MessageRole.USER, content=prompt)], **kwargs)
        return (
            CompletionResponse(text=one.message.content or "", delta=one.delta, raw=one.raw)
            for one in answers
        )

    def _body(self, messages: Sequence[ChatMessage], fields: Mapping[str, Any]) -> dict[str, Any]:
        said = [{"role": one.role.value, "content": _text(one)} for one in messages]
        return {**self.request, **fields, "model": self.model, "messages": said}


def _text(message: ChatMessage) -> str:
    """Raises ValueError for what is not text: it would be lost."""
    if message.role not in (MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT):
        raise ValueError(
            f"a message of {message.role.value} is not passed on; use an OpenAI client with the transport"
        )
    if message.additional_kwargs or not all(isinstance(block, TextBlock) for block in message.blocks):
        raise ValueError(
            "only text is passed on; use an OpenAI client with StratacacheTransport for the rest"
        )
    return message.content or ""

"""Answers turned from one dialect into the other: an Anthropic message and an OpenAI chat completion. Pure.

What one side alone knows travels as an extra member that clients of the other ignore: thoughts with their signatures
as ``thinking_blocks`` of the message (LiteLLM's name) beside ``reasoning_content``, and the stop sequence that was met
as ``stop_reason`` of the choice (vLLM's name).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.usage import usage_of
from stratacache.errors import UpstreamError
from stratacache.types import JSON

FINISH_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}
STOP_REASONS: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def no_form(what: str) -> UpstreamError:
    """The upstream said something that the client's dialect has no form for."""
    return UpstreamError(f"the answer holds {what}, which has no form in this API", code="upstream_malformed")


def chat_answer(message: Mapping[str, JSON], created: float) -> dict[str, JSON]:
    """A ``message`` as a ``chat.completion``; ``created`` in seconds since the epoch.

    Raises UpstreamError for content that only the server's own tools make.
    """
    texts, thoughts, calls = [], [], []
    for block in message["content"]:
        kind = block["type"]
        if kind == "text":
            texts.append(block["text"])
        elif kind in ("thinking", "redacted_thinking"):
            thoughts.append(block)
        elif kind == "tool_use":
            function = {"name": block["name"], "arguments": wire.encode(block["input"]).decode()}
            calls.append({"id": block["id"], "type": "function", "function": function})
        else:
            raise no_form(f"a block of type {kind[:40]!r}")
    said: dict[str, JSON] = {"role": "assistant", "content": "".join(texts) if texts else None}
    if thoughts:
        said |= reasoning(thoughts)
    if calls:
        said["tool_calls"] = calls
    choice: dict[str, JSON] = {"index": 0, "message": said, "logprobs": None}
    choice |= finish(message.get("stop_reason"), message.get("stop_sequence"))
    answer = {
        "id": message.get("id"),
        "object": "chat.completion",
        "created": int(created),
        "model": message.get("model"),
        "choices": [choice],
    }
    usage = message.get("usage")
    return {**answer, "usage": chat_usage(usage)} if type(usage) is dict else answer


def reasoning(thoughts: list[dict[str, JSON]]) -> dict[str, JSON]:
    """The members of a chat message that carry thoughts."""
    text = "".join([block.get("thinking") or "" for block in thoughts])
    return {"reasoning_content": text, "thinking_blocks": thoughts}


def finish(stop_reason: JSON, stop_sequence: JSON) -> dict[str, JSON]:
    """The members of a choice that say why it ended."""
    made: dict[str, JSON] = {"finish_reason": FINISH_REASONS.get(stop_reason, stop_reason)}
    return made if stop_sequence is None else {**made, "stop_reason": stop_sequence}


def chat_usage(usage: Mapping[str, JSON]) -> dict[str, JSON]:
    """Anthropic's counts in OpenAI's names: the prompt includes what the prompt cache read and wrote."""
    counts = usage_of({"usage": usage})
    prompt, completion = counts.prompt or 0, counts.completion or 0
    made: dict[str, JSON] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if counts.cached_prompt is not None or counts.written is not None:
        details = {"cached_tokens": counts.cached_prompt, "cache_write_tokens": counts.written}
        made["prompt_tokens_details"] = details
    return made


def message_answer(answer: Mapping[str, JSON]) -> dict[str, JSON]:
    """A ``chat.completion`` as a ``message``.

    Raises UpstreamError for several choices, and for calls that no Anthropic client could run.
    """
    choices = answer.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0].get("message")) is not dict:
        raise no_form("not exactly one choice")
    choice = choices[0]
    said = choice["message"]
    content: list[JSON] = list(said.get("thinking_blocks") or ())
    thought = said.get("reasoning_content") or said.get("reasoning")
    if not content and type(thought) is str and thought:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    text = said.get("content") if said.get("content") is not None else said.get("refusal")
    content += _text_blocks(text)
    content += [_call(call) for call in said.get("tool_calls") or ()]
    if said.get("function_call") or said.get("audio"):
        raise no_form("a function_call or audio")
    stop, sequence = stop_of(choice.get("finish_reason"), choice.get("stop_reason"))
    return {
        "id": answer.get("id"),
        "type": "message",
        "role": "assistant",
        "model": answer.get("model"),
        "content": content,
        "stop_reason": "refusal" if said.get("refusal") else stop,
        "stop_sequence": sequence,
        "usage": message_usage(answer.get("usage")),
    }


def _text_blocks(content: JSON) -> list[JSON]:
    if type(content) is str:
        return [{"type": "text", "text": content}] if content else []
    blocks = []
    for part in content or ():
        if part.get("type") != "text" or type(part.get("text")) is not str:
            raise no_form(f"a part of type {str(part.get('type'))[:40]!r}")
        blocks.append({"type": "text", "text": part["text"]})
    return blocks


def _call(call: Mapping[str, JSON]) -> dict[str, JSON]:
    function = call.get("function")
    if type(function) is not dict:
        raise no_form("a call of a tool that is no function")
    arguments = function.get("arguments") or ""
    value = wire.decode_answer(arguments.encode()) if arguments.strip() else {}
    if type(value) is not dict:
        raise no_form("a call whose arguments are no JSON object")
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": value}


def stop_of(finish_reason: JSON, met: JSON) -> tuple[JSON, JSON]:
    """(stop_reason, stop_sequence) of a choice; ``met`` is vLLM's stop string, or the number of a stop token."""
    if finish_reason == "stop" and type(met) is str:
        return "stop_sequence", met
    return STOP_REASONS.get(finish_reason, finish_reason), None


def message_usage(usage: JSON) -> dict[str, JSON]:
    """OpenAI's counts in Anthropic's names; what the prompt cache read and wrote is not among ``input_tokens``."""
    counts = usage_of({"usage": usage})
    made: dict[str, JSON] = {"input_tokens": counts.fresh or 0, "output_tokens": counts.completion or 0}
    if counts.cached_prompt is not None:
        made["cache_read_input_tokens"] = counts.cached_prompt
    if counts.written is not None:
        made["cache_creation_input_tokens"] = counts.written
    return made

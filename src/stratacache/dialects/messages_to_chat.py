"""An Anthropic request as the OpenAI chat request that means the same. Pure.

Marks for Anthropic's prompt cache are left out: another provider's cache has other rules, and no answer depends on
them. Whatever else has no counterpart is refused by name. Nothing is dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.carry import cannot, refuse_others
from stratacache.dialects.checks import wrong_value
from stratacache.types import JSON

_API: Final = "the OpenAI chat API"
# top_k is no field of OpenAI's own, but of most servers that speak its API.
_SAME: Final = ("temperature", "top_p", "top_k")
_IDLE: Final[Mapping[str, tuple[JSON, ...]]] = {
    "service_tier": ("auto",),
    "speed": ("standard",),
    "thinking": ({"type": "disabled"}, {"type": "adaptive"}),
}
_HANDLED: Final = frozenset(
    {
        "model", "messages", "system", "max_tokens", "stream", "stop_sequences", "tools", "tool_choice",
        "metadata", "output_config", "cache_control", *_SAME,
    }
)  # fmt: skip
# They refuse max_tokens, which every other server knows.
_NEW_LIMIT: Final = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")
_SCHEMA_NAME: Final = "answer"


def request(body: Mapping[str, JSON], *, resolved_model: str) -> dict[str, JSON]:
    """The body of a chat request; ``body`` is one that ``anthropic_messages.parse`` let pass and is not changed.

    Raises:
        RequestError: ``unsupported_field`` with the path of what cannot be carried, or ``invalid_value``.
    """
    for name, value in body.items():
        if value is not None and name not in _HANDLED and value not in _IDLE.get(name, ()):
            raise cannot(name, f"{_API} has no such setting.")
    limit = "max_completion_tokens" if _NEW_LIMIT.search(resolved_model) else "max_tokens"
    made: dict[str, JSON] = {"model": body["model"], "messages": _messages(body), limit: body["max_tokens"]}
    made |= {name: body[name] for name in _SAME if body.get(name) is not None}
    if body.get("stream") is not None:
        made["stream"] = body["stream"]
        if body["stream"]:
            made["stream_options"] = {"include_usage": True}
    if body.get("stop_sequences"):
        made["stop"] = body["stop_sequences"]
    made |= _tools(body)
    made |= _output(body.get("output_config"))
    metadata = body.get("metadata")
    if type(metadata) is dict:
        refuse_others(metadata, ("user_id",), "metadata", _API)
        if metadata.get("user_id") is not None:
            made["user"] = metadata["user_id"]
    return made


def _output(config: JSON) -> dict[str, JSON]:
    made: dict[str, JSON] = {}
    if type(config) is not dict:
        return made
    refuse_others(config, ("effort", "format"), "output_config", _API)
    if config.get("effort") is not None:
        made["reasoning_effort"] = config["effort"]
    wanted = config.get("format")
    if wanted is not None:
        if type(wanted) is not dict or wanted.get("type") != "json_schema":
            raise cannot("output_config.format", "only json_schema can be carried.")
        refuse_others(wanted, ("type", "schema"), "output_config.format", _API)
        schema = {"name": _SCHEMA_NAME, "schema": wanted.get("schema"), "strict": True}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    return made


def _tools(body: Mapping[str, JSON]) -> dict[str, JSON]:
    made: dict[str, JSON] = {}
    tools = body.get("tools")
    if tools is not None:
        if type(tools) is not list:
            raise wrong_value("tools", "is not an array.")
        made["tools"] = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    choice = body.get("tool_choice")
    if choice is None:
        return made
    kind = choice.get("type") if type(choice) is dict else None
    words = {"auto": "auto", "none": "none", "any": "required"}
    if kind == "tool":
        made["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif kind in words:
        made["tool_choice"] = words[kind]
    else:
        raise wrong_value("tool_choice.type", "is none of auto, any, tool and none.")
    refuse_others(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice", _API)
    if choice.get("disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    return made


def _tool(tool: JSON, path: str) -> dict[str, JSON]:
    if type(tool) is not dict or tool.get("type") not in (None, "custom"):
        raise cannot(f"{path}.type", "tools that are Anthropic's own exist only there.")
    refuse_others(
        tool, ("type", "name", "description", "input_schema", "strict", "cache_control"), path, _API
    )
    function: dict[str, JSON] = {"name": tool.get("name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("input_schema")
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _messages(body: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    made: list[dict[str, JSON]] = []
    if (system := body.get("system")) is not None and system != []:
        made.append({"role": "system", "content": _texts(system, "system")})
    messages = body["messages"]
    for i, message in enumerate(messages):
        path, role = f"messages[{i}]", message["role"]
        refuse_others(message, ("role", "content"), path, _API)
        content = message.get("content")
        if role == "user":
            made += _user(content, path)
        elif role == "assistant":
            made.append(_assistant(content, path))
        elif role == "system":
            made.append({"role": "system", "content": _texts(content, f"{path}.content")})
        else:
            raise wrong_value(f"{path}.role", "is none of user, assistant and system.")
    if messages[-1]["role"] == "assistant":
        path = f"messages[{len(messages) - 1}].role"
        raise cannot(path, "its models do not continue words that are put into their mouth.")
    return made


def _texts(content: JSON, path: str) -> JSON:
    """A string, or parts of text when there are several."""
    if type(content) is str:
        return content
    made = []
    for j, block in enumerate(content or ()):
        if block["type"] != "text":
            raise cannot(f"{path}[{j}].type", "it takes text only in this place.")
        made.append(_text(block, f"{path}[{j}]"))
    return made[0]["text"] if len(made) == 1 else made


def _text(block: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    refuse_others(block, ("type", "text", "cache_control"), path, _API)
    if type(block.get("text")) is not str:
        raise wrong_value(f"{path}.text", "is not a string.")
    return {"type": "text", "text": block["text"]}


def _user(content: JSON, path: str) -> list[dict[str, JSON]]:
    """Results of tools are messages of their own; they come before what the user says beside them."""
    if type(content) is str:
        return [{"role": "user", "content": content}]
    results, parts = [], []
    for j, block in enumerate(content or ()):
        where = f"{path}.content[{j}]"
        kind = block["type"]
        if kind == "tool_result":
            results.append(_result(block, where))
        elif kind == "text":
            parts.append(_text(block, where))
        elif kind == "image":
            parts.append(_image(block, where))
        elif kind == "document":
            parts.append(_document(block, where))
        else:
            raise cannot(f"{where}.type", f"{_API} takes no parts of type {kind[:40]!r}.")
    if len(parts) == 1 and parts[0]["type"] == "text":
        return [*results, {"role": "user", "content": parts[0]["text"]}]
    return [*results, {"role": "user", "content": parts}] if parts else results


def _result(block: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    refuse_others(block, ("type", "tool_use_id", "content", "is_error", "cache_control"), path, _API)
    content = _texts(block.get("content") or "", f"{path}.content")
    if block.get("is_error"):
        # There is no flag for it: that the call failed is said in the result, as its users do.
        content = (
            f"Error: {content}" if type(content) is str else [{"type": "text", "text": "Error:"}, *content]
        )
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}


def _source(block: Mapping[str, JSON], path: str, *, kinds: tuple[str, ...]) -> Mapping[str, JSON]:
    source = block.get("source")
    if type(source) is not dict or source.get("type") not in kinds:
        raise cannot(f"{path}.source.type", f"only {' and '.join(kinds)} can be carried.")
    return source


def _image(block: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    refuse_others(block, ("type", "source", "cache_control"), path, _API)
    source = _source(block, path, kinds=("base64", "url"))
    url = source.get("url")
    if source["type"] == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    refuse_others(block, ("type", "source", "title", "cache_control"), path, _API)
    source = _source(block, path, kinds=("base64",))
    file = {"file_data": f"data:{source.get('media_type')};base64,{source.get('data')}"}
    if block.get("title") is not None:
        file["filename"] = block["title"]
    return {"type": "file", "file": file}


def _assistant(content: JSON, path: str) -> dict[str, JSON]:
    if type(content) is str:
        return {"role": "assistant", "content": content}
    made: dict[str, JSON] = {"role": "assistant", "content": None}
    texts: list[dict[str, JSON]] = []
    calls: list[dict[str, JSON]] = []
    for j, block in enumerate(content or ()):
        where = f"{path}.content[{j}]"
        kind = block["type"]
        if kind == "text" and not calls:
            texts.append(_text(block, where))
        elif kind == "tool_use":
            calls.append(_call(block, where))
        elif kind == "thinking" and not block.get("signature"):
            made["reasoning_content"] = block.get("thinking")  # an OpenAI server's own: see ``chat_answer``
        else:
            raise cannot(f"{where}.type", f"{_API} takes no {kind[:40]} here.")
    if texts:
        made["content"] = texts[0]["text"] if len(texts) == 1 else texts
    return {**made, "tool_calls": calls} if calls else made


def _call(block: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    refuse_others(block, ("type", "id", "name", "input", "cache_control", "caller"), path, _API)
    arguments = wire.encode(block.get("input") or {}).decode()
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}

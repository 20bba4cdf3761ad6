"""An OpenAI chat request as the Anthropic request that means the same. Pure.

What only labels a request, or steers a provider's prompt cache, is left out, as it is left out of the key; whatever
else has no counterpart is refused by name. Nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.carry import cannot, data_url, refuse_others
from stratacache.dialects.checks import wrong_value
from stratacache.types import JSON

_API: Final = "the Anthropic Messages API"
# Carried as they are. The last three are Anthropic's own, sent by OpenAI clients as extra fields.
_SAME: Final = ("temperature", "top_p", "top_k", "thinking", "inference_geo", "speed")
_LABELS: Final = frozenset(
    {
        "metadata", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "request_id", "rid",
        "stream_options",
    }
)  # fmt: skip
# Without effect in these values.
_IDLE: Final[Mapping[str, tuple[JSON, ...]]] = {
    "n": (1,),
    "store": (False,),
    "logprobs": (False,),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "service_tier": ("auto",),
}
_HANDLED: Final = frozenset(
    {
        "model", "messages", "stream", "max_tokens", "max_completion_tokens", "stop", "tools", "tool_choice",
        "parallel_tool_calls", "response_format", "reasoning_effort", "user", "safety_identifier", *_SAME,
        *_LABELS,
    }
)  # fmt: skip
_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_SYSTEM: Final = frozenset({"system", "developer"})


def request(body: Mapping[str, JSON], *, max_tokens: int) -> dict[str, JSON]:
    """The body of a Messages request; ``body`` is one that ``openai_chat.parse`` let pass and is not changed.

    Args:
        max_tokens: what is asked for when the client names no limit: the API requires one.

    Raises:
        RequestError: ``unsupported_field`` with the path of what cannot be carried, or ``invalid_value``.
    """
    for name, value in body.items():
        if value is not None and name not in _HANDLED and value not in _IDLE.get(name, ()):
            raise cannot(name, f"{_API} has no such setting.")
    system, messages = _messages(body["messages"])
    made: dict[str, JSON] = {"model": body["model"], "max_tokens": _limit(body, max_tokens)}
    if system:
        made["system"] = system[0]["text"] if len(system) == 1 else system
    made["messages"] = messages
    made |= {name: body[name] for name in ("stream", *_SAME) if body.get(name) is not None}
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        raise cannot("temperature", "it is at most 1 there.")
    stop = body.get("stop")
    if stop is not None:
        made["stop_sequences"] = [stop] if type(stop) is str else stop
    made |= _tools(body)
    made |= _output(body)
    user = body.get("safety_identifier") or body.get("user")
    if user is not None:
        made["metadata"] = {"user_id": user}
    return made


def version_for(body: Mapping[str, JSON]) -> str:
    """The ``anthropic-version`` for a request whose client names none: the newest that takes what is in it.

    Source: Anthropic's documentation, "Versions": 2026-10-21 refuses the parameters of sampling.
    """
    sampled = any(body.get(name) is not None for name in ("temperature", "top_p", "top_k"))
    return "2023-06-01" if sampled else "2026-10-21"


def _limit(body: Mapping[str, JSON], otherwise: int) -> JSON:
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return body[name]
    return otherwise


def _output(body: Mapping[str, JSON]) -> dict[str, JSON]:
    """Reasoning effort and response format."""
    config: dict[str, JSON] = {}
    effort = body.get("reasoning_effort")
    if effort is not None:
        if effort not in _EFFORTS:
            raise cannot("reasoning_effort", f"its values there are {', '.join(sorted(_EFFORTS))}.")
        config["effort"] = effort
    wanted = body.get("response_format")
    kind = wanted.get("type") if type(wanted) is dict else None
    if type(wanted) is dict and kind == "json_schema":
        schema = wanted.get("json_schema")
        if type(schema) is not dict or type(schema.get("schema")) is not dict:
            raise wrong_value("response_format.json_schema.schema", "is not an object.")
        # The name is a label, and schemas are always held to there.
        refuse_others(schema, ("name", "strict", "schema"), "response_format.json_schema", _API)
        config["format"] = {"type": "json_schema", "schema": schema["schema"]}
    elif wanted is not None and kind != "text":
        raise cannot("response_format", "only text and json_schema exist there.")
    return {"output_config": config} if config else {}


def _tools(body: Mapping[str, JSON]) -> dict[str, JSON]:
    made: dict[str, JSON] = {}
    tools = body.get("tools")
    if tools is not None:
        if type(tools) is not list:
            raise wrong_value("tools", "is not an array.")
        made["tools"] = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    choice = _choice(body.get("tool_choice"))
    if body.get("parallel_tool_calls") is False and tools:
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    return {**made, "tool_choice": choice} if choice is not None else made


def _tool(tool: JSON, path: str) -> dict[str, JSON]:
    function = tool.get("function") if type(tool) is dict else None
    if type(function) is not dict or tool.get("type") != "function":
        raise cannot(f"{path}.type", "only functions can be carried.")
    refuse_others(tool, ("type", "function"), path, _API)
    refuse_others(function, ("name", "description", "parameters", "strict"), f"{path}.function", _API)
    made: dict[str, JSON] = {"name": function.get("name")}
    if function.get("description") is not None:
        made["description"] = function["description"]
    parameters = function.get("parameters")
    made["input_schema"] = {"type": "object", "properties": {}} if parameters is None else parameters
    if function.get("strict") is not None:
        made["strict"] = function["strict"]
    return made


def _choice(choice: JSON) -> dict[str, JSON] | None:
    if choice is None:
        return None
    words = {"auto": "auto", "none": "none", "required": "any"}
    if type(choice) is str and choice in words:
        return {"type": words[choice]}
    function = choice.get("function") if type(choice) is dict else None
    if type(function) is dict and choice.get("type") == "function":
        return {"type": "tool", "name": function.get("name")}
    raise cannot("tool_choice", "it is auto, none, required or one function there.")


def _messages(messages: list[JSON]) -> tuple[list[dict[str, JSON]], list[dict[str, JSON]]]:
    """What instructs the model before the conversation, and the conversation."""
    system: list[dict[str, JSON]] = []
    made: list[dict[str, JSON]] = []
    for i, message in enumerate(messages):
        path, role = f"messages[{i}]", message["role"]
        if role in _SYSTEM:
            refuse_others(message, ("role", "content"), path, _API)
            texts = _texts(message.get("content"), f"{path}.content")
            if made:
                made.append({"role": "system", "content": _shortest(texts)})
            else:
                system += texts
        elif role == "user":
            refuse_others(message, ("role", "content"), path, _API)
            made.append({"role": "user", "content": _user_content(message.get("content"), path)})
        elif role == "assistant":
            made.append({"role": "assistant", "content": _assistant_content(message, path)})
        elif role == "tool":
            _add_result(made, message, path)
        else:
            raise cannot(f"{path}.role", "the roles there are system, user and assistant.")
    return system, made


def _add_result(made: list[dict[str, JSON]], message: Mapping[str, JSON], path: str) -> None:
    """A tool's result; those of parallel calls belong into one message."""
    refuse_others(message, ("role", "content", "tool_call_id"), path, _API)
    texts = _texts(message.get("content"), f"{path}.content")
    content = _shortest(texts) if texts else ""
    result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content}
    last = made[-1]["content"] if made and made[-1]["role"] == "user" else None
    if type(last) is list and last[-1]["type"] == "tool_result":
        last.append(result)
    else:
        made.append({"role": "user", "content": [result]})


def _shortest(texts: list[dict[str, JSON]]) -> JSON:
    """One text stands for itself."""
    return texts[0]["text"] if len(texts) == 1 else texts


def _texts(content: JSON, path: str) -> list[dict[str, JSON]]:
    if type(content) is str:
        return [{"type": "text", "text": content}]
    made = []
    for j, part in enumerate(content or ()):
        if part["type"] != "text":
            raise cannot(f"{path}[{j}].type", "it takes text only in this place.")
        made.append(_text(part, f"{path}[{j}]"))
    return made


def _text(part: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    refuse_others(part, ("type", "text", "prompt_cache_breakpoint"), path, _API)
    if type(part.get("text")) is not str:
        raise wrong_value(f"{path}.text", "is not a string.")
    return {"type": "text", "text": part["text"]}


def _user_content(content: JSON, path: str) -> JSON:
    if type(content) is str:
        return content
    made = []
    for j, part in enumerate(content or ()):
        where = f"{path}.content[{j}]"
        kind = part["type"]
        if kind == "text":
            made.append(_text(part, where))
        elif kind == "image_url":
            made.append(_image(part, where))
        elif kind == "file":
            made.append(_document(part, where))
        else:
            raise cannot(f"{where}.type", f"{_API} takes no parts of type {kind[:40]!r}.")
    if len(made) == 1 and made[0]["type"] == "text":
        return made[0]["text"]
    return made


def _image(part: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    image = part.get("image_url")
    url = image.get("url") if type(image) is dict else None
    if type(image) is not dict or type(url) is not str:
        raise wrong_value(f"{path}.image_url.url", "is not a string.")
    refuse_others(image, ("url", "detail"), f"{path}.image_url", _API)
    if image.get("detail") not in (None, "auto"):
        raise cannot(f"{path}.image_url.detail", "images have no detail there; leave it out or say auto.")
    data = data_url(url)
    if data is not None:
        return {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}
    if url.startswith(("http://", "https://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    raise wrong_value(f"{path}.image_url.url", "is neither an http(s) URL nor a data URL with base64.")


def _document(part: Mapping[str, JSON], path: str) -> dict[str, JSON]:
    file = part.get("file")
    url = file.get("file_data") if type(file) is dict else None
    data = data_url(url) if type(url) is str else None
    if type(file) is not dict or data is None or data[0] != "application/pdf":
        raise cannot(f"{path}.file", "only a PDF in file_data, as a data URL with base64, can be carried.")
    refuse_others(file, ("file_data", "filename"), f"{path}.file", _API)
    made = {"type": "document", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}
    return made if file.get("filename") is None else {**made, "title": file["filename"]}


def _assistant_content(message: Mapping[str, JSON], path: str) -> JSON:
    """Thoughts (ours: see ``messages_answer``), text, then calls."""
    known = ("role", "content", "tool_calls", "thinking_blocks", "reasoning_content", "annotations")
    refuse_others(message, known, path, _API)
    thoughts = message.get("thinking_blocks") or []
    if message.get("reasoning_content") and not thoughts:
        raise cannot(f"{path}.reasoning_content", "thoughts need their signature: send thinking_blocks too.")
    if message.get("annotations"):
        raise cannot(f"{path}.annotations", f"{_API} has no such field.")
    content = message.get("content")
    texts = [part for part in _texts(content, f"{path}.content") if part["text"]]
    calls = [_call(c, f"{path}.tool_calls[{j}]") for j, c in enumerate(message.get("tool_calls") or ())]
    if not thoughts and not calls and type(content) is str:
        return content
    return [*thoughts, *texts, *calls]


def _call(call: JSON, path: str) -> dict[str, JSON]:
    function = call.get("function") if type(call) is dict else None
    if type(function) is not dict or call.get("type", "function") != "function":
        raise cannot(f"{path}.type", "only calls of functions can be carried.")
    refuse_others(call, ("id", "type", "function", "index"), path, _API)
    arguments = function.get("arguments")
    value = wire.decode_answer(arguments.encode()) if type(arguments) is str and arguments.strip() else {}
    if type(value) is not dict:
        raise wrong_value(f"{path}.function.arguments", "is not a JSON object.")
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": value}

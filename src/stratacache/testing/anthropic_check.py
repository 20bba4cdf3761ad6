"""What Anthropic's Messages API refuses, and in what words: the checks of the fake server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stratacache.testing.prompt_cache import MAX_BREAKPOINTS, SECONDS

FIELDS = frozenset(
    {
        "cache_control", "container", "diagnostics", "inference_geo", "max_tokens", "messages", "metadata",
        "model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system",
        "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
    }
)  # fmt: skip
COUNTED_FIELDS = frozenset(
    {
        "cache_control", "messages", "model", "output_config", "speed", "system", "thinking",
        "tool_choice", "tools",
    }
)  # fmt: skip
_SAMPLING, _WITHOUT_SAMPLING = frozenset({"temperature", "top_p", "top_k"}), "2026-10-21"
_TOOL_CHOICES = frozenset({"auto", "any", "tool", "none"})
_BLOCKS = frozenset(
    {
        "text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use",
        "tool_result", "server_tool_use", "web_search_tool_result", "container_upload",
    }
)  # fmt: skip
_MEDIA = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


class Refused(Exception):
    """The API's error: ``status``, ``kind`` (such as ``invalid_request_error``) and its message."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind


def check(body: Any, version: str, *, counting: bool = False) -> dict[str, Any]:
    """The body of a request for a message (or, ``counting``, for its tokens) when the API takes it; raises Refused.

    Args:
        version: the ``anthropic-version``; from 2026-10-21 on there are no parameters of sampling.
    """
    if not isinstance(body, dict):
        raise Refused("Input should be a valid dictionary")
    for name in body:
        removed = name in _SAMPLING and version >= _WITHOUT_SAMPLING
        if removed or name not in (COUNTED_FIELDS if counting else FIELDS):
            raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("model"), str):
        raise Refused("model: Field required")
    if not counting:
        _check_numbers(body)
    _check_messages(body.get("messages"))
    _check_tools(body)
    _check_marks(body)
    return body


def _check_numbers(body: Mapping[str, Any]) -> None:
    most = body.get("max_tokens")
    if "max_tokens" not in body:
        raise Refused("max_tokens: Field required")
    if type(most) is not int or most < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    temperature = body.get("temperature")
    if temperature is not None and not (type(temperature) in (int, float) and 0 <= temperature <= 1):
        raise Refused("temperature: range: 0..1")
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if type(budget) is not int or budget < 1024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= most:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        raise Refused("messages: Field required")
    if not messages:
        raise Refused("messages: at least one message is required")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise Refused(f"messages.{i}.role: Input should be 'user', 'assistant' or 'system'")
        _check_content(message.get("content"), message["role"], f"messages.{i}", last=i == len(messages) - 1)
    _check_pairs(messages)


def _check_content(content: Any, role: str, path: str, *, last: bool) -> None:
    if isinstance(content, str):
        if not content and not (last and role == "assistant"):
            raise Refused(f"{path}: user messages must have non-empty content")
        parts: list[Any] = [{"type": "text", "text": content}]
    elif isinstance(content, list) and content:
        parts = content
        for j, part in enumerate(parts):
            _check_block(part, role, f"{path}.content.{j}")
    else:
        raise Refused(f"{path}.content: Field required")
    if last and role == "assistant":
        text = parts[-1].get("text")
        if isinstance(text, str) and text != text.rstrip():
            raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _check_block(part: Any, role: str, path: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _BLOCKS:
        raise Refused(
            f"{path}: Input tag {kind!r} found using 'type' does not match any of the expected tags"
        )
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise Refused(f"{path}.text.text: Field required")
        if not part["text"]:
            raise Refused(f"{path}: text content blocks must be non-empty")
    elif kind == "image":
        _check_image(part.get("source"), path)
    elif kind == "tool_use" and role != "assistant":
        raise Refused(f"{path}: `tool_use` blocks can only be in `assistant` messages")
    elif kind == "tool_result" and role != "user":
        raise Refused(f"{path}: `tool_result` blocks can only be in `user` messages")
    elif kind == "thinking" and not part.get("signature"):
        raise Refused(f"{path}.thinking.signature: Field required")
    if kind in ("thinking", "redacted_thinking") and part.get("cache_control"):
        raise Refused(f"{path}.{kind}.cache_control: Extra inputs are not permitted")


def _check_image(source: Any, path: str) -> None:
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "base64":
        if source.get("media_type") not in _MEDIA:
            raise Refused(f"{path}.image.source.base64.media_type: Input should be one of {sorted(_MEDIA)}")
        if not source.get("data"):
            raise Refused(f"{path}.image.source.base64.data: image cannot be empty")
    elif kind not in ("url", "file"):
        raise Refused(f"{path}.image.source: Input should be 'base64', 'url' or 'file'")


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    """Every call of a tool is answered in the next message, and nothing else is."""
    for i, message in enumerate(messages):
        asked = _ids(message, "tool_use", "id")
        following = messages[i + 1] if i + 1 < len(messages) else None
        if following is not None and (missing := asked - _ids(following, "tool_result", "tool_use_id")):
            raise Refused(
                f"messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(sorted(missing))}. Each `tool_use` block must have a corresponding `tool_result` block in "
                "the next message."
            )
        before = _ids(messages[i - 1], "tool_use", "id") if i else set()
        if stray := _ids(message, "tool_result", "tool_use_id") - before:
            raise Refused(
                f"messages.{i}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(sorted(stray))}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )


def _ids(message: Mapping[str, Any], kind: str, name: str) -> set[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return {str(part.get(name)) for part in parts if part.get("type") == kind}


def _check_tools(body: Mapping[str, Any]) -> None:
    names = set()
    for i, tool in enumerate(body.get("tools") or ()):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise Refused(f"tools.{i}.custom.name: Field required")
        if tool.get("type") in (None, "custom") and not isinstance(tool.get("input_schema"), dict):
            raise Refused(f"tools.{i}.custom.input_schema: Field required")
        if tool.get("defer_loading") and tool.get("cache_control"):
            raise Refused(f"tools.{i}: Tools with defer_loading cannot have cache_control set")
        if tool["name"] in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(tool["name"])
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in _TOOL_CHOICES:
        raise Refused(f"tool_choice: Input tag {kind!r} does not match any of the expected tags")
    if not names and kind != "none":
        raise Refused("tool_choice: `tool_choice` may only be specified while providing `tools`.")
    if kind == "tool" and choice.get("name") not in names:
        raise Refused(f"Tool '{choice.get('name')}' not found in provided tools")


def _check_marks(body: Mapping[str, Any]) -> None:
    """At most four marks, that for the whole request included; every one of an hour before those of five minutes."""
    marks = list(_marks(body))
    if body.get("cache_control") is not None:
        marks.append(("", body["cache_control"]))
    if len(marks) > MAX_BREAKPOINTS:
        raise Refused(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marks)}."
        )
    short = False
    for path, mark in marks:
        if (
            not isinstance(mark, dict)
            or mark.get("type") != "ephemeral"
            or mark.get("ttl", "5m") not in SECONDS
        ):
            raise Refused(
                f"{path}.cache_control: Input should be {{'type': 'ephemeral', 'ttl': '5m' or '1h'}}"
            )
        if mark.get("ttl") == "1h" and short:
            raise Refused(
                f"{path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )
        short = short or mark.get("ttl", "5m") == "5m"


def _marks(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    system = body.get("system")
    places: list[tuple[str, Any]] = [(f"tools.{i}", t) for i, t in enumerate(body.get("tools") or ())]
    places += [(f"system.{i}", part) for i, part in enumerate(system if isinstance(system, list) else ())]
    for i, message in enumerate(body["messages"]):
        content = message["content"]
        for j, part in enumerate(content if isinstance(content, list) else ()):
            path = f"messages.{i}.content.{j}"
            inner = part.get("content") if part.get("type") == "tool_result" else None
            places += [
                (f"{path}.content.{k}", p) for k, p in enumerate(inner if isinstance(inner, list) else ())
            ]
            places.append((path, part))
    for path, block in places:
        if isinstance(block, dict) and block.get("cache_control") is not None:
            if block.get("type") == "text" and not block.get("text"):
                raise Refused(f"{path}: cache_control cannot be set for empty text blocks")
            yield path, block["cache_control"]

"""Keeps a prompt's prefix the same from request to request: tools and schemas in one order, clocks moved out; pure.

Both are reversible (:func:`restore`). The request's key and scope are made of what the client wrote, never of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from stratacache.policy.prompt.segments import MARK, Form, Segment
from stratacache.policy.prompt.volatile import volatile_in
from stratacache.types import JSON

_NOTE: Final = "(For the system prompt:"
_NOTE_ZH: Final = "（系统提示中的值："
_NOTES: Final = tuple(f'{{"text":"{note}'.encode() for note in (_NOTE, _NOTE_ZH))
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})

# JSON Schema 2020-12: keywords whose value is a schema, a list of schemas, a schema by name. All else is a value.
_SCHEMA: Final = frozenset(
    {
        "items",
        "additionalProperties",
        "additionalItems",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contentSchema",
    }
)
_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class Options(msgspec.Struct, frozen=True, gc=False):
    """``canonicalise`` orders tools and schemas; ``relocate_volatile`` moves volatile text out of the system prompt."""

    canonicalise: bool = False
    relocate_volatile: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False):
    """``text`` was at ``path`` (members and positions from the body on), where ``placeholder`` now stands."""

    path: tuple[str | int, ...]
    placeholder: str
    text: str


class Changes(msgspec.Struct, frozen=True, gc=False):
    """What :func:`stabilise` did. ``tools`` are the client's, None when they stand as they were; ``noted`` is the
    message that the moved texts went to, with its content as it was."""

    tools: JSON = None
    moved: tuple[Moved, ...] = ()
    noted: tuple[int, JSON] | None = None

    def __bool__(self) -> bool:
        return self.tools is not None or bool(self.moved)


def stabilise(body: Mapping[str, JSON], form: Form, options: Options) -> tuple[Mapping[str, JSON], Changes]:
    """``body`` with a prefix that comes again, and what was changed. ``body`` itself is not changed.

    Returned is ``body`` itself when there is nothing to do.
    """
    made, changes = body, Changes()
    tools = body.get("tools")
    if options.canonicalise and isinstance(tools, list):
        ordered = canonical_tools(tools)
        if not _same(ordered, tools):
            made, changes = {**made, "tools": ordered}, Changes(tools=tools)
    if options.relocate_volatile:
        made, changes = _relocated(made, form, changes)
    return made, changes


def restore(body: Mapping[str, JSON], changes: Changes) -> Mapping[str, JSON]:
    """The client's own body again."""
    if not changes:
        return body
    made = dict(body)
    if changes.tools is not None:
        made["tools"] = changes.tools
    if changes.noted is not None:
        index, content = changes.noted
        made["messages"] = _replaced(made["messages"], (index, "content"), content)
    for one in changes.moved:
        text = _at(made, one.path)
        made = _replaced(made, one.path, text.replace(one.placeholder, one.text, 1))
    return made


def without_note(segments: Sequence[Segment]) -> list[Segment]:
    """``segments`` of a stabilised body but for what was moved: it is in no prefix that comes again."""
    return [one for one in segments if not one.content.startswith(_NOTES)]


def canonical_tools(tools: Sequence[JSON]) -> list[JSON]:
    """Tools by name, their schemas' members in one order.

    What an order means something to stays as it is: ``enum``, ``prefixItems``, alternatives, examples and defaults;
    the schemas of tools with ``strict``, which answer in the order of their properties; and the positions of marks.
    """
    made = sorted((_canonical_tool(tool) for tool in tools), key=_tool_name)
    for i, tool in enumerate(tools):
        if isinstance(tool, Mapping) and MARK in tool and isinstance(made[i], Mapping):
            made[i] = {**made[i], MARK: tool[MARK]}
    return made


def canonical_schema(schema: JSON) -> JSON:
    """A JSON Schema with its members, its properties and its ``required`` in one order."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: _canonical_member(name, schema[name]) for name in sorted(schema)}


def _canonical_member(name: str, value: JSON) -> JSON:
    if name == "required" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return sorted(value)
    if name in _SCHEMAS and isinstance(value, list):
        return [canonical_schema(one) for one in value]
    if name in _NAMED and isinstance(value, Mapping):
        return {each: canonical_schema(value[each]) for each in sorted(value)}
    return canonical_schema(value) if name in _SCHEMA else value


def _canonical_tool(tool: JSON) -> JSON:
    if not isinstance(tool, Mapping):
        return tool
    made = {name: tool[name] for name in sorted(tool) if name != MARK}
    function = made.get("function")
    if isinstance(function, Mapping):
        made["function"] = _canonical_tool(function)
    if made.get("strict") is not True:
        for name in ("input_schema", "parameters"):
            if name in made:
                made[name] = canonical_schema(made[name])
    return made


def _tool_name(tool: JSON) -> str:
    if not isinstance(tool, Mapping):
        return ""
    function = tool.get("function")
    name = (function if isinstance(function, Mapping) else tool).get("name")
    return name if isinstance(name, str) else ""


def _same(one: JSON, other: JSON) -> bool:
    """Equal with the order of members, which ``==`` does not see."""
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def _relocated(body: Mapping[str, JSON], form: Form, changes: Changes) -> tuple[Mapping[str, JSON], Changes]:
    """Volatile text of the system prompt is told in the last message of the user instead.

    At its end, so that next turn, when the note is gone from there, all before it can be read from the cache; and
    never behind tool results, which no text may follow.
    """
    target = _last_user(body.get("messages"))
    if target is None:
        return body, changes
    made = dict(body)
    moved: list[Moved] = []
    for path, text in _system_texts(body, form):
        pieces: list[str] = []
        done = 0
        for one in volatile_in(text):
            placeholder = _placeholder(len(moved) + 1, text)
            if placeholder in text:
                continue
            moved.append(Moved(path, placeholder, one.text))
            pieces += [text[done : one.start], placeholder]
            done = one.end
        if pieces:
            made = _replaced(made, path, "".join([*pieces, text[done:]]))
    if not moved:
        return body, changes
    content = body["messages"][target]["content"]
    made["messages"] = _replaced(made["messages"], (target, "content"), _noted(content, moved))
    return made, Changes(changes.tools, tuple(moved), (target, content))


def _is_chinese(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def _placeholder(number: int, text: str) -> str:
    if _is_chinese(text):
        return f"[值{number}，见最后一条用户消息末尾]"
    return f"[value {number}, see the end of the user's last message]"


def _noted(content: JSON, moved: Sequence[Moved]) -> list[JSON]:
    parts: list[JSON] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    if all(_is_chinese(one.placeholder) for one in moved):
        lines = "\n".join(f"值{number}：{one.text}" for number, one in enumerate(moved, 1))
        return [*parts, {"type": "text", "text": f"{_NOTE_ZH}\n{lines}）"}]
    lines = "\n".join(f"value {number}: {one.text}" for number, one in enumerate(moved, 1))
    return [*parts, {"type": "text", "text": f"{_NOTE}\n{lines})"}]


def _last_user(messages: JSON) -> int | None:
    """The last message of the user that has content and no tool results."""
    if not isinstance(messages, list):
        return None
    for i in range(len(messages) - 1, -1, -1):
        one = messages[i]
        if not isinstance(one, Mapping) or one.get("role") != "user":
            continue
        content = one.get("content")
        if isinstance(content, str) and content:
            return i
        if isinstance(content, list) and content and not any(_is_result(part) for part in content):
            return i
    return None


def _is_result(part: JSON) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_result"


def _system_texts(body: Mapping[str, JSON], form: Form) -> list[tuple[tuple[str | int, ...], str]]:
    """The texts of the system prompt, each with its path."""
    if form == "messages":
        return _texts(("system",), body.get("system"))
    found = []
    for i, message in enumerate(body["messages"]):
        if not isinstance(message, Mapping) or message.get("role") not in _SYSTEM_ROLES:
            break
        found += _texts(("messages", i, "content"), message.get("content"))
    return found


def _texts(path: tuple[str | int, ...], content: JSON) -> list[tuple[tuple[str | int, ...], str]]:
    if isinstance(content, str):
        return [(path, content)]
    return [
        ((*path, j, "text"), part["text"])
        for j, part in enumerate(content if isinstance(content, list) else ())
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    ]


def _at(value: JSON, path: Sequence[str | int]) -> JSON:
    for step in path:
        value = value[step]
    return value


def _replaced(value: JSON, path: Sequence[str | int], new: JSON) -> JSON:
    """A copy of ``value`` with ``new`` at ``path``; what lies beside the path is shared."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, list):
        assert isinstance(step, int)
        return [*value[:step], _replaced(value[step], rest, new), *value[step + 1 :]]
    return {**value, step: _replaced(value[step], rest, new)}

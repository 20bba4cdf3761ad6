"""What ``stratacache lint`` reads: logs of requests, single requests, and system prompts as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from stratacache.dialects import wire
from stratacache.errors import RequestError, StrataError
from stratacache.policy.prompt.segments import Form
from stratacache.types import JSON

MAX_LINE: Final = 64 << 20
"""Bytes of one request, or of a text."""
_HOLDERS: Final = ("request", "body", "payload", "kwargs", "input")
_CONVERSATIONS: Final = (
    "conversation",
    "conversation_id",
    "session_id",
    "session",
    "thread_id",
    "x-strata-conversation",
)
_BLOCKS: Final = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})


class Prompt(msgspec.Struct, frozen=True):
    """A request's ``body`` as it stood in ``line`` (from 1); ``conversation`` is "" where the log names none."""

    line: int
    body: dict[str, Any]
    form: Form
    conversation: str = ""


class Skipped(msgspec.Struct, frozen=True):
    """A line that holds no request, and why."""

    line: int
    why: str


class UnreadableInput(StrataError):
    """The input cannot be read as what lint reads."""


def read(path: Path) -> Iterator[Prompt | Skipped]:
    """The prompts of a file in order: JSON lines, one JSON value, or the text of a system prompt.

    Raises:
        UnreadableInput: it is no text, begins like JSON and is none, or has a line of more than 64 MiB.
    """
    try:
        with path.open("rb") as file:
            first = file.read(1 << 16)
            if b"\0" in first:
                raise UnreadableInput(f"{path} is no text: it has a zero byte")
            file.seek(0)
            begin = first.removeprefix(b"\xef\xbb\xbf").lstrip()
            if not begin:
                raise UnreadableInput(f"{path} is empty")
            if begin[:1] == b"{" and _is_lines(begin):
                yield from _lines(path, file)
                return
            whole = file.read(MAX_LINE + 1)
    except OSError as error:
        raise UnreadableInput(f"{path} cannot be read: {error.strerror or error}") from None
    if len(whole) > MAX_LINE:
        raise UnreadableInput(f"{path} is longer than {MAX_LINE >> 20} MiB and no JSON lines")
    yield from _whole(path, whole.removeprefix(b"\xef\xbb\xbf"))


def _is_lines(begin: bytes) -> bool:
    """Whether the first line is an object by itself; one longer than was looked at is taken for one."""
    line, newline, _ = begin.partition(b"\n")
    if not newline and len(begin) < (1 << 16) - 1024:
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return not newline
    return True


def _lines(path: Path, file: Any) -> Iterator[Prompt | Skipped]:
    for number in range(1, 1 << 62):
        line = file.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise UnreadableInput(f"{path}: line {number} is longer than {MAX_LINE >> 20} MiB")
        if not line.isspace():
            yield _from_bytes(number, line.removeprefix(b"\xef\xbb\xbf").strip())


def _from_bytes(number: int, raw: bytes) -> Prompt | Skipped:
    try:
        value = wire.decode_body(raw)
    except RequestError as error:
        return Skipped(number, str(error))
    return _prompt(number, value)


def _whole(path: Path, raw: bytes) -> Iterator[Prompt | Skipped]:
    text = raw.strip()
    if text[:1] == b"[":
        # In an object, as the bounds of depth and number are those of a request's body.
        text = b'{"messages_or_bodies":%b}' % text
    if text[:1] == b"{":
        try:
            value = wire.decode_body(text)
        except RequestError as error:
            raise UnreadableInput(f"{path} begins like JSON, but: {error}") from None
        items = value.get("messages_or_bodies")
        if items is None:
            yield _prompt(1, value)
        elif items and all(isinstance(one, dict) and "role" in one for one in items):
            yield _prompt(1, {"messages": items})
        else:
            yield from (_prompt(i, one) for i, one in enumerate(items, 1))
        return
    try:
        yield Prompt(1, {"system": text.decode("utf-8"), "messages": []}, "messages")
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{path} is neither JSON nor UTF-8 text (byte {error.start})") from None


def _prompt(number: int, value: JSON) -> Prompt | Skipped:
    if not isinstance(value, dict):
        return Skipped(number, "it is no JSON object")
    body, conversation = _body(value)
    if body is None:
        return Skipped(number, "there are no messages and no system prompt in it")
    return Prompt(number, body, _form(value, body), conversation)


def _body(value: Mapping[str, JSON], depth: int = 3) -> tuple[dict[str, Any] | None, str]:
    """The request in a record, or in what the record holds, and the conversation that it names."""
    named = next((value[name] for name in _CONVERSATIONS if value.get(name)), "")
    conversation = str(named) if isinstance(named, str | int) else ""
    if isinstance(value.get("messages"), list) or isinstance(value.get("system"), str | list):
        return {"messages": [], **value}, conversation
    for name in _HOLDERS if depth else ():
        inner = value.get(name)
        if isinstance(inner, str) and inner[:1] == "{":
            try:
                inner = wire.decode_body(inner.encode("utf-8", "surrogatepass"))
            except RequestError:
                continue
        if isinstance(inner, dict):
            body, below = _body(inner, depth - 1)
            if body is not None:
                return body, conversation or below
    return None, conversation


def _form(record: Mapping[str, JSON], body: Mapping[str, JSON]) -> Form:
    """Anthropic's form has the system beside the messages, tools with ``input_schema`` and blocks of its own."""
    if any("/messages" in str(record.get(name, "")) for name in ("path", "endpoint", "url")):
        return "messages"
    tools = body.get("tools")
    if body.get("system") or any(
        isinstance(tool, dict) and "input_schema" in tool
        for tool in (tools if isinstance(tools, list) else ())
    ):
        return "messages"
    for message in body["messages"] if isinstance(body["messages"], list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in _BLOCKS:
                return "messages"
    return "chat"

"""Join the chunks of a streamed OpenAI chat answer to the answer that the same call gives unstreamed.

Rules, in the order of their use:

- Chunk: of ``id``, ``model`` and every field nobody knows the last value that is neither null nor "" counts;
  ``usage`` likewise (servers that report it on every chunk report running totals); ``object`` becomes
  ``chat.completion``; ``obfuscation`` is padding and dropped.
- Choice: by ``index``, in any order; the lists in ``logprobs`` are extended; of fields nobody knows lists are
  extended, objects merged, and other values replaced.
- Delta: strings are concatenated except the names in ``_WHOLE``; objects are merged by the same rules, lists
  whose items carry ``index`` item by item, other lists extended; of other values the last that is not null
  counts.
- Tool calls: see ``_Calls``.

Whatever does not fit is not guessed at: it is a ``problem``, and an answer with a problem is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.base import Heard
from stratacache.dialects.sse import DONE, Event
from stratacache.types import JSON

# strings inside a delta that servers send whole, often again and again
_WHOLE: Final = frozenset({"id", "type", "role", "index", "object", "format"})
_NULL_USAGE: Final = b',"usage":null}'
_NOT_TOP: Final = frozenset({"choices", "obfuscation", "usage"})


class Assembler:
    """One streamed answer in the making. Chunks handed in are never changed.

    Attributes:
        problem: what makes the stream unusable, in words, or None; the first problem stays.
        done: ``[DONE]`` was seen.
    """

    __slots__ = ("_choices", "_top", "_usage", "done", "problem")

    def __init__(self) -> None:
        self.problem: str | None = None
        self.done = False
        self._top: dict[str, JSON] = {}
        self._choices: dict[int, _Choice] = {}
        self._usage: JSON = None

    def take(self, event: Event, *, strip_usage: bool) -> Heard | None:
        """See ``base.Assembler``."""
        chunk = self.add_payload(event.data)
        if event.data == DONE:
            return None
        bare = without_usage(chunk, event.data) if strip_usage and chunk is not None else event.data
        return Heard(event.data, bare)

    def add_payload(self, payload: bytes) -> dict[str, JSON] | None:
        """Take an event's payload, ``[DONE]`` included; returns the decoded chunk, None if it is not one."""
        if payload == DONE:
            self.done = True
            return None
        chunk = wire.decode_answer(payload)
        self.add(chunk)
        return chunk if type(chunk) is dict else None

    def add(self, chunk: JSON) -> None:
        """Take a decoded ``chat.completion.chunk``. Never raises: sets ``problem`` instead."""
        if self.problem is not None:
            return
        if self.done:
            self.problem = "a chunk follows [DONE]"
            return
        try:
            self.problem = self._added(chunk)
        except RecursionError:
            self.problem = "a chunk is nested too deeply"

    @property
    def complete(self) -> bool:
        """Whether the stream ended as it should: no problem, ``[DONE]`` seen, every choice finished."""
        if not self.done or self.problem is not None or not self._choices:
            return False
        in_a_row = max(self._choices) == len(self._choices) - 1
        return in_a_row and all(choice.finish_reason for choice in self._choices.values())

    def result(self) -> dict[str, JSON] | None:
        """The whole ``chat.completion``, or None while (or because) the stream is not ``complete``.

        It can still be an answer that must not be stored: ``openai_chat.completeness`` decides that.
        """
        if not self.complete:
            return None
        answer = {**self._top, "object": "chat.completion"}
        answer["choices"] = [self._choices[index].result(index) for index in sorted(self._choices)]
        if self._usage is not None:
            answer["usage"] = self._usage
        return answer

    def _added(self, chunk: JSON) -> str | None:
        if type(chunk) is not dict:
            return "a chunk is not a JSON object"
        if chunk.get("error") is not None:
            return "the stream carries an error"
        top = self._top
        for key, value in chunk.items():
            if key not in top:
                if key not in _NOT_TOP:
                    top[key] = value
            elif value is not None and value != "":
                top[key] = value
        if (usage := chunk.get("usage")) is not None:
            self._usage = usage
        return self._add_choices(chunk.get("choices"))

    def _add_choices(self, choices: JSON) -> str | None:
        if choices is None:
            return None
        if type(choices) is not list:
            return "choices is not an array"
        for position, choice in enumerate(choices):
            if type(choice) is not dict:
                return "a choice is not an object"
            index = choice.get("index", position)
            if type(index) is not int or index < 0:
                return "a choice's index is not a count"
            if (known := self._choices.get(index)) is None:
                known = self._choices[index] = _Choice()
            if (problem := known.add(choice)) is not None:
                return problem
        return None


class _Choice:
    """One choice: ``texts`` holds the pieces of strings, ``fields`` every other member of the message."""

    __slots__ = ("calls", "extra", "fields", "finish_reason", "logprobs", "texts")

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.texts: dict[str, list[str]] = {}
        self.fields: dict[str, JSON] = {}
        self.calls: _Calls | None = None
        self.logprobs: dict[str, JSON] = {}
        self.extra: dict[str, JSON] = {}

    def add(self, choice: dict[str, JSON]) -> str | None:
        problem = None
        for key, value in choice.items():
            if key == "delta":
                problem = problem or self._add_delta(value)
            elif key == "finish_reason":
                problem = problem or self._add_finish(value)
            elif key == "logprobs":
                problem = problem or self._add_logprobs(value)
            elif key in ("message", "error"):
                problem = problem if value is None else f"a streamed choice holds {key}"
            elif key != "index":
                self.extra[key] = _merged(self.extra.get(key), value, key, concatenate=False)
        return problem

    def _add_delta(self, delta: JSON) -> str | None:
        if delta is None:
            return None
        if type(delta) is not dict:
            return "a delta is not an object"
        for key, value in delta.items():
            if type(value) is str and key not in _WHOLE:
                if self.fields.get(key) is not None:
                    return f"{key} is of several types"
                self.texts.setdefault(key, []).append(value)
            elif value is None:
                self.fields.setdefault(key, None)
            elif key == "tool_calls":
                if self.calls is None:
                    self.calls = _Calls()
                if (problem := self.calls.add(value)) is not None:
                    return problem
            elif key in self.texts or (key == "content" and self.fields.get(key) is not None):
                # pieces of structured content have no order that every server agrees on
                return f"{key} is of several types"
            else:
                self.fields[key] = _merged(self.fields.get(key), value, key)
        return None

    def _add_finish(self, value: JSON) -> str | None:
        if value is None or value == "":
            return None
        if type(value) is not str or self.finish_reason not in (None, value):
            return "a choice finishes for several reasons"
        self.finish_reason = value
        return None

    def _add_logprobs(self, value: JSON) -> str | None:
        if value is None:
            self.extra.setdefault("logprobs", None)
            return None
        if type(value) is not dict:
            return "logprobs is not an object"
        self.extra["logprobs"] = self.logprobs
        for key, new in value.items():
            old = self.logprobs.get(key)
            if type(old) is list and type(new) is list:
                old.extend(new)  # ours: copied below
            elif new is not None or key not in self.logprobs:
                self.logprobs[key] = list(new) if type(new) is list else new
        return None

    def result(self, index: int) -> dict[str, JSON]:
        message: dict[str, JSON] = {"role": "assistant", "content": None}
        message |= self.fields
        for key, pieces in self.texts.items():
            message[key] = "".join(pieces)
        if self.calls is not None:
            message["tool_calls"] = self.calls.result()
        message["role"] = message["role"] or "assistant"
        return {"index": index, "message": message, **self.extra, "finish_reason": self.finish_reason}


class _Call:
    __slots__ = ("arguments", "fields", "function", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self.arguments: list[str] = []
        self.function: dict[str, JSON] | None = None
        self.fields: dict[str, JSON] = {}

    def add(self, delta: dict[str, JSON]) -> str | None:
        for key, value in delta.items():
            if key == "function" and type(value) is dict:
                if (problem := self._add_function(value)) is not None:
                    return problem
            elif key == "id":
                self.fields["id"] = self.fields.get("id") or value  # some servers make up a new one each time
            elif key != "index" and not (key == "function" and value is None):
                self.fields[key] = _merged(self.fields.get(key), value, key)
        return None

    def _add_function(self, delta: dict[str, JSON]) -> str | None:
        function = self.function = self.function or {"name": "", "arguments": ""}
        begun = any(self.arguments)
        arguments = delta.get("arguments")
        if type(arguments) is str:
            self.arguments.append(arguments)
        elif arguments is not None:
            return "a tool call's arguments are not a string"
        for key, value in delta.items():
            if key == "name" and value:
                name = function["name"]
                if type(value) is not str or (begun and value != name):
                    return "a tool call's name is unclear"
                if value == name and not begun and not arguments:
                    return "a tool call's name is unclear"  # a repetition, or the name's next piece
                function["name"] = name if value == name else name + value
            elif key not in ("name", "arguments"):
                function[key] = _merged(function.get(key), value, key)
        return None

    def result(self) -> dict[str, JSON]:
        if self.function is None:
            return self.fields
        function = {**self.function, "arguments": "".join(self.arguments)}
        return {"type": "function", **self.fields, "function": function}


class _Calls:
    """A message's tool calls, found by ``index``, else by ``id``, else the last one.

    A known index with another id *and* a name opens a new call (some servers give parallel calls one index);
    with another id alone it does not (some make up an id per delta). A name that comes with neither index nor
    id after an earlier call is ambiguous, hence a problem. Names arrive whole or in pieces before the
    arguments. ``index`` is the wire's and not part of the answer.
    """

    __slots__ = ("_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def add(self, deltas: JSON) -> str | None:
        if type(deltas) is not list:
            return "tool_calls is not an array"
        for delta in deltas:
            if type(delta) is not dict:
                return "a tool call is not an object"
            index, call_id, function = delta.get("index"), delta.get("id"), delta.get("function")
            named = type(function) is dict and bool(function.get("name"))
            if index is not None and (type(index) is not int or index < 0):
                return "a tool call's index is not a count"
            if index is None and not call_id and named and self._calls:
                return "a tool call has neither index nor id"
            if (problem := self._call(index, call_id, named).add(delta)) is not None:
                return problem
        return None

    def _call(self, index: int | None, call_id: JSON, named: bool) -> _Call:
        if index is not None:
            known = self._by_index.get(index)
            known_id = known.fields.get("id") if known is not None else None
            opens = bool(call_id and known_id and named) and call_id != known_id
        else:
            known = self._calls[-1] if self._calls else None
            if call_id:
                known = next((call for call in self._calls if call.fields.get("id") == call_id), None)
            opens = False
        if known is None or opens:
            known = _Call(len(self._calls) if index is None else index)
            self._calls.append(known)
            self._by_index[known.index] = known
        return known

    def result(self) -> list[JSON]:
        return [call.result() for call in sorted(self._calls, key=lambda call: call.index)]


def _merged(old: JSON, new: JSON, key: str, *, concatenate: bool = True) -> JSON:
    """``old`` with ``new`` taken in, as a new value; see the module's rules."""
    if new is None or new == "":
        return new if old is None else old
    if old is None:
        return new
    if type(old) is dict and type(new) is dict:
        merged = dict(old)
        for name, value in new.items():
            merged[name] = _merged(merged.get(name), value, name, concatenate=concatenate)
        return merged
    if type(old) is list and type(new) is list:
        return _merged_lists(old, new, concatenate)
    if type(old) is str and type(new) is str and concatenate and key not in _WHOLE:
        return old + new
    return new


def _merged_lists(old: list[JSON], new: list[JSON], concatenate: bool) -> list[JSON]:
    if not all(type(item) is dict and type(item.get("index")) is int for item in (*old, *new)):
        return old + new
    merged = list(old)
    places = {item["index"]: place for place, item in enumerate(merged)}
    for item in new:
        place = places.get(item["index"])
        if place is None:
            places[item["index"]] = len(merged)
            merged.append(item)
        else:
            merged[place] = _merged(merged[place], item, "", concatenate=concatenate)
    return merged


def without_usage(chunk: Mapping[str, JSON], payload: bytes) -> bytes | None:
    """What a client that did not ask for usage sees of a stream chunk: None for the usage-only chunk.

    Args:
        chunk: the decoded ``payload``; not changed.
        payload: returned untouched when it has no ``usage``.
    """
    if "usage" not in chunk:
        return payload
    if chunk["usage"] is not None and not chunk.get("choices"):
        return None
    if payload.endswith(_NULL_USAGE):
        # in valid JSON these bytes at the end can only be the outermost object's last member
        return payload[: -len(_NULL_USAGE)] + b"}"
    return wire.encode({key: value for key, value in chunk.items() if key != "usage"})

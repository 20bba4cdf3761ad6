"""Streams of the Responses API: joined to the answer that the same call gives unstreamed, and cut out of one again.

The last event of a stream holds the whole answer; what went before is compared with it, and a stream whose pieces say
something else is no answer. Order and members of the events: OpenAI's API reference, "Streaming events".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.base import Heard
from stratacache.dialects.openai_replay import pieces
from stratacache.dialects.sse import Event
from stratacache.types import JSON

_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_TEXT: Final = "response.output_text.delta"
_CALLS: Final = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
_PIECES: Final = frozenset({_TEXT, *(f"{event}.delta" for _, event in _CALLS.values())})
_REASONED: Final = (
    # member of a reasoning item, the part's type, the events' names, the index that they carry
    ("summary", "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"),
    ("content", "", "response.reasoning_text", "content_index"),
)


class Assembler:
    """One streamed answer in the making. ``done``: its last event was seen."""

    __slots__ = ("_answer", "_heard", "_problem", "done")

    def __init__(self) -> None:
        self.done = False
        self._answer: dict[str, JSON] | None = None
        self._problem = False
        self._heard: dict[tuple[int, int], list[str]] = {}  # by the index of the item and of its part

    def take(self, event: Event, *, strip_usage: bool) -> Heard:
        """See ``base.Assembler``; the last event is passed on too, as it is more than a mark."""
        value = wire.decode_answer(event.data)
        if type(value) is not dict or self.done:
            self._problem = True
        else:
            self._add(value)
        return Heard(event.data, event.data)

    def result(self) -> dict[str, JSON] | None:
        """The whole ``response``, None when the stream did not end as it should."""
        if self._answer is None or self._problem or not self._agrees(self._answer):
            return None
        return self._answer

    def _add(self, event: Mapping[str, JSON]) -> None:
        kind = event.get("type")
        if kind in _LAST:
            answer = event.get("response")
            self._answer = answer if type(answer) is dict else None
            self.done = True
        elif kind == "error":
            self._problem = True
        elif kind in _PIECES:
            item, part, delta = event.get("output_index"), event.get("content_index", 0), event.get("delta")
            if type(item) is int and type(part) is int and type(delta) is str:
                self._heard.setdefault((item, part), []).append(delta)
            else:
                self._problem = True

    def _agrees(self, answer: Mapping[str, JSON]) -> bool:
        """Whether what was heard in pieces is what the last event says."""
        for (item_index, part_index), heard in self._heard.items():
            try:
                item = answer["output"][item_index]
                name = _CALLS.get(item["type"], ("",))[0]
                told = item[name] if name else item["content"][part_index]["text"]
            except (LookupError, TypeError):
                return False
            if told != "".join(heard):
                return False
        return True


def replay(answer: Mapping[str, JSON]) -> list[bytes]:
    """The payloads of the stream of ``answer``, one that ``openai_responses.completeness`` let pass; not changed."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    begun.pop("completed_at", None)
    events: list[dict[str, JSON]] = [
        {"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")
    ]
    for index, item in enumerate(answer["output"]):
        events += _item(index, item)
    # One that is cut short ends so too; it is replayed when a client waits for it, never out of a store.
    events.append({"type": f"response.{answer.get('status', 'completed')}", "response": answer})
    return [wire.encode({**event, "sequence_number": number}) for number, event in enumerate(events)]


def _item(index: int, item: Mapping[str, JSON]) -> Iterator[dict[str, JSON]]:
    yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
    place = {"item_id": item.get("id"), "output_index": index}
    kind = item["type"]
    if kind == "message":
        for number, part in enumerate(item["content"]):
            yield from _part(part, {**place, "content_index": number})
    elif kind == "reasoning":
        yield from _reasoning(item, place)
    elif kind in _CALLS:
        name, event = _CALLS[kind]
        for piece in pieces(item[name]):
            yield {"type": f"{event}.delta", **place, "delta": piece}
        yield {"type": f"{event}.done", **place, name: item[name]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _begun(item: Mapping[str, JSON]) -> dict[str, JSON]:
    """The item before its pieces."""
    begun = dict(item)
    if "status" in item:
        begun["status"] = "in_progress"
    if item["type"] in _CALLS:
        begun[_CALLS[item["type"]][0]] = ""
    for name in ("content", "summary"):
        if item.get(name):
            begun[name] = []
    return begun


def _part(part: Mapping[str, JSON], place: Mapping[str, JSON]) -> Iterator[dict[str, JSON]]:
    """One text of a message; its log probabilities go out with it in one piece."""
    if part["type"] != "output_text":
        yield {"type": "response.content_part.added", **place, "part": part}
        yield {"type": "response.content_part.done", **place, "part": part}
        return
    text, logprobs = part["text"], part.get("logprobs") or []
    begun = {**part, "text": "", **{name: [] for name in ("annotations", "logprobs") if name in part}}
    yield {"type": "response.content_part.added", **place, "part": begun}
    for piece in [text] if logprobs else pieces(text):
        yield {"type": _TEXT, **place, "delta": piece, "logprobs": logprobs}
    for number, annotation in enumerate(part.get("annotations") or ()):
        yield {
            "type": "response.output_text.annotation.added",
            **place,
            "annotation_index": number,
            "annotation": annotation,
        }
    yield {"type": "response.output_text.done", **place, "text": text, "logprobs": logprobs}
    yield {"type": "response.content_part.done", **place, "part": part}


def _reasoning(item: Mapping[str, JSON], place: Mapping[str, JSON]) -> Iterator[dict[str, JSON]]:
    for member, part_event, text_event, index_name in _REASONED:
        for number, part in enumerate(item.get(member) or ()):
            own = {**place, index_name: number}
            if part_event:
                yield {"type": f"{part_event}.added", **own, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": f"{text_event}.delta", **own, "delta": piece}
            yield {"type": f"{text_event}.done", **own, "text": part["text"]}
            if part_event:
                yield {"type": f"{part_event}.done", **own, "part": part}

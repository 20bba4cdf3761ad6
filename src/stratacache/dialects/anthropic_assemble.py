"""Join the events of a streamed Anthropic message to the message that the same call gives unstreamed.

Source: Anthropic's documentation, "Streaming messages". Blocks come one after the other; the usage of
``message_delta`` is cumulative and replaces that of ``message_start`` member by member. Whatever does not fit is not
guessed at: it is a ``problem``, and a message with a problem is no answer. Events of a kind nobody knows are one too,
for what they would have added is not in the message.
"""

from __future__ import annotations

from typing import Final

from stratacache.dialects import wire
from stratacache.dialects.base import Heard
from stratacache.dialects.sse import Event
from stratacache.types import JSON

# delta type → the member of the block that it extends
_TEXTS: Final = {"text_delta": "text", "thinking_delta": "thinking"}


class Assembler:
    """One streamed message in the making.

    Attributes:
        problem: what makes the stream unusable, in words, or None; the first problem stays.
        done: ``message_stop`` was seen.
    """

    __slots__ = ("_blocks", "_message", "_open", "done", "problem")

    def __init__(self) -> None:
        self.problem: str | None = None
        self.done = False
        self._message: dict[str, JSON] | None = None
        self._blocks: list[dict[str, JSON]] = []
        self._open: _Block | None = None

    def take(self, event: Event, *, strip_usage: bool) -> Heard | None:
        """See ``base.Assembler``. Pings are passed on too: they keep a slow answer's connection alive."""
        value = wire.decode_answer(event.data)
        kind = value.get("type") if type(value) is dict else None
        if kind == "message_stop":
            self.done = True
            return None
        if kind != "ping" and self.problem is None:
            self.problem = self._added(kind, value)
        return Heard(event.data, event.data)

    def result(self) -> dict[str, JSON] | None:
        """The whole ``message``, or None while (or because) the stream did not end as it should.

        It can still be an answer that must not be stored: ``anthropic_messages.completeness`` decides that.
        """
        message = self._message
        if not self.done or self.problem is not None or message is None or self._open is not None:
            return None
        return {**message, "content": self._blocks} if message.get("stop_reason") else None

    def _added(self, kind: JSON, event: dict[str, JSON]) -> str | None:
        if self.done:
            return "an event follows message_stop"
        if kind == "message_start":
            return self._started(event.get("message"))
        if self._message is None:
            return "the stream does not begin with message_start"
        if kind == "content_block_delta":
            block = self._open
            if block is None or event.get("index") != len(self._blocks):
                return "a delta belongs to no open block"
            return block.add(event.get("delta"))
        if kind == "content_block_start":
            block = event.get("content_block")
            if self._open is not None or event.get("index") != len(self._blocks) or type(block) is not dict:
                return "a block is out of order"
            self._open = _Block(block)
            return None
        if kind == "content_block_stop":
            return self._closed(event)
        return self._changed(event) if kind == "message_delta" else f"an event of type {str(kind)[:40]!r}"

    def _started(self, message: JSON) -> str | None:
        if self._message is not None or type(message) is not dict or message.get("content"):
            return "message_start is unclear"
        self._message = dict(message)
        return None

    def _closed(self, event: dict[str, JSON]) -> str | None:
        if self._open is None or event.get("index") != len(self._blocks):
            return "a block ends that is not open"
        block = self._open.result()
        if block is None:
            return "a tool's input is not a JSON object"
        self._blocks.append(block)
        self._open = None
        return None

    def _changed(self, event: dict[str, JSON]) -> str | None:
        delta, usage, message = event.get("delta"), event.get("usage"), self._message
        assert message is not None
        if type(delta) is not dict or not (usage is None or type(usage) is dict):
            return "message_delta is unclear"
        message.update(
            {key: value for key, value in delta.items() if value is not None or key not in message}
        )
        begun = message.get("usage")
        counted = {key: value for key, value in (usage or {}).items() if value is not None}
        message["usage"] = {**(begun if type(begun) is dict else {}), **counted}
        return None


class _Block:
    """A content block in the making: ``fields`` as it began, with what its deltas added."""

    __slots__ = ("fields", "json", "texts")

    def __init__(self, block: dict[str, JSON]) -> None:
        self.fields = dict(block)
        self.texts: dict[str, list[str]] = {}
        self.json: list[str] = []

    def add(self, delta: JSON) -> str | None:
        if type(delta) is not dict:
            return "a delta is not an object"
        kind = delta.get("type")
        if (name := _TEXTS.get(str(kind))) is not None:
            piece = delta.get(name)
            if type(piece) is not str:
                return f"{name} is not a string"
            self.texts.setdefault(name, []).append(piece)
        elif kind == "input_json_delta":
            piece = delta.get("partial_json")
            if type(piece) is not str:
                return "partial_json is not a string"
            self.json.append(piece)
        elif kind == "signature_delta":
            self.fields["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            known = self.fields.get("citations")
            self.fields["citations"] = [*(known if type(known) is list else ()), delta.get("citation")]
        else:
            return f"a delta of type {str(kind)[:40]!r}"
        return None

    def result(self) -> dict[str, JSON] | None:
        """The whole block, None when its input is no JSON object."""
        for name, pieces in self.texts.items():
            begun = self.fields.get(name)
            self.fields[name] = "".join([begun if type(begun) is str else "", *pieces])
        written = "".join(self.json)
        if written.strip():
            value = wire.decode_answer(written.encode())
            if type(value) is not dict:
                return None
            self.fields["input"] = value
        return self.fields

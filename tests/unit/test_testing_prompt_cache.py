"""The fake's prompt cache: every rule of Anthropic's documentation that a planner of breakpoints relies on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clock import FakeClock

from stratacache.testing import CacheUsage, PromptCache, minimum_of

MODEL = "claude-sonnet-4-5"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
LONG = "word " * 1000  # 1,250 tokens by the fake's tokenizer


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def body(*parts: dict[str, Any], system: Any = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"messages": [{"role": "user", "content": list(parts)}], **more}
    return made if system is None else {**made, "system": system}


class Served:
    """A cache whose answers begin at once."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cache = PromptCache(self.clock.monotonic)

    def ask(self, asked: dict[str, Any], *, model: str = MODEL, workspace: str = "w") -> CacheUsage:
        begun = self.cache.look_up(workspace, model, asked)
        self.cache.begin_answer(begun)
        assert begun.usage.total == self.cache.look_up("another", model, asked).usage.total
        return begun.usage


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-opus-5", 512),
        ("claude-sonnet-5", 1024),
        ("claude-opus-4-8", 1024),
        ("claude-opus-4-1", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-5-20251101", 4096),
        ("claude-haiku-4-5", 4096),
    ],
)
def test_minimum_by_model(model: str, tokens: int) -> None:
    assert minimum_of(model) == tokens


def test_a_marked_prefix_is_written_and_then_read(served: Served) -> None:
    asked = body(text("question"), system=[text(LONG, cache_control=MARK)])
    assert served.ask(asked) == CacheUsage(fresh=2, written_5m=1250)
    assert served.ask(asked) == CacheUsage(fresh=2, read=1250)
    assert served.ask(body(text("another"), system=[text(LONG, cache_control=MARK)])).read == 1250


def test_nothing_is_written_without_a_mark(served: Served) -> None:
    asked = body(text("question"), system=LONG)
    assert served.ask(asked) == served.ask(asked) == CacheUsage(fresh=1252)


def test_below_the_minimum_nothing_happens_and_nobody_says_so(served: Served) -> None:
    asked = body(text("question"), system=[text("short", cache_control=MARK)])
    assert served.ask(asked) == served.ask(asked) == CacheUsage(fresh=4)
    long_enough_for_sonnet = body(text("q"), system=[text(LONG, cache_control=MARK)])
    assert served.ask(long_enough_for_sonnet, model="claude-haiku-4-5").written == 0


def test_an_entry_exists_only_once_the_first_answer_has_begun(served: Served) -> None:
    asked = body(text("q"), system=[text(LONG, cache_control=MARK)])
    first = served.cache.look_up("w", MODEL, asked)
    assert served.cache.look_up("w", MODEL, asked).usage.read == 0
    served.cache.begin_answer(first)
    assert served.cache.look_up("w", MODEL, asked).usage.read == 1250


def test_workspaces_and_models_share_nothing(served: Served) -> None:
    asked = body(text("q"), system=[text(LONG, cache_control=MARK)])
    served.ask(asked)
    assert served.ask(asked, workspace="other").read == 0
    assert served.ask(asked, model="claude-sonnet-4-6").read == 0


@pytest.mark.parametrize(("mark", "seconds"), [(MARK, 300), (HOUR, 3600)])
def test_life_is_renewed_by_a_read(served: Served, mark: dict[str, Any], seconds: int) -> None:
    asked = body(text("q"), system=[text(LONG, cache_control=mark)])
    served.ask(asked)
    for _ in range(3):
        served.clock.advance(seconds - 1)
        assert served.ask(asked).read == 1250
    served.clock.advance(seconds)
    assert served.ask(asked).read == 0
    assert len(served.cache) == 1


def test_the_look_back_has_twenty_positions_with_the_breakpoint(served: Served) -> None:
    first = text(LONG, cache_control=MARK)
    served.ask(body(first))
    for more, read in ((19, 1250), (20, 0)):
        parts = [text(LONG), *[text(f"part {i}") for i in range(more - 1)], text("last", cache_control=MARK)]
        assert served.cache.look_up("w", MODEL, body(*parts)).usage.read == read


def test_what_lies_between_two_marks_cannot_be_read_alone(served: Served) -> None:
    served.ask(body(text(LONG), text("b"), text("c", cache_control=MARK)))
    assert served.ask(body(text(LONG), text("b", cache_control=MARK), text("d"))).read == 0


def test_two_lives_are_billed_apart(served: Served) -> None:
    asked = body(text(LONG, cache_control=MARK), text("q"), system=[text(LONG + "x", cache_control=HOUR)])
    first = served.ask(asked)
    assert (first.written_1h, first.written_5m, first.fresh) == (1251, 1250, 1)
    served.clock.advance(301)
    again = served.ask(asked)
    assert (again.read, again.written_5m, again.written_1h) == (1251, 1250, 0)


TOOL = {"name": "t", "input_schema": {"type": "object", "properties": {"a": {}, "b": {}}}}
TURNED = {"name": "t", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa=="}}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, "messages"),
        ({"tools": [TURNED]}, "nothing"),
        ({"tools": [TOOL, {**TOOL, "name": "u"}]}, "nothing"),
        ({"tool_choice": {"type": "any"}}, "system"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "system"),
        ({"metadata": {"user_id": "u"}}, "messages"),
    ],
)
def test_what_voids_what(served: Served, change: dict[str, Any], kept: str) -> None:
    parts = [text(LONG, cache_control=MARK), text("q")]
    asked = body(*parts, system=[text(LONG, cache_control=MARK)], tools=[TOOL])
    written = served.ask(asked)
    read = served.ask({**asked, **change}).read
    expected = {"nothing": 0, "system": written.written - 1250, "messages": written.written}
    assert read == expected[kept]


def test_an_image_voids_the_messages(served: Served) -> None:
    system = [text(LONG, cache_control=MARK)]
    served.ask(body(text(LONG, cache_control=MARK), text("q"), system=system))
    assert served.ask(body(text(LONG, cache_control=MARK), IMAGE, system=system)).read == 1250


def test_the_automatic_mark_is_on_the_last_block(served: Served) -> None:
    asked = body(text(LONG), text("q"), cache_control=MARK)
    assert served.ask(asked) == CacheUsage(written_5m=1251)
    assert served.ask(asked) == CacheUsage(read=1251)


def test_marks_themselves_are_not_part_of_the_prefix(served: Served) -> None:
    served.ask(body(text(LONG, cache_control=MARK), text("q")))
    moved = body(text(LONG), text("q", cache_control=MARK))
    assert served.ask(moved) == CacheUsage(read=1250, written_5m=1)

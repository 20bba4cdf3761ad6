"""The fake's model of OpenAI's prompt cache: every rule that keys and breakpoints rely on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clock import FakeClock
from tests.prompt_kit import user, words

from stratacache.testing import OpenAICache, OpenAIUsage
from stratacache.testing.openai import check

OLD, NEW = "gpt-4.1", "gpt-5.6"
SYSTEM = words(2000, "policy")
POINT = {"mode": "explicit"}


def chat(model: str, *messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "system", "content": SYSTEM}, *messages], **more}


def pointed(text: str, **mark: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "prompt_cache_breakpoint": {**POINT, **mark}}]


class Served:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cache = OpenAICache(self.clock.monotonic)

    def ask(self, body: dict[str, Any], owner: str = "o") -> OpenAIUsage:
        assert check(body) is None
        return self.cache.serve(owner, body)


@pytest.fixture
def served() -> Served:
    return Served()


def test_older_models_find_common_prefixes_in_steps_of_128(served: Served) -> None:
    assert served.ask(chat(OLD, user("one"))).read == 0
    read = served.ask(chat(OLD, user("another"))).read
    assert read >= 2000
    assert (read - 1024) % 128 == 0
    assert served.ask(chat(OLD, user("a third")), owner="other").read == 0


def test_short_prompts_are_not_cached(served: Served) -> None:
    body = {"model": OLD, "messages": [user(words(700))]}
    assert [served.ask(body).read for _ in range(2)] == [0, 0]


def test_entries_die_of_idleness(served: Served) -> None:
    served.ask(chat(OLD, user("one")))
    served.clock.advance(601)
    assert served.ask(chat(OLD, user("one"))).read == 0


def test_prefix_and_key_decide_on_the_machine(served: Served) -> None:
    served.ask(chat(OLD, user("one"), prompt_cache_key="a"))
    assert served.ask(chat(OLD, user("one"), prompt_cache_key="b")).read == 0
    assert served.ask(chat(OLD, user("one"), prompt_cache_key="a")).read > 0


def test_more_than_fifteen_a_minute_spill_over_to_a_machine_that_has_nothing(served: Served) -> None:
    reads = [served.ask(chat(OLD, user(f"question {i}"))).read > 0 for i in range(17)]
    assert reads == [False] + [True] * 14 + [False, True]
    served.clock.advance(61)
    assert served.ask(chat(OLD, user("later"))).read > 0


def test_newer_models_find_nothing_between_breakpoints(served: Served) -> None:
    first = served.ask(chat(NEW, user("one")))
    assert (first.read, first.written) == (0, first.prompt)
    assert served.ask(chat(NEW, user("another"))).read == 0
    longer = served.ask(chat(NEW, user("one"), {"role": "assistant", "content": "a"}, user("two")))
    assert longer.read == first.prompt


def test_an_explicit_breakpoint_shares_the_system_prompt(served: Served) -> None:
    body = {"model": NEW, "messages": [{"role": "system", "content": pointed(SYSTEM)}, user("one")]}
    served.ask(body)
    assert served.ask({**body, "messages": [body["messages"][0], user("another")]}).read > 2000


def test_without_breakpoints_the_explicit_mode_writes_nothing(served: Served) -> None:
    body = chat(NEW, user("one"), prompt_cache_options={"mode": "explicit"})
    assert [served.ask(body) for _ in range(2)] == [OpenAIUsage(served.ask(body).prompt, 0, 0)] * 2


def test_the_latest_breakpoints_are_written_and_live_as_long_as_they_say(served: Served) -> None:
    parts = [part for i in range(6) for part in pointed(words(1100, f"part {i}"), ttl="12h")]
    served.ask({"model": NEW, "messages": [user(parts)], "prompt_cache_options": {"mode": "explicit"}})
    (machine,) = served.cache.machines.values()
    assert len(machine.entries) == 4
    served.clock.advance(11 * 3600)
    assert served.ask({"model": NEW, "messages": [user(parts)]}).read > 6000


@pytest.mark.parametrize(
    "body",
    [
        chat(OLD, user(pointed("q"))),
        chat("gpt-5.5", user("q"), prompt_cache_options={"mode": "explicit"}),
        chat(NEW, user("q"), prompt_cache_options={}, prompt_cache_retention="24h"),
        chat(NEW, user(pointed("q", ttl="1h"))),
        chat(OLD, user("q"), prompt_cache_key="k" * 65),
        {"model": OLD, "messages": []},
        {"messages": [user("q")]},
    ],
)
def test_what_the_api_refuses(body: dict[str, Any]) -> None:
    refused = check(body)
    assert refused is not None
    assert refused.status == 400

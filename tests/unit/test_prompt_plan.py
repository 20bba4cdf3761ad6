"""The planner of breakpoints: where, for how long, and when not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.prompt_kit import CLAUDE, HOUR, MARK, Tier, asked, assistant, marks_in, tool, user, words

from stratacache.policy.fields import CHAT

SYSTEM = words(2000, "policy")
TOOLS = [tool("search", words(800)), tool("book", words(800))]


def conversation(number: int, turns: int, **more: Any) -> dict[str, Any]:
    messages = [user(f"question {number}.0 " + words(40))]
    for turn in range(1, turns):
        messages += [assistant(f"answer {turn} " + words(40)), user(f"question {number}.{turn} " + words(40))]
    return asked(*messages, **{"system": SYSTEM, "tools": TOOLS, **more})


def test_a_conversation_is_read_up_to_its_last_turn() -> None:
    tier = Tier()
    _, first = tier.ask(conversation(0, 1))
    assert first.read == 0
    assert first.fresh == 0
    for turns in range(2, 8):
        before = tier.cache.look_up("w", CLAUDE, conversation(0, turns)).usage.total
        tier.clock.advance(20)
        _, usage = tier.ask(conversation(0, turns))
        assert usage.read > 0.8 * before
        assert usage.fresh == 0


def test_another_conversation_reads_tools_and_system() -> None:
    tier = Tier()
    tier.ask(conversation(0, 1))
    tier.clock.advance(5)
    prepared, usage = tier.ask(conversation(1, 1))
    assert usage.read > 3000
    assert tier.counts.reads == {"none": 1, "as_expected": 1}
    assert [mark.part for mark in prepared.plan.marks] == ["system", "messages"]


def test_tools_that_another_agent_shares_are_read() -> None:
    tier = Tier()
    tier.ask(conversation(0, 1))
    tier.clock.advance(5)
    _, usage = tier.ask(conversation(0, 1, system=words(2000, "another policy")))
    assert usage.read > 1500


def test_below_the_minimum_nothing_is_marked() -> None:
    tier = Tier()
    body = asked(user("Hi!"), system="Be brief.")
    prepared = tier.prepare(body)
    assert prepared.body is body
    assert prepared.plan.decision == "short"
    assert "1024" in prepared.plan.why


@pytest.mark.parametrize(
    ("model", "marked"), [("claude-opus-5", True), (CLAUDE, False), ("claude-haiku-4-5", False)]
)
def test_the_minimum_is_that_of_the_model(model: str, marked: bool) -> None:
    prepared = Tier().prepare(asked(user(words(50)), system=words(700), model=model))
    assert (prepared.plan.decision == "marked") is marked


def test_a_clock_behind_the_rules_costs_only_what_follows_it() -> None:
    """The stable block of a system prompt is found though nothing ended there before."""
    tier = Tier()
    for number in range(40):
        tier.clock.advance(20)
        system = [{"type": "text", "text": text} for text in (SYSTEM, f"It is {number} o'clock.")]
        prepared, usage = tier.ask(asked(user(f"question {number}"), system=system))
    assert usage.read > 2000
    assert [mark.position for mark in prepared.plan.marks] == [0]


def test_notes_that_are_only_in_the_last_message_do_not_hide_the_history() -> None:
    """What was looked up for a question is sent with it, and never again: each turn parts from the one before."""
    tier = Tier()
    history: list[Any] = []
    for turn in range(20):
        tier.clock.advance(20)
        question = user(f"question {turn} " + words(150))
        notes = user(
            [{"type": "text", "text": f"notes {turn}"}, {"type": "text", "text": f"question {turn}"}]
        )
        _, usage = tier.ask(asked(*history, notes, system=SYSTEM))
        history += [question, assistant(f"answer {turn} " + words(150))]
    assert usage.read > 0.8 * usage.total


def test_prompts_that_never_come_again_are_not_marked_for_long() -> None:
    """The clock in the system prompt: each request is written at 1.25 and read by nobody, until that is known."""
    tier = Tier()
    decisions = []
    for number in range(60):
        tier.clock.advance(7)
        body = asked(user(f"question {number}"), system=f"It is {number} o'clock. {SYSTEM}")
        decisions.append(tier.prepare(body).plan.decision)
    assert decisions[:3] == ["marked"] * 3
    assert decisions[-30:] == ["no_gain"] * 30
    told = tier.tier.explain(tier.request(body), {**body, "system": f"It is late. {SYSTEM}"})
    assert told["outcome"] == "no_gain"
    assert "would cost more to write than it saves" in told["reason"]
    assert told["marks"] == []


def test_a_prompt_that_does_come_again_is_marked_among_those() -> None:
    tier = Tier()
    for number in range(60):
        tier.clock.advance(7)
        tier.prepare(asked(user(f"question {number}"), system=f"It is {number} o'clock. {SYSTEM}"))
        prepared = tier.prepare(asked(user(f"question {number} " + words(20)), system=SYSTEM))
    assert [mark.part for mark in prepared.plan.marks] == ["system"]


def test_gaps_of_ten_minutes_take_the_hour_and_gaps_of_hours_nothing() -> None:
    for gap, ttls in ((20.0, {"5m"}), (600.0, {"1h"}), (3 * 3600.0, set())):
        tier = Tier()
        for number in range(40):
            tier.clock.advance(gap)
            prepared, _ = tier.ask(asked(user(f"question {number}"), system=SYSTEM))
        assert {mark.ttl for mark in prepared.plan.marks} == ttls, gap


def test_an_hour_is_never_after_five_minutes() -> None:
    """Conversations of quick turns that begin every quarter of an hour: the system lives an hour, their ends do not."""
    tier = Tier()
    seen = set()
    for number in range(30):
        tier.clock.advance(900)
        for turns in range(1, 6):
            tier.clock.advance(10)
            prepared, _ = tier.ask(conversation(number, turns))
            ttls = [mark.ttl for mark in prepared.plan.marks]
            assert ttls == sorted(ttls)  # "1h" < "5m"
            seen |= set(ttls)
    assert seen == {"1h", "5m"}


def test_a_turn_of_thirty_tool_results_is_still_found() -> None:
    """Further than the provider looks back from the end: the mark at the last known end finds it."""
    tier = Tier()
    tier.ask(conversation(0, 2))
    calls = [{"type": "tool_use", "id": f"t{i}", "name": "search", "input": {"n": i}} for i in range(30)]
    results = [{"type": "tool_result", "tool_use_id": f"t{i}", "content": f"result {i}"} for i in range(30)]
    body = conversation(0, 2)
    body["messages"] += [assistant(calls), user(results)]
    tier.clock.advance(10)
    _, usage = tier.ask(body)
    assert usage.read > 3800
    assert usage.fresh == 0


def test_a_process_that_saw_nothing_of_a_long_history_finds_it_by_its_anchors() -> None:
    one, other = Tier(), Tier()
    other.cache, other.clock = one.cache, one.clock
    other.tier._clock = one.clock  # type: ignore[assignment]
    blocks = [{"type": "text", "text": f"note {i} " + words(30)} for i in range(40)]
    one.ask(asked(user(blocks), system=SYSTEM))
    one.clock.advance(10)
    more = [{"type": "text", "text": f"more {i}"} for i in range(25)]
    prepared, usage = other.ask(asked(user([*blocks, *more]), system=SYSTEM))
    assert usage.read > 3000
    positions = [mark.position for mark in prepared.plan.marks]
    assert len(positions) <= 4
    assert all(position % 15 == 0 for position in positions[1:-1])


def test_the_clients_own_marks_stay_as_they_are() -> None:
    tier = Tier()
    system = [{"type": "text", "text": SYSTEM, "cache_control": HOUR}]
    for body in (asked(user("q"), system=system), asked(user("q"), system=SYSTEM, cache_control=MARK)):
        prepared = tier.prepare(body)
        assert prepared.body is body
        assert prepared.plan.decision == "own_marks"


def test_thoughts_empty_blocks_and_deferred_tools_carry_no_mark() -> None:
    tier = Tier()
    thought = {"type": "thinking", "thinking": words(50), "signature": "c2ln"}
    deferred = {**tool("later", words(900)), "defer_loading": True}
    body = asked(user(words(50)), assistant([thought]), tools=[*TOOLS, deferred], system=[])
    prepared = tier.prepare(body)
    assert len(marks_in(prepared.body)) == 1
    assert prepared.body["messages"][0]["content"][0]["cache_control"] == MARK


def test_plans_of_a_tenant_do_not_depend_on_others() -> None:
    tier = Tier()
    for number in range(60):
        tier.clock.advance(7)
        tier.prepare(asked(user("q"), system=f"It is {number} o'clock. {SYSTEM}"), tenant="noisy")
    body = asked(user("q"), system=SYSTEM)
    assert tier.prepare(body, tenant="quiet").plan == Tier().prepare(body, tenant="quiet").plan


def test_a_refused_model_gets_no_marks_for_an_hour() -> None:
    tier = Tier()
    body = conversation(0, 1)
    tier.tier.refused(tier.request(body), tier.prepare(body))
    assert tier.prepare(body).plan.decision == "refused"
    assert tier.prepare({**body, "model": "claude-opus-5"}).plan.decision == "marked"
    tier.clock.advance(3601)
    assert tier.prepare(body).plan.decision == "marked"


def test_a_fault_in_planning_leaves_the_request_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("stratacache.tiers.prompt.sketch", fail)
    tier = Tier()
    body = conversation(0, 1)
    assert tier.prepare(body).body is body
    assert tier.counts.decisions == {("anthropic", "failed"): 1}


def chat(model: str, *messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "system", "content": SYSTEM}, *messages], **more}


def test_an_openai_key_stays_with_a_conversation_and_tells_nothing() -> None:
    tier = Tier("openai", CHAT)
    keys = [
        tier.prepare(chat("gpt-4.1", user("q"), *more)).body["prompt_cache_key"]
        for more in ((), (assistant("a"), user("b")))
    ]
    assert keys[0] == keys[1]
    assert len(keys[0]) <= 64
    assert tier.prepare(chat("gpt-4.1", user("q")), tenant="other").body["prompt_cache_key"] != keys[0]
    own = chat("gpt-4.1", user("q"), prompt_cache_key="mine")
    assert tier.prepare(own).body is own


def test_keys_are_spread_when_one_would_get_more_than_its_rate() -> None:
    tier = Tier("openai", CHAT)
    slow, fast = set(), set()
    for number in range(20):
        tier.clock.advance(10)
        slow.add(tier.prepare(chat("gpt-4.1", user(f"question {number}"))).body["prompt_cache_key"])
    for number in range(200):
        tier.clock.advance(0.5)
        fast.add(tier.prepare(chat("gpt-4.1", user(f"question {number}"))).body["prompt_cache_key"])
    assert len(slow) == 1
    assert 6 <= len(fast) <= 8


def test_breakpoints_go_to_models_that_take_them_only() -> None:
    old, new = Tier("openai", CHAT), Tier("openai", CHAT)
    assert "prompt_cache_breakpoint" not in str(old.prepare(chat("gpt-5", user("q"))).body)
    new.prepare(chat("gpt-5.6", user("first")))
    new.clock.advance(5)
    body = new.prepare(chat("gpt-5.6", user("second"))).body
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": SYSTEM, "prompt_cache_breakpoint": {"mode": "explicit"}}
    ]
    assert "prompt_cache_options" not in body


def test_prompts_that_never_come_again_are_not_written_at_all_where_that_can_be_said() -> None:
    tier = Tier("openai", CHAT)
    for number in range(60):
        tier.clock.advance(7)
        prepared = tier.prepare({"model": "gpt-5.6", "messages": [user(f"{number} " + words(2000))]})
    assert prepared.body["prompt_cache_options"] == {"mode": "explicit"}
    assert prepared.plan.marks == ()
    assert prepared.plan.gain > 0


def test_qwen_takes_marks_in_the_chat_form_where_they_beat_its_own_cache() -> None:
    tier = Tier("qwen", CHAT)
    for number in range(20):
        tier.clock.advance(20)
        prepared = tier.prepare(chat("qwen-max", user(f"question {number}")))
    assert prepared.body["messages"][0]["content"] == [
        {"type": "text", "text": SYSTEM, "cache_control": MARK}
    ]
    first = Tier("qwen", CHAT).prepare(chat("qwen-max", user("question")))
    assert first.plan.decision == "no_gain"


@pytest.mark.parametrize("provider", ["gemini", "deepseek", "bedrock"])
def test_providers_that_take_no_marks_get_none(provider: str) -> None:
    tier = Tier(provider, CHAT)
    body = chat("some-model", user("q"))
    assert tier.prepare(body).body is body
    assert tier.counts.decisions == {(provider, "automatic"): 1}


def test_marks_of_one_api_are_not_put_into_requests_of_another() -> None:
    """Anthropic's chat endpoint knows no cache_control."""
    tier = Tier("anthropic", CHAT)
    body = chat(CLAUDE, user("q"))
    assert tier.prepare(body).body is body
    assert tier.counts.decisions == {("anthropic", "unknown"): 1}

"""Stable prefixes: what is changed can be restored, and what is switched off changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stratacache.policy.prompt.segments import segments_of
from stratacache.policy.prompt.stable import Options, canonical_schema, canonical_tools, restore, stabilise

encode = msgspec.json.encode

words = st.sampled_from(
    [
        "You help.",
        "Now: 2026-12-03T14:05:12.919Z",
        "今天是2026年12月3日。",
        "User: Anna Smith\n",
        "用户：张三\n",
        "request id: ab12-cd34",
        "[value 1, see the end of the user's last message]",
        "Be brief.",
        " ",
        "\n",
        "",
    ]
)
texts = st.lists(words, max_size=6).map("".join)
names = st.sampled_from(["a", "b", "c", "enum", "required", "properties", "items"])
leaves = st.one_of(st.none(), st.booleans(), st.integers(0, 3), texts)
schemas: Any = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "properties", "required", "enum", "anyOf", "items", "default", "x"]),
            st.one_of(inner, st.dictionaries(names, inner, max_size=3), st.lists(names, max_size=3)),
            max_size=4,
        ),
    ),
    max_leaves=8,
)
marks = st.one_of(st.just({}), st.just({"cache_control": {"type": "ephemeral"}}))
bare_tools = st.builds(
    lambda name, schema, strict, mark: {"name": name, "input_schema": schema, **strict, **mark},
    names,
    schemas,
    st.sampled_from([{}, {"strict": True}]),
    marks,
)
tools = st.lists(
    st.one_of(bare_tools, bare_tools.map(lambda t: {"type": "function", "function": t}), leaves), max_size=4
)
contents = st.one_of(
    texts,
    st.none(),
    st.lists(
        st.one_of(
            texts.map(lambda t: {"type": "text", "text": t}),
            texts.map(lambda t: {"type": "tool_result", "content": t}),
            leaves,
        ),
        max_size=3,
    ),
)
messages = st.lists(
    st.one_of(
        leaves,
        st.builds(
            lambda role, content: {"role": role, "content": content},
            st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
            contents,
        ),
    ),
    max_size=6,
)
bodies = st.fixed_dictionaries({"messages": messages}, optional={"tools": tools, "system": contents})
forms = st.sampled_from(["messages", "chat"])
options = st.builds(Options, canonicalise=st.booleans(), relocate_volatile=st.booleans())


@given(bodies, forms, options)
def test_what_was_changed_is_restored_byte_for_byte(body: Any, form: Any, chosen: Options) -> None:
    before = encode(body)
    made, changes = stabilise(body, form, chosen)
    assert encode(body) == before
    assert encode(restore(made, changes)) == before
    assert bool(changes) == (encode(made) != before)


@given(bodies, forms)
def test_switched_off_it_is_the_client_s_own_body(body: Any, form: Any) -> None:
    made, changes = stabilise(body, form, Options())
    assert made is body
    assert not changes


@given(bodies, forms)
def test_a_stable_body_stays_as_it_is(body: Any, form: Any) -> None:
    ordered, _ = stabilise(body, form, Options(canonicalise=True))
    again, changes = stabilise(ordered, form, Options(canonicalise=True))
    assert again is ordered
    assert not changes


def shuffled(value: Any, draw: Any) -> Any:
    """As a client may serialise the same schema next time: members and ``required`` in another order."""
    if isinstance(value, dict):
        items = [(k, shuffled(v, draw)) for k, v in value.items()]
        return dict(draw(st.permutations(items)))
    return value


@given(st.data(), st.lists(bare_tools, max_size=3, unique_by=lambda t: t["name"]))
def test_the_same_tools_in_another_order_have_one_form(data: Any, given_tools: Any) -> None:
    given_tools = [
        {"name": t["name"], "input_schema": plain(t["input_schema"])} for t in given_tools
    ]  # no marks: positions of their own; no enum: it keeps its members
    other = data.draw(st.permutations([shuffled(t, data.draw) for t in given_tools]))
    assert encode(canonical_tools(other)) == encode(canonical_tools(given_tools))


def plain(schema: Any) -> Any:
    """A schema of nested objects only, with the names of ``schema``."""
    if not isinstance(schema, dict):
        return {"type": "string"}
    return {
        "type": "object",
        "properties": {k: plain(v) for k, v in schema.items()},
        "required": list(schema),
    }


@given(schemas)
def test_enums_keep_their_order_wherever_they_are(schema: Any) -> None:
    assert encode(enums(canonical_schema(schema))) == encode(enums(schema))


def enums(schema: Any) -> Any:
    """By path, the values under ``enum`` of objects that are schemas (not of properties that are called so)."""
    if not isinstance(schema, dict):
        return []
    own = [["enum", schema["enum"]]] if "enum" in schema else []
    below = schema.get("properties")
    inner = [[k, enums(below[k])] for k in sorted(below)] if isinstance(below, dict) else []
    return own + inner


@given(
    st.sampled_from(["messages", "chat"]), st.lists(st.integers(10, 59), min_size=2, max_size=2, unique=True)
)
def test_a_clock_in_the_system_prompt_no_longer_parts_the_prefix(form: Any, minutes: list[int]) -> None:
    first, second = (
        segments_of(stabilise(_clocked(form, minute), form, Options(relocate_volatile=True))[0], form)
        for minute in minutes
    )
    assert first[:-1] == second[:-1]
    assert first[-1].content != second[-1].content


def _clocked(form: str, minute: int) -> dict[str, Any]:
    text = f"Current time: 2026-12-03T14:{minute}:12.919Z\nYou help."
    asked = {"role": "user", "content": "Hi"}
    if form == "messages":
        return {"system": text, "messages": [asked]}
    return {"messages": [{"role": "system", "content": text}, asked]}

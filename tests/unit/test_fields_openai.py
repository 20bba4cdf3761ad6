"""Every field of the OpenAI chat request is classed; a new SDK field fails here until somebody decides."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from openai.types.chat import completion_create_params as params

from stratacache.policy.fields import (
    BYPASS_REASONS,
    CHAT,
    FieldClass,
    bypass_reason,
    classify,
    dialect,
    irrelevant_fields,
)

IN_KEY, IRRELEVANT, BYPASSES = FieldClass.IN_KEY, FieldClass.IRRELEVANT, FieldClass.BYPASSES

DECIDED: dict[str, FieldClass] = {
    "audio": BYPASSES,
    "frequency_penalty": IN_KEY,
    "function_call": IN_KEY,
    "functions": IN_KEY,
    "logit_bias": IN_KEY,
    "logprobs": IN_KEY,
    "max_completion_tokens": IN_KEY,
    "max_tokens": IN_KEY,
    "messages": IN_KEY,
    "metadata": IRRELEVANT,
    "modalities": BYPASSES,
    "model": BYPASSES,  # in the key, resolved; names of models that search the web bypass
    "moderation": IN_KEY,
    "n": IN_KEY,
    "parallel_tool_calls": IN_KEY,
    "prediction": IN_KEY,
    "presence_penalty": IN_KEY,
    "prompt_cache_key": IRRELEVANT,
    "prompt_cache_options": IRRELEVANT,
    "prompt_cache_retention": IRRELEVANT,
    "reasoning_effort": IN_KEY,
    "response_format": IN_KEY,
    "safety_identifier": IRRELEVANT,
    "seed": IN_KEY,
    "service_tier": IN_KEY,  # "fast" may be another deployment, and the answer reports the tier
    "stop": IN_KEY,
    "store": BYPASSES,
    "stream": IRRELEVANT,
    "stream_options": IRRELEVANT,
    "temperature": IN_KEY,
    "tool_choice": IN_KEY,
    "tools": BYPASSES,  # in the key; tools that the provider runs bypass
    "top_logprobs": IN_KEY,
    "top_p": IN_KEY,
    "user": IRRELEVANT,
    "verbosity": IN_KEY,
    "web_search_options": BYPASSES,
}

# vLLM, SGLang, Ollama, LiteLLM and aggregators. Anything else unknown is in the key as well.
KNOWN_EXTRAS = (
    "top_k min_p repetition_penalty length_penalty typical_p top_a mirostat stop_token_ids min_tokens ignore_eos"
    " best_of use_beam_search skip_special_tokens spaces_between_special_tokens include_stop_str_in_output"
    " guided_json guided_regex guided_choice guided_grammar guided_decoding_backend structured_outputs regex"
    " ebnf json_schema chat_template chat_template_kwargs add_generation_prompt continue_final_message echo"
    " documents add_special_tokens prompt_logprobs truncate_prompt_tokens mm_processor_kwargs logits_processors"
    " bad_words allowed_token_ids cache_salt priority return_token_ids num_ctx num_predict keep_alive format"
    " options think enable_thinking thinking thinking_budget reasoning include_reasoning separate_reasoning"
    " lora_path custom_logit_processor return_hidden_states provider models route transforms fallbacks"
    " drop_params guardrails instructions a_field_of_next_year"
)
EXTRAS: dict[str, FieldClass] = {
    **dict.fromkeys(KNOWN_EXTRAS.split(" "), IN_KEY),
    "request_id": IRRELEVANT,
    "rid": IRRELEVANT,
    "kv_transfer_params": BYPASSES,
    "session_params": BYPASSES,
    "plugins": BYPASSES,
    "search_parameters": BYPASSES,
    "enable_search": BYPASSES,
    "api_key": BYPASSES,
}


def sdk_fields() -> set[str]:
    variants: list[Any] = [params.CompletionCreateParamsNonStreaming, params.CompletionCreateParamsStreaming]
    return {name for variant in variants for name in get_type_hints(variant)}


def test_every_field_of_the_sdk_is_decided() -> None:
    assert sdk_fields() - DECIDED.keys() == set(), "class these in policy/fields.py and here"


@pytest.mark.parametrize(("field", "expected"), [*DECIDED.items(), *EXTRAS.items()])
def test_the_class_is_the_one_decided(field: str, expected: FieldClass) -> None:
    assert classify(CHAT, field) is expected


def test_nothing_is_left_out_of_the_key_but_what_is_decided() -> None:
    decided = {**DECIDED, **EXTRAS}
    assert irrelevant_fields(CHAT) == {f for f, c in decided.items() if c is IRRELEVANT}


def test_every_exception_has_its_reason() -> None:
    classes = dialect(CHAT)
    assert all(len(proof) > 20 and "\n" not in proof for proof in classes.irrelevant.values())
    assert all(len(rule.why) > 20 and "\n" not in rule.why for rule in classes.bypasses.values())
    assert not classes.irrelevant.keys() & classes.bypasses.keys()


def test_of_an_unknown_endpoint_nothing_is_proved() -> None:
    assert irrelevant_fields("telepathy") == frozenset()
    assert classify("telepathy", "stream") is IN_KEY
    assert bypass_reason("telepathy", {"store": True}) is None


FUNCTION = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("store", True, "stored_upstream"),
        ("store", False, None),
        ("store", None, None),
        ("web_search_options", {}, "live_search"),
        ("web_search_options", None, None),
        ("search_parameters", {"mode": "auto"}, "live_search"),
        ("enable_search", True, "live_search"),
        ("enable_search", False, None),
        ("plugins", [{"id": "web"}], "live_search"),
        ("model", "gpt-4o-search-preview-2025-03-11", "live_search"),
        ("model", "vendor/model:online", "live_search"),
        ("model", "gpt-4o", None),
        ("audio", {"voice": "alloy", "format": "mp3"}, "audio_output"),
        ("audio", None, None),
        ("modalities", ["text"], None),
        ("modalities", ["text", "audio"], "audio_output"),
        ("tools", [FUNCTION], None),
        ("tools", [], None),
        ("tools", None, None),
        ("tools", [{"type": "custom", "custom": {"name": "c"}}], None),
        ("tools", [FUNCTION, {"type": "web_search_preview"}], "hosted_tool"),
        ("tools", [{"type": "code_interpreter"}], "hosted_tool"),
        ("tools", [{"google_search": {}}], "hosted_tool"),
        ("tools", ["f"], "hosted_tool"),
        ("tools", "f", "hosted_tool"),
        ("kv_transfer_params", {"do_remote_decode": True}, "engine_state"),
        ("session_params", {"id": "s"}, "engine_state"),
        ("api_key", "sk-x", "credential_in_body"),
        ("vertex_credentials", "{}", "credential_in_body"),
        ("temperature", 2, None),
    ],
)
def test_what_must_not_be_cached(field: str, value: Any, reason: str | None) -> None:
    body = {"model": "m", "messages": [], field: value}
    assert bypass_reason(CHAT, body) == reason
    assert reason is None or reason in BYPASS_REASONS


def test_an_alias_does_not_hide_a_model_that_searches() -> None:
    body = {"model": "news", "messages": []}
    assert bypass_reason(CHAT, body) is None
    assert bypass_reason(CHAT, body, resolved_model="gpt-4o-mini-search-preview") == "live_search"
    assert bypass_reason(CHAT, body, resolved_model="gpt-4o-mini") is None

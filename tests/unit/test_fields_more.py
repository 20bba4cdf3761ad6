"""Every field of the OpenAI SDK's completions, responses and embeddings is classed; a new one fails here."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.responses import response_create_params

from stratacache.policy.fields import (
    BYPASS_REASONS,
    COMPLETIONS,
    EMBEDDINGS,
    RESPONSES,
    FieldClass,
    bypass_reason,
    classify,
    dialect,
)
from stratacache.types import JSON

IN_KEY, IRRELEVANT, BYPASSES = FieldClass.IN_KEY, FieldClass.IRRELEVANT, FieldClass.BYPASSES

SDK = {
    COMPLETIONS: completion_create_params.CompletionCreateParamsNonStreaming,
    RESPONSES: response_create_params.ResponseCreateParamsNonStreaming,
    EMBEDDINGS: embedding_create_params.EmbeddingCreateParams,
}
OTHERS_IN_KEY = {
    COMPLETIONS: "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed"
    " stop suffix temperature top_p",
    # what an answer repeats of its request is in the key too: a hit would tell it to others
    RESPONSES: "access_programs background_options context_management image include instructions max_output_tokens"
    " max_tool_calls metadata moderation parallel_tool_calls prompt_cache_key prompt_cache_retention reasoning"
    " safety_identifier service_tier temperature text tool_choice top_logprobs top_p truncation user",
    EMBEDDINGS: "dimensions input model",
}
DECIDED: dict[str, dict[str, FieldClass]] = {
    COMPLETIONS: dict.fromkeys(("stream", "stream_options", "user"), IRRELEVANT),
    RESPONSES: {
        **dict.fromkeys(("stream", "stream_options", "prompt_cache_options"), IRRELEVANT),
        **dict.fromkeys(
            (
                "store",
                "previous_response_id",
                "conversation",
                "prompt",
                "input",
                "background",
                "tools",
                "model",
            ),
            BYPASSES,
        ),
    },
    EMBEDDINGS: dict.fromkeys(("encoding_format", "user"), IRRELEVANT),
}
for endpoint, names in OTHERS_IN_KEY.items():
    DECIDED[endpoint] |= dict.fromkeys(names.split(), IN_KEY)


@pytest.mark.parametrize("endpoint", SDK)
def test_every_field_of_the_sdk_is_decided(endpoint: str) -> None:
    streaming = {"stream"} if endpoint != EMBEDDINGS else set()
    assert get_type_hints(SDK[endpoint]).keys() | streaming == DECIDED[endpoint].keys()


@pytest.mark.parametrize(
    ("endpoint", "field"), [(e, field) for e, fields in DECIDED.items() for field in fields]
)
def test_the_class_is_the_one_decided(endpoint: str, field: str) -> None:
    assert classify(endpoint, field) is DECIDED[endpoint][field]


@pytest.mark.parametrize("endpoint", SDK)
def test_nothing_else_is_left_out_of_the_key(endpoint: str) -> None:
    engines = {"request_id", "rid"} if endpoint == COMPLETIONS else set()
    decided = {field for field, known in DECIDED[endpoint].items() if known is IRRELEVANT}
    assert dialect(endpoint).irrelevant.keys() == decided | engines
    assert classify(endpoint, "a_field_of_next_year") is IN_KEY


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"store": False}, None),
        ({}, "stored_upstream"),
        ({"store": None}, "stored_upstream"),
        ({"store": True}, "stored_upstream"),
        ({"store": False, "previous_response_id": None}, None),
        ({"store": False, "previous_response_id": "resp_1"}, "kept_upstream"),
        ({"store": False, "conversation": {"id": "c"}}, "kept_upstream"),
        ({"store": False, "prompt": {"id": "p"}}, "kept_upstream"),
        ({"store": False, "input": [{"type": "item_reference", "id": "i"}]}, "kept_upstream"),
        ({"store": False, "input": "item_reference"}, None),
        ({"store": False, "background": True}, "stored_upstream"),
        ({"store": False, "background": False}, None),
        ({"store": False, "tools": [{"type": "function", "name": "f"}]}, None),
        ({"store": False, "tools": [{"type": "file_search"}]}, "hosted_tool"),
        ({"store": False, "model": "gpt-5-search-api"}, "live_search"),
    ],
)
def test_what_bypasses_a_response(body: dict[str, JSON], reason: str | None) -> None:
    assert bypass_reason(RESPONSES, body) == reason
    assert reason is None or reason in BYPASS_REASONS


@pytest.mark.parametrize("endpoint", [COMPLETIONS, EMBEDDINGS])
def test_a_credential_in_the_body_bypasses(endpoint: str) -> None:
    assert bypass_reason(endpoint, {"api_key": "sk"}) == "credential_in_body"

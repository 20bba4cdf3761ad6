"""OpenAI's embeddings: requests of many inputs taken apart, and answers put together again. Pure.

Every input is a request of its own to the cache; ``upstream.batches`` sends those that must be computed as one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from stratacache.dialects import wire
from stratacache.dialects.base import Assembler, Parsed
from stratacache.dialects.checks import model_name, required, without_cache_control, wrong_type, wrong_value
from stratacache.dialects.openai_chat import usage_of as usage_of
from stratacache.errors import UpstreamError
from stratacache.types import JSON

USAGE_ON_REQUEST: Final = False
MAX_INPUTS: Final = 2048
"""In one request; OpenAI's own limit."""

_ENCODINGS: Final = ("float", "base64")


def parse(body: dict[str, JSON]) -> Parsed:
    """Check the fields that the gateway relies on. Never changes ``body``; raises RequestError."""
    model = model_name(required(body, "model", "model"))
    inputs_of(required(body, "input", "input"))
    encoding = body.get("encoding_format")
    if encoding is not None and encoding not in _ENCODINGS:
        raise wrong_value("encoding_format", "is neither float nor base64.")
    cache, body = without_cache_control(body)
    return Parsed(model, False, False, cache, body)


def inputs_of(value: JSON) -> list[JSON]:
    """The inputs, each a text or a list of tokens; raises RequestError."""
    if type(value) is str:
        return [value]
    if type(value) is not list:
        raise wrong_type("input", "a string or an array", value)
    if not value:
        raise wrong_value("input", "is an empty array.")
    if all(type(item) is int for item in value):
        return [value]
    if len(value) > MAX_INPUTS:
        raise wrong_value("input", f"has {len(value)} inputs, the most is {MAX_INPUTS}.")
    for i, item in enumerate(value):
        tokens = type(item) is list and item and all(type(token) is int for token in item)
        if type(item) is not type(value[0]) or not (type(item) is str or tokens):
            raise wrong_type(f"input[{i}]", "a string or an array of tokens, as the others are", item)
    return value


def upstream_body(body: Mapping[str, JSON], resolved_model: str, *, ask_usage: bool) -> dict[str, JSON]:
    """See ``base.Answers``."""
    return {**body, "model": resolved_model}


def assembler() -> Assembler:
    """Embeddings are not streamed."""
    raise UpstreamError("the upstream streams embeddings", code="upstream_malformed")


def texts_of(answer: Mapping[str, JSON]) -> list[str]:
    """Embeddings say nothing."""
    return []


def fixed_answer(text: str, model: str, created: float) -> None:
    """Embeddings say nothing."""
    return


def completeness(answer: JSON) -> str | None:
    """None when ``answer`` is one embedding of numbers, else ``error`` or ``malformed``."""
    if type(answer) is not dict:
        return "malformed"
    if answer.get("error") is not None:
        return "error"
    data = answer.get("data")
    if type(data) is not list or len(data) != 1 or type(data[0]) is not dict:
        return "malformed"
    return None if is_vector(data[0].get("embedding")) else "malformed"


def is_vector(value: JSON) -> bool:
    """Whether ``value`` is a vector in one of the two forms."""
    if type(value) is str:
        return value != ""
    return type(value) is list and bool(value) and all(type(number) in (float, int) for number in value)


def single_answers(answer: JSON, inputs: Sequence[JSON]) -> list[bytes]:
    """The answer for ``inputs`` as one answer for each. Raises UpstreamError when it is not one for each of them.

    The prompt's tokens are shared out by the inputs' lengths, so that their sum is what was reported.
    """
    data = answer.get("data") if type(answer) is dict else None
    rows = data if type(data) is list and all(type(row) is dict for row in data) else []
    found = {row.get("index", place): row for place, row in enumerate(rows)}
    if found.keys() != set(range(len(inputs))) or not all(is_vector(row.get("embedding")) for row in rows):
        raise UpstreamError(
            "the upstream sent something other than one embedding per input", code="upstream_malformed"
        )
    shared = {key: value for key, value in answer.items() if key not in ("data", "usage")}
    tokens = usage_of(answer).prompt
    shares = _shares(tokens, [len(one) for one in inputs]) if tokens is not None else None
    singles = []
    for i in range(len(inputs)):
        single = {**shared, "data": [{**found[i], "index": 0}]}
        if shares is not None:
            single["usage"] = {"prompt_tokens": shares[i], "total_tokens": shares[i]}
        singles.append(wire.encode(single))
    return singles


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` shared out in proportion to ``weights``, in whole numbers that add up to it."""
    whole, done, given = sum(weights) or 1, 0, 0
    shares = []
    for weight in weights:
        done += weight
        share = total * done // whole - given
        given += share
        shares.append(share)
    return shares


def joined_answer(answers: Sequence[Mapping[str, JSON]], encoding: JSON) -> dict[str, JSON]:
    """Answers for one input each as the answer for all, in this order; ``encoding`` is what the client asked for.

    Raises UpstreamError for what is no vector.
    """
    data = []
    counts = []
    for index, answer in enumerate(answers):
        row = answer["data"][0]
        data.append({**row, "index": index, "embedding": encoded(row["embedding"], encoding)})
        counts.append(usage_of(answer).prompt)
    made = {**answers[0], "data": data}
    known = [count for count in counts if count is not None]
    if known:
        made["usage"] = {"prompt_tokens": sum(known), "total_tokens": sum(known)}
    return made


def encoded(vector: JSON, encoding: JSON) -> JSON:
    """A vector as JSON numbers, or (``base64``) as OpenAI does: little-endian float32 in base64."""
    if encoding == "base64" and type(vector) is list:
        return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
    if encoding != "base64" and type(vector) is str:
        try:
            return np.frombuffer(base64.b64decode(vector, validate=True), "<f4").tolist()
        except (binascii.Error, ValueError) as error:
            raise UpstreamError(
                "the upstream sent an embedding that is no base64", code="upstream_malformed"
            ) from error
    return vector

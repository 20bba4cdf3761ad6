"""What engines document, read: usage at an answer's end, and metrics."""

from __future__ import annotations

import pytest

from stratacache.types import Scope
from stratacache.upstream.engines import ENGINES, PromptUse, figures, prompt_use, salted


@pytest.mark.parametrize(
    ("tail", "use"),
    [
        (b'{"usage":{"prompt_tokens":290,"prompt_tokens_details":{"cached_tokens":96}}}', PromptUse(290, 96)),
        (b'{"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}}', PromptUse(9, 0)),
        (b'{"usage":{"prompt_tokens":290,"prompt_tokens_details":null}}', None),
        (b'{"usage":{"prompt_tokens":290,"prompt_tokens_details":{"cached_tokens":null}}}', None),
        (b'{"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":-1}}}', None),
        (b'{"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":99}}}', PromptUse(10, 10)),
        (b'{"timings":{"cache_n":236,"prompt_n":1}}', PromptUse(237, 236)),
        (b'{"choices":[{"message":{"content":"\\"cached_tokens\\": 5, \\"prompt_tokens\\": 7"}}]}', None),
        (b"data: [DONE]", None),
        (b"", None),
    ],
)
def test_what_a_request_had_cached(tail: bytes, use: PromptUse | None) -> None:
    assert prompt_use(tail) == use


def test_several_engines_behind_one_address_are_one() -> None:
    text = "\n".join(
        f'vllm:{name}{{engine="{engine}",model_name="m"}} {value}'
        for engine in (0, 1)
        for name, value in (("kv_cache_usage_perc", 0.2 + 0.4 * engine), ("prefix_cache_hits_total", 1e3))
    )
    found = figures(ENGINES["vllm"], text + "\nvllm:num_preemptions_total broken\n# vllm:nothing 1\n")
    assert found == {"kv_usage": pytest.approx(0.4), "hit_tokens": 2000.0}


def test_a_server_that_is_no_engine_gets_the_body_as_it_is() -> None:
    body = {"model": "m"}
    assert salted(None, body, Scope(tenant="acme"), b"") is body


def test_callers_whose_credentials_are_passed_on_have_salts_of_their_own() -> None:
    salts = {
        str(salted(ENGINES["vllm"], {}, Scope(credential=one), b"s" * 32)["cache_salt"])
        for one in ("", "a", "b")
    }
    assert len(salts) == 3

"""From needs to a plan: sizes, the engine's flags, what gives way first, warnings, and where the needs come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stratacache.errors import SettingsError, StrataError
from stratacache.lab.capacity import GIB, ModelShape, shape_of
from stratacache.lab.capacity_needs import Needs, measure_log, needs_of, read_needs
from stratacache.lab.capacity_plan import config_snippet, engine_flags, make_plan
from stratacache.settings import load

SHAPE = shape_of(
    {
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
        "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
    }
)  # fmt: skip
"""128 KiB a token; a block of 32 takes 4 MiB."""


def needs(**more: Any) -> Needs:
    return Needs(**{"gpu_memory": 24 * GIB, "weights": 16 * GIB, **more})


def test_the_pool_is_what_weights_and_engine_leave() -> None:
    plan = make_plan(needs(prompt_tokens=1792, answer_tokens=256), SHAPE)
    pool = plan.pool
    assert pool is not None
    assert pool.utilisation == 0.91  # 2 of 24 GiB stay free
    assert pool.pool_bytes == int(24 * GIB * 0.91) - 16 * GIB - int(1.5 * GIB)
    assert plan.block == 32
    assert pool.blocks == pool.pool_bytes // (4 << 20)
    assert pool.sequences == pool.blocks // 64
    assert pool.max_num_seqs == int(pool.sequences / 1.3)
    assert plan.warnings == ()


def test_flags_are_those_of_the_plan() -> None:
    plan = make_plan(needs(kv_dtype="fp8", gpus=2, longest=5000), SHAPE)
    flags = engine_flags(plan, "models/x")
    assert flags[:3] == ["vllm", "serve", "models/x"]
    assert plan.pool is not None
    told = dict(zip(flags[3::2], flags[4::2], strict=False))
    assert told["--block-size"] == "32"
    assert told["--gpu-memory-utilization"] == "0.91"
    assert told["--max-model-len"] == "6528"  # 5000 x 1.3 in blocks of 32
    assert told["--max-num-seqs"] == str(plan.pool.max_num_seqs)
    assert flags[-4:] == ["--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8"]
    assert engine_flags(make_plan(Needs(), SHAPE), "x") == []


@pytest.mark.parametrize(("longest", "length"), [(100, 160), (7000, 8192), (9000, 8192)])
def test_the_context_is_the_longest_request_and_no_more_than_the_models(longest: int, length: int) -> None:
    pool = make_plan(needs(longest=longest), SHAPE).pool
    assert pool is not None
    assert pool.max_model_len == length


def test_the_context_fits_the_pool() -> None:
    plan = make_plan(needs(longest=6000, weights=20 * GIB), SHAPE)
    assert plan.pool is not None
    assert 0 < SHAPE.sequence_blocks_bytes(plan.pool.max_model_len, plan.block) <= plan.pool.pool_bytes


def test_several_gpus_hold_a_part_each() -> None:
    one, two = (make_plan(needs(gpus=gpus, concurrency=8), SHAPE).pool for gpus in (1, 2))
    assert one is not None
    assert two is not None
    assert two.pool_bytes - one.pool_bytes == 8 * GIB
    assert two.sequences > 2 * one.sequences


def test_entries_vectors_and_cores_follow_the_rules() -> None:
    sizes = make_plan(Needs(daily_users=1_000_000, question_bank=100_000), None).sizes
    assert sizes.entries == 100_000
    assert sizes.store_bytes == pytest.approx(100_000 * 2048 * 1.25 * 1.3, rel=0.01)
    assert sizes.vectors == 150_000
    assert sizes.index_bytes == pytest.approx(150_000 * 1430 * 1.3, rel=0.01)


@pytest.mark.parametrize(("rate", "cores"), [(1, 4), (60, 4), (100, 8), (1000, 35)])
def test_four_cores_and_eight_under_load(rate: float, cores: int) -> None:
    assert make_plan(Needs(requests_per_second=rate), None).sizes.cores == cores


def test_what_gives_way_first_comes_first() -> None:
    plan = make_plan(needs(concurrency=40, cores=4, requests_per_second=1), SHAPE)
    assert plan.resources[0].name == "KV pool of each GPU"
    assert plan.resources[0].growth < 1
    assert "KV pool of each GPU: short by" in plan.warnings[0]
    plan = make_plan(Needs(daily_users=1_000_000, store_memory=100 << 20), None)
    assert plan.resources[0].name == "store"
    assert "store: short by 2.4 times" in plan.warnings[0]
    plan = make_plan(Needs(requests_per_second=155, cores=4), None)
    assert plan.resources[0].name == "CPU for the semantic tier"
    assert "1.03 times the traffic" in plan.warnings[0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_tokens": 513}, "ask for 513 and use 256"),
        ({"cores": 2}, "2 cores"),
        ({"weights": 24 * GIB}, "not one request"),
        ({"longest": 10_000}, "context for the longest request: short by 1.2 times"),
    ],
)
def test_warnings(more: dict[str, Any], words: str) -> None:
    assert any(words in warning for warning in make_plan(needs(**more), SHAPE).warnings)


def test_twice_is_not_more_than_twice() -> None:
    assert make_plan(needs(max_tokens=512), SHAPE).warnings == ()


def test_requests_at_once_by_littles_law() -> None:
    assert Needs(requests_per_second=10, answer_tokens=200, token_seconds=0.02).at_once == 40
    assert Needs(concurrency=3, requests_per_second=10).at_once == 3


def test_the_snippet_is_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "stratacache.yaml"
    for users in (1, 10**9):
        snippet = config_snippet(make_plan(Needs(daily_users=users, requests_per_second=200), None))
        path.write_text(snippet)
        assert load(path, {}).store_max_bytes >= 64 << 20
    assert yaml.safe_load(snippet)["tiers"]["semantic"]["threads"] == 4


def test_a_later_source_counts_and_none_is_nothing() -> None:
    assert needs_of({"gpus": 2, "gpu_memory": "1GiB"}, {"gpus": 4, "weights": None}) == Needs(
        gpus=4, gpu_memory=GIB
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"gpus": 0}, "gpus: Expected `int` >= 1"),
        ({"gpu_memory": "much"}, "gpu_memory: a size such as"),
        ({"users": 3}, "`users`"),
        ({"prompt_tokens": "x"}, "prompt_tokens: "),
    ],
)
def test_a_wrong_need_is_named(source: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        needs_of(source)


def test_needs_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "needs.yaml"
    path.write_text("gpu_memory: 80GiB\ndaily_users: 20000\n")
    assert needs_of(read_needs(path)) == Needs(gpu_memory=80 * GIB, daily_users=20_000)
    path.write_text(json.dumps({"gpus": 2}))
    assert needs_of(read_needs(path)).gpus == 2
    for text, words in (("- 1", "not a mapping"), ("a: [", "needs.yaml")):
        path.write_text(text)
        with pytest.raises(SettingsError, match=words):
            read_needs(path)
    with pytest.raises(SettingsError, match="cannot read"):
        read_needs(tmp_path / "none.yaml")


def test_needs_from_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        {"prompt_tokens": 100, "completion_tokens": 20, "max_tokens": 1000, "timestamp": 5},
        {"usage": {"prompt_tokens": 300, "completion_tokens": 40}, "max_tokens": 2000, "timestamp": 65},
        {"input_length": 200, "output_length": 30, "timestamp": 70},
        {"event": "nothing of interest"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert measure_log(path) == {
        "prompt_tokens": 200, "answer_tokens": 30, "longest": 340, "max_tokens": 1500, "requests_per_second": 2 / 60,
    }  # fmt: skip
    assert measure_log(path, 1e3)["requests_per_second"] == 3 / 60


@pytest.mark.parametrize(("text", "words"), [("{}", "no line has"), ("{", "line 1"), ("", "no line has")])
def test_logs_that_tell_nothing(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(StrataError, match=words):
        measure_log(path)
    with pytest.raises(StrataError, match="cannot read"):
        measure_log(tmp_path / "none.jsonl")


def test_the_models_windows_count_in_the_pool() -> None:
    windowed: ModelShape = shape_of(
        {
            "num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 1024, "torch_dtype": "bfloat16",
            "sliding_window": 128,
        }
    )  # fmt: skip
    plan = make_plan(needs(prompt_tokens=100_000, answer_tokens=1), windowed)
    assert plan.pool is not None
    assert plan.pool.sequences > 10 * plan.pool.blocks * plan.block // 100_001

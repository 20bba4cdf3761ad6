"""Models that others wrote: Hugging Face folders and GGUF files, each against transformers on the same weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from tests.engine.engine_kit import TINY, Answers, greedy, oracle_greedy
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from stratacache.engine.convert import model_folder, model_name
from stratacache.engine.engine import Engine
from stratacache.engine.errors import ModelUnavailable
from stratacache.engine.gguf_tokenizer import _QWEN2
from stratacache.engine.template import ChatTemplate
from stratacache.engine.tokenizer import IncrementalDecoder, Tokenizer
from stratacache.engine.weights import load

TEXTS = [
    "The train to Oslo leaves at 12:45, doesn't it?",
    "  two  spaces\n\nand 2024 numbers",
    "日本語 and émigré 🙂",
]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
KINDS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def byte_level() -> Backend:
    """As Qwen's: NFC, splits of its own, bytes."""
    backend = Backend(models.BPE())
    backend.normalizer = normalizers.NFC()
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_QWEN2), "isolated"), last])
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    backend.train_from_iterator(TEXTS * 9, trainer)
    return backend


def sentencepiece() -> Backend:
    """As Llama 2's: BPE over ▁ text, bytes for what is unknown."""
    pieces = sorted({char for text in TEXTS[:2] for char in text if char.isascii() and char not in " \n"})
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *pieces,
        "▁t",
        "ra",
        "▁tra",
    ]
    merges = [("▁", "t"), ("r", "a"), ("▁t", "ra")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Backend(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(parts)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


def unigram() -> Backend:
    backend = Backend(models.Unigram())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>"
    )
    backend.train_from_iterator(TEXTS * 9, trainer)
    return backend


def saved(folder: Path, kind: str, backend: Backend) -> tuple[Any, Any]:
    """A tiny model and its tokenizer, as transformers writes them."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": backend.get_vocab_size() + 7}
    more = {
        "initializer_range": 0.25,
        "max_position_embeddings": 256,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    config = getattr(transformers, f"{KINDS[kind]}Config")(**sizes, **more)
    model = getattr(transformers, f"{KINDS[kind]}ForCausalLM")(config).eval()
    model.save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return model, fast


def answers_alike(folder: Path, model: Any, fast: Any) -> None:
    tokenizer = Tokenizer(folder)
    messages = [{"role": "user", "content": TEXTS[0]}]
    prompt = tuple(tokenizer.encode(ChatTemplate.from_folder(folder).render(messages)))
    wanted = fast.apply_chat_template(messages, tokenize=False)
    assert list(prompt) == fast.encode(wanted, add_special_tokens=False)
    config, weights = load(folder, "float64")
    answers = Answers(Engine(config, weights, replace(TINY, num_blocks=64), seed=0))
    answers.run(greedy("x", prompt, 12))
    assert answers.tokens["x"] == oracle_greedy(model.double(), prompt, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hugging_face_folder_answers_as_transformers_does(kind: str, tmp_path: Path) -> None:
    model, fast = saved(tmp_path / "my model", kind, byte_level())
    folder = model_folder(tmp_path / "my model", tmp_path / "cache")
    assert model_name(folder) == "my-model"
    assert model_folder(folder) == folder
    answers_alike(folder, model, fast)


@pytest.mark.parametrize("make", [byte_level, sentencepiece, unigram])
def test_texts_survive_each_kind_of_tokenizer(make: Any, tmp_path: Path) -> None:
    backend = make()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == backend.decode(ids)
        decoder = IncrementalDecoder(tokenizer)
        assert "".join(map(decoder.push, ids)) + decoder.flush() == backend.decode(ids)
        assert tokenizer.fewest_tokens(text) <= len(ids)
    assert tokenizer.token_bytes(backend.get_vocab_size() + 3) == b""
    assert tokenizer.joins == (make is byte_level)


def permuted(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """llama.cpp's order of Q and K."""
    return (
        rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
    )


def write_gguf(path: Path, kind: str, model: Any, backend: Backend, pre: str | None) -> None:
    """The same model as llama.cpp's converter writes it; `pre` None: SentencePiece's kind."""
    config = model.config
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(16)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    layout = json.loads(backend.to_str())["model"]
    extra = [f"<fill{n}>" for n in range(config.vocab_size - len(layout["vocab"]))]
    tokens = [*sorted(layout["vocab"], key=layout["vocab"].get), *extra]
    added = {"<unk>", "<s>", "</s>", *extra}
    writer.add_tokenizer_model("gpt2" if pre else "llama")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in added else 6 if token.startswith("<0x") else 1 for token in tokens])
    if pre:
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges([" ".join(pair) for pair in layout["merges"]])
    else:
        writer.add_token_scores([-float(index) for index in range(len(tokens))])
    writer.add_bos_token_id(layout["vocab"]["<s>"])
    writer.add_eos_token_id(layout["vocab"]["</s>"])
    writer.add_chat_template(TEMPLATE)
    arch = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}[
        kind
    ]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):
            values = permuted(
                values, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            )
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("kind", "pre"), [("llama", None), ("llama", "qwen2"), ("qwen2", "qwen2"), ("qwen3", "qwen2")]
)
def test_a_gguf_file_answers_as_transformers_does(kind: str, pre: str | None, tmp_path: Path) -> None:
    backend = byte_level() if pre else sentencepiece()
    model, fast = saved(tmp_path / "hf", kind, backend)
    model.config.rope_parameters = {"rope_type": "default", "rope_theta": 10_000.0}
    write_gguf(tmp_path / "tiny.gguf", kind, model, backend, pre)
    folder = model_folder(tmp_path / "tiny.gguf", tmp_path / "cache")
    assert model_name(folder) == "tiny"
    answers_alike(folder, model, fast)
    for text in TEXTS:
        assert Tokenizer(folder).encode(text) == backend.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        ("config.json", {"model_type": "gpt_neox"}, "model_type.*'gpt_neox'"),
        ("config.json", {"hidden_size": None}, "hidden_size"),
        ("config.json", {"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ("config.json", {"num_hidden_layers": 1}, "model.layers.1"),
        ("config.json", {"num_hidden_layers": 3}, "model.layers.2"),
        ("tokenizer_config.json", {"chat_template": None}, "chat_template"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(file: str, change: Any, why: str, tmp_path: Path) -> None:
    saved(tmp_path / "hf", "llama", byte_level())
    (tmp_path / "hf" / "chat_template.jinja").unlink(missing_ok=True)
    if file == "config.json":
        (tmp_path / "hf" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    path = tmp_path / "hf" / file
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(ModelUnavailable, match=why):
        model_folder(tmp_path / "hf", tmp_path / "cache")


def test_a_gguf_file_with_an_unknown_split_is_refused_by_its_key(tmp_path: Path) -> None:
    model, _ = saved(tmp_path / "hf", "llama", backend := byte_level())
    write_gguf(tmp_path / "tiny.gguf", "llama", model, backend, "viking")
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.ggml\.pre is 'viking'"):
        model_folder(tmp_path / "tiny.gguf", tmp_path / "cache")

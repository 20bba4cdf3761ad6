"""The embedder port, for every embedder: the default one, a sentence-transformers folder, a server, with the memo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fakes.embeddings import FakeEmbeddings

from stratacache.errors import ModelError
from stratacache.models import text as rules
from stratacache.models.memo import MemoEmbedder
from stratacache.models.pool import Pool
from stratacache.models.remote import RemoteEmbedder
from stratacache.models.sentence_transformers import SentenceTransformerEmbedder
from stratacache.models.use import UseEmbedder
from stratacache.ports import Embedder

QUESTIONS = [
    "How do I reset my password?",
    "如何重置密码？",
    "mixed 中文 and English",
    "كيف أعيد تعيين كلمة المرور؟",
    "a",
]
KINDS = ["use", "sentence-transformers", "remote", "memo"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


def save_tiny_model(folder: Path) -> Path:
    """A sentence-transformers model of random weights: 16 numbers, one layer, letters as its vocabulary."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz如何重置密码中文كيفأعدتنملرو"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(1)
    shape: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    BertModel(BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder / "bert")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    made = SentenceTransformer(modules=[Transformer(str(folder / "bert")), Pooling(16)], device="cpu")
    made.save(str(folder / "model"))
    return folder / "model"


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def embedder(kind: str, folder: Path) -> AsyncIterator[Embedder]:
    pool = Pool(2, 64)
    async with FakeEmbeddings() as server:
        made: UseEmbedder | SentenceTransformerEmbedder | RemoteEmbedder
        if kind == "remote":
            made = RemoteEmbedder(server.base_url, "m", api_key=None, budget=20)
        elif kind == "sentence-transformers":
            made = SentenceTransformerEmbedder(folder, pool, budget=20)
            await made.ready()
        else:
            made = UseEmbedder(pool, budget=20)
            await made.ready()
        embedder: Embedder = MemoEmbedder(made, 1 << 20) if kind == "memo" else made
        yield embedder
        await embedder.close()
        await embedder.close()
        pool.check()
        await pool.close()


async def test_vectors_are_unit_float32_of_the_dimension_and_read_only(embedder: Embedder) -> None:
    for question in QUESTIONS:
        vector = await embedder.embed(question)
        assert (vector.dtype.name, vector.shape) == ("float32", (embedder.dimension,))
        assert abs(float(np.linalg.norm(vector.astype(np.float64))) - 1) < 1e-6
        assert not vector.flags.writeable


async def test_the_same_text_has_the_same_vector_also_among_others(embedder: Embedder) -> None:
    alone = [await embedder.embed(question) for question in QUESTIONS]
    together = await asyncio.gather(*(embedder.embed(question) for question in QUESTIONS * 6))
    for number, vector in enumerate(together):
        np.testing.assert_array_equal(vector, alone[number % len(QUESTIONS)])


async def test_different_texts_have_different_vectors(embedder: Embedder) -> None:
    vectors = [await embedder.embed(question) for question in QUESTIONS]
    for number, vector in enumerate(vectors[1:]):
        assert float(vector @ vectors[number]) < 0.9999


@pytest.mark.parametrize("text", ["", "   ", "🙂🙂", "12 + 3 = ?", "!?", "\ud800"])
async def test_without_letters_there_is_nothing_to_embed(embedder: Embedder, text: str) -> None:
    with pytest.raises(ModelError) as refused:
        await embedder.embed(text)
    assert refused.value.code == "nothing_to_embed"


async def test_a_long_text_counts_by_its_beginning_and_end(embedder: Embedder) -> None:
    start, end = "how do i bake bread " * 20, " in a small oven" * 8
    long = await embedder.embed(start[: rules.HEAD] + "x" * 100_000 + end[-rules.TAIL :])
    other = await embedder.embed(start[: rules.HEAD] + "and so on " * 10_000 + end[-rules.TAIL :])
    np.testing.assert_array_equal(long, other)
    assert float(long @ await embedder.embed(start[: rules.HEAD] + "x" * 1000)) < 0.99999


async def test_odd_text_is_embedded(embedder: Embedder) -> None:
    for text in ["a\ud800b", "null\x00byte", "e\u0301" * 300, "\u202eright to left", "🙂 smile"]:
        assert len(await embedder.embed(text)) == embedder.dimension


async def test_a_cancelled_call_leaves_the_others_alone(embedder: Embedder) -> None:
    calls = [asyncio.create_task(embedder.embed(question)) for question in QUESTIONS]
    await asyncio.sleep(0)
    calls[0].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, np.ndarray) for result in results[1:])
    assert len(await embedder.embed(QUESTIONS[0])) == embedder.dimension


async def test_other_rules_make_another_fingerprint(
    embedder: Embedder, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("use", "remote", "sentence_transformers"):
        monkeypatch.setattr(f"stratacache.models.{module}.RULES", rules.RULES + 1)
    pool = Pool(1, 1)
    made: Embedder
    if kind == "remote":
        made = RemoteEmbedder("http://127.0.0.1:9/v1", "m", api_key=None, budget=1)
    elif kind == "sentence-transformers":
        made = SentenceTransformerEmbedder(folder, pool, budget=1)
    else:
        made = UseEmbedder(pool, budget=1)
    assert made.fingerprint != embedder.fingerprint
    assert made.fingerprint.rpartition("/")[2] != embedder.fingerprint.rpartition("/")[2]
    await made.close()
    await pool.close()

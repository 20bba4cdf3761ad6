"""The verifier: its input, long questions, symmetry, calibration, and files that are missing or damaged.

The model is a tiny one of the same interface: a token's weight times its type's, summed. So a logit can be told by hand
and depends on the order of the questions.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratacache.errors import ModelError
from stratacache.models.calibration import CalibrationFile
from stratacache.models.pool import Pool
from stratacache.models.verifier import MAX_CHARS, OnnxVerifier, fit, pair_input
from stratacache.policy.calibration import Sigmoid
from stratacache.policy.language import language_of
from stratacache.ports import Similarity

WORDS = ["reset", "password", "my", "the", "enable", "disable", "tail", "密", "码", "重", "置", "如", "何"]
NAN = "broken"
TYPES = [1.0, -0.5, 2.0, 0.25]
CALIBRATION = {"en": {"a": 2.0, "b": 0.5}, "zh": {"a": 1.0, "b": -1.0}, "*": {"a": 0.5, "b": 0.0}}


def save_verifier(folder: Path, **card: Any) -> Path:
    """The three files of a verifier, with the fields of ``card`` in place of the usual ones."""
    folder.mkdir(exist_ok=True)
    pieces = save_tokenizer(folder / "tokenizer.json")
    save_model(folder / "model.onnx", pieces)
    hashes = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("model.onnx", "tokenizer.json")
    }
    usual = {"format": 1, "sha256": hashes, "languages": CALIBRATION, "max_tokens": 16}
    (folder / "verifier.json").write_bytes(msgspec.json.encode({**usual, **card}))
    return folder


def save_tokenizer(path: Path) -> list[str]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *(f"▁{word}" for word in [*WORDS, NAN]), *WORDS[7:]]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.save(str(path))
    return pieces


def save_model(path: Path, pieces: list[str]) -> None:
    from onnx import TensorProto, helper, numpy_helper, save_model

    weights = np.linspace(-1, 1, len(pieces), dtype=np.float32)
    weights[pieces.index(f"▁{NAN}")] = np.nan
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["words"]),
        helper.make_node("Gather", ["types", "token_type_ids"], ["places"]),
        helper.make_node("Mul", ["words", "places"], ["parts"]),
        helper.make_node("ReduceSum", ["parts", "axis"], ["logit"], keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "n"])
        for name in ("input_ids", "token_type_ids")
    ]
    outputs = [helper.make_tensor_value_info("logit", TensorProto.FLOAT, ["batch"])]
    constants: dict[str, Any] = {
        "weights": weights,
        "types": np.array(TYPES, np.float32),
        "axis": np.array([1], np.int64),
    }
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, held)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


class Verifiers:
    """Makes verifiers on one pool and closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = Pool(2, 32)
        self.made: list[OnnxVerifier] = []

    def open(self, folder: Path) -> OnnxVerifier:
        self.made.append(OnnxVerifier(self.pool, budget=20, language=language_of, folder=folder))
        return self.made[-1]

    async def ready(self, **card: Any) -> OnnxVerifier:
        verifier = self.open(save_verifier(self.folder / "verifier", **card))
        await verifier.ready()
        return verifier


@pytest.fixture
async def verifiers(tmp_path: Path) -> AsyncIterator[Verifiers]:
    made = Verifiers(tmp_path)
    yield made
    for verifier in made.made:
        await verifier.close()
        await verifier.close()
    made.pool.check()
    await made.pool.close()


def logit_by_hand(folder: Path, first: str, second: str) -> float:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "verifier" / "tokenizer.json"))
    weights = np.linspace(-1, 1, tokenizer.get_vocab_size())
    pair = [tokenizer.encode(text, add_special_tokens=False).ids for text in (first, second)]
    ids, types = pair_input(*pair)
    return float(sum(weights[token] * TYPES[kind] for token, kind in zip(ids, types, strict=True)))


async def probability(verifier: OnnxVerifier, asked: str, stored: str) -> float:
    """Without any weight for the similarity."""
    verdict = await verifier.verify(asked, stored, Similarity(0.9, "unknown/1"))
    assert verdict.alone == verdict.probability
    return verdict.probability


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


async def test_averages_both_orders_and_calibrates_by_language(verifiers: Verifiers) -> None:
    verifier = await verifiers.ready()
    pairs = [
        ("reset my password", "the password reset", (2.0, 0.5)),
        ("重置密码", "如何重置密码", (1.0, -1.0)),
        ("reset my password", "重置密码", (0.5, 0.0)),
    ]
    for first, second, (a, b) in pairs:
        forth = logit_by_hand(verifiers.folder, first, second)
        back = logit_by_hand(verifiers.folder, second, first)
        assert abs(forth - back) > 0.01
        expected = sigmoid(a * (forth + back) / 2 + b)
        assert await probability(verifier, first, second) == pytest.approx(expected, abs=1e-5)
        assert await probability(verifier, second, first) == await probability(verifier, first, second)


async def test_a_symmetric_model_reads_the_pair_once_in_the_order_of_the_texts(verifiers: Verifiers) -> None:
    verifier = await verifiers.ready(symmetric=True)
    first, second = "reset my password", "the password reset"
    expected = sigmoid(2.0 * logit_by_hand(verifiers.folder, first, second) + 0.5)
    assert await probability(verifier, first, second) == pytest.approx(expected, abs=1e-5)
    assert await probability(verifier, second, first) == await probability(verifier, first, second)


async def test_a_calibration_of_ones_own_takes_the_place_of_the_card(
    verifiers: Verifiers, caplog: pytest.LogCaptureFixture
) -> None:
    plain = await verifiers.ready()
    pair = "reset my password", "the password reset"
    logit = sum(logit_by_hand(verifiers.folder, *two) for two in (pair, pair[::-1])) / 2
    fits = {"*": Sigmoid(0.5, 0.0), "en": Sigmoid(0.25, 2.0)}
    own = CalibrationFile(1, plain.fingerprint, fits, {}, {"use/1": {"en": Sigmoid(0.25, 1.0, 2.0)}})
    for calibration, expected in (
        (own, sigmoid(0.25 * logit + 2.0)),
        (msgspec.structs.replace(own, verifier="another"), await probability(plain, *pair)),
    ):
        folder = verifiers.folder / "verifier"
        made = OnnxVerifier(
            verifiers.pool, budget=20, language=language_of, folder=folder, calibration=calibration
        )
        verifiers.made.append(made)
        await made.ready()
        assert await probability(made, *pair) == pytest.approx(expected, abs=1e-5)
        assert (made.fingerprint == plain.fingerprint) == (calibration is not own)
        assert (made.fingerprint_with("use/1") == made.fingerprint) == (calibration is not own)
    assert "is for another verifier" in caplog.text


async def test_the_similarity_counts_where_the_card_has_weights_for_its_embedder(
    verifiers: Verifiers,
) -> None:
    plain = await verifiers.ready()
    fits = {"use/1": {"en": {"a": 1.5, "b": -0.5, "c": 2.0, "near": 0.8}}}
    verifier = await verifiers.ready(embedders=fits)
    first, second = "reset my password", "the password reset"
    logit = sum(logit_by_hand(verifiers.folder, *two) for two in ((first, second), (second, first))) / 2
    alone, combined = sigmoid(2.0 * logit + 0.5), sigmoid(1.5 * logit - 0.5 - 2.0 * 0.05)
    for embedder, expected in (("use/1", combined), ("unknown/1", alone)):
        for asked, stored in ((first, second), (second, first)):
            verdict = await verifier.verify(asked, stored, Similarity(0.75, embedder))
            assert (verdict.probability, verdict.alone) == pytest.approx((expected, alone), abs=1e-5)
    assert verifier.fingerprint != plain.fingerprint
    assert verifier.fingerprint_with("unknown/1") == verifier.fingerprint
    assert verifier.fingerprint_with("use/1") != verifier.fingerprint
    assert plain.fingerprint_with("use/1") == plain.fingerprint


async def test_many_at_a_time_give_what_one_gives(verifiers: Verifiers) -> None:
    verifier = await verifiers.ready()
    pairs = [(f"{a} my {b}", f"{b} the {a}") for a in WORDS[:4] for b in WORDS[4:8]]
    alone = [await probability(verifier, *pair) for pair in pairs]
    assert await asyncio.gather(*(probability(verifier, *pair) for pair in pairs)) == alone
    assert all(0 <= probability <= 1 for probability in alone)


async def test_the_same_ends_of_long_questions_are_cut_and_others_refused(verifiers: Verifiers) -> None:
    verifier = await verifiers.ready()
    tail = " tail" * 50
    short = await probability(
        verifier, "enable my password tail tail tail", "disable my password tail tail tail"
    )
    assert await probability(verifier, "enable my password" + tail, "disable my password" + tail) == short
    for stored in ["disable my password" + tail + " the", "disable my password", "x" * (MAX_CHARS + 1)]:
        with pytest.raises(ModelError) as refused:
            await probability(verifier, "enable my password" + tail, stored)
        assert refused.value.code == "question_too_long"


async def test_odd_text_gets_a_probability(verifiers: Verifiers) -> None:
    verifier = await verifiers.ready()
    for text in ["", "🙂", "a\ud800", "\x00", "\u202ereset"]:
        assert 0 <= await probability(verifier, text, "reset my password") <= 1


async def test_a_logit_that_is_no_number_is_an_error(verifiers: Verifiers) -> None:
    verifier = await verifiers.ready()
    with pytest.raises(ModelError, match="not finite") as refused:
        await probability(verifier, "reset broken", "reset")
    assert refused.value.code == "verifier_error"


async def test_without_files_it_says_what_to_do(verifiers: Verifiers) -> None:
    verifier = verifiers.open(verifiers.folder / "nowhere")
    assert verifier.fingerprint == "missing"
    for _ in range(2):
        with pytest.raises(ModelError, match="reinstall stratacache") as refused:
            await verifier.ready()
        assert refused.value.code == "verifier_missing"
    with pytest.raises(ModelError, match="there is no verifier"):
        await probability(verifier, "a", "b")


async def test_until_it_is_loaded_it_is_passed_over(verifiers: Verifiers) -> None:
    verifier = verifiers.open(save_verifier(verifiers.folder / "verifier"))
    with pytest.raises(ModelError) as early:
        await probability(verifier, "a", "b")
    assert early.value.code == "model_loading"
    await verifier.ready()
    assert 0 <= await probability(verifier, "a", "b") <= 1


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "garbage"])
async def test_damaged_files_are_refused(verifiers: Verifiers, name: str, damage: str) -> None:
    folder = save_verifier(verifiers.folder / "verifier")
    content = (folder / name).read_bytes()
    if damage == "gone":
        (folder / name).unlink()
    elif damage == "garbage":  # with the hash of garbage: it must still be one clear error
        (folder / name).write_bytes(b"garbage")
        card = msgspec.json.decode((folder / "verifier.json").read_bytes())
        card["sha256"][name] = hashlib.sha256(b"garbage").hexdigest()
        (folder / "verifier.json").write_bytes(msgspec.json.encode(card))
    else:
        changed = content[:-1] if damage == "cut" else bytes([content[0] ^ 1]) + content[1:]
        (folder / name).write_bytes(changed)
    with pytest.raises(ModelError, match="reinstall stratacache") as refused:
        await verifiers.open(folder).ready()
    assert refused.value.code == "verifier_error"


@pytest.mark.parametrize(
    "card",
    [
        {"format": 2},
        {"sha256": {}},
        {"max_tokens": 4},
        {"languages": {"en": {"a": 1, "b": 0}}},
        {"languages": {"*": {"a": -1, "b": 0}}},
        {"languages": {"*": {"a": "1"}}},
        {"embedders": {"use/1": {"en": {"a": 1, "b": 0, "c": -1}}}},
        {"embedders": {"use/1": {"en": {"a": 0, "b": 0}}}},
    ],
)
async def test_cards_that_make_no_sense_are_refused(verifiers: Verifiers, card: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="reinstall stratacache") as refused:
        await verifiers.ready(**card)
    assert refused.value.code == "verifier_error"


async def test_other_files_make_another_fingerprint(verifiers: Verifiers) -> None:
    first = await verifiers.ready()
    second = await verifiers.ready(languages={"*": {"a": 1.0, "b": 0.0}})
    assert len({first.fingerprint, second.fingerprint, "missing"}) == 3


def test_the_input_marks_tokens_that_both_questions_have() -> None:
    ids, types = pair_input([10, 11], [11, 12, 3])
    assert ids == [0, 10, 11, 2, 2, 11, 12, 3, 2]
    assert types == [0, 0, 2, 0, 1, 3, 1, 1, 1]


tokens = st.lists(st.integers(4, 8), max_size=12)


@given(tokens, tokens, tokens, st.integers(1, 8))
def test_only_equal_ends_are_cut(first: list[int], second: list[int], tail: list[int], room: int) -> None:
    first, second = first + tail, second + tail
    excess = max(len(first), len(second)) - room
    short = excess > min(len(first), len(second))
    if excess > 0 and (short or first[-excess:] != second[-excess:]):
        with pytest.raises(ModelError, match="too long"):
            fit(first, second, room)
        return
    cut = fit(first, second, room)
    assert max(map(len, cut)) <= room
    assert first[len(cut[0]) :] == second[len(cut[1]) :]
    assert (first[: len(cut[0])], second[: len(cut[1])]) == (list(cut[0]), list(cut[1]))

"""The verifier: a cross-encoder in ONNX that reads both questions at once, its tokenizer and its calibration."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stratacache.errors import ModelError
from stratacache.models.calibration import CalibrationFile
from stratacache.models.loading import Loading
from stratacache.models.pool import Pool
from stratacache.policy.calibration import Calibration, Fits, Sigmoid
from stratacache.ports import Similarity, Verdict

log = logging.getLogger(__name__)

WEIGHTS = Path(__file__).parent / "weights" / "verifier"
"""The default verifier's folder: ``verifier.json``, ``model.onnx`` and ``tokenizer.json``."""
BOS, EOS = 0, 2
MAX_CHARS = 8192
"""Characters of a question beyond which it is not read: its tokens could not fit."""
_FILES = ("model.onnx", "tokenizer.json")
_SPECIAL = 4  # tokens around the two questions: <s> q1 </s> </s> q2 </s>
_RESTORE = "reinstall stratacache, or name a folder that `stratacache train-verifier` wrote"


class Card(msgspec.Struct, frozen=True):
    """``verifier.json``. ``max_tokens`` is of a pair. ``symmetric``: the model was trained to read pairs in one order,
    that of their texts, and is asked once; else both orders are asked and their logits averaged."""

    format: int
    sha256: dict[str, str]
    languages: dict[str, Sigmoid]
    embedders: dict[str, dict[str, Sigmoid]] = {}
    max_tokens: int = 96
    symmetric: bool = False


class OnnxVerifier:
    """A ``ports.Verifier``: one pair a call, one thread each, in the pool.

    Args:
        pool: runs the loading and the model.
        budget: seconds for one pair, waiting included.
        language: the language tag of a text, for the calibration.
        folder: with the three files.
        calibration: in place of the folder's own. One for another verifier is passed over, which is said.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        budget: float,
        language: Callable[[str], str],
        folder: Path = WEIGHTS,
        calibration: CalibrationFile | None = None,
    ) -> None:
        self.fingerprint = fingerprint_of(folder)
        self._calibration: Calibration | None = None
        if calibration is not None and calibration.verifier == self.fingerprint:
            self._calibration = calibration.calibration
            self.fingerprint += f"/{hash_of(calibration)}"
        elif calibration is not None:
            log.error(
                "the calibration is for another verifier and not used: run 'stratacache calibrate' again"
            )
        self._embedders = self._calibration.embedders if self._calibration else _embedders(folder)
        self._pool = pool
        self._budget = budget
        self._language = language
        self._loading = Loading("the verifier", pool, lambda: PairModel(folder))

    def fingerprint_with(self, embedder: str) -> str:
        """Of what gives the probabilities of questions that ``embedder`` found: what was learned of them holds for no
        other."""
        fits = self._embedders.get(embedder)
        return self.fingerprint if fits is None else f"{self.fingerprint}+{_hash(embedder, fits)}"

    def start(self) -> None:
        """Begin to load, in the pool. Until it is done ``verify`` raises ModelError ``model_loading``."""
        self._loading.start()

    async def ready(self) -> None:
        """Return when it is loaded. Raises ModelError when it cannot be."""
        await self._loading.ready()

    async def verify(self, asked: str, stored: str, similarity: Similarity) -> Verdict:
        """See ``ports.Verifier.verify``.

        Raises:
            ModelError: ``question_too_long``: what would have to be cut off differs; ``verifier_error``; as the pool's.
        """
        model = self._loading.get()
        logit = await self._pool.run(lambda: model.logit(asked, stored), budget=self._budget)
        calibration = self._calibration or model.calibration
        languages = self._language(asked), self._language(stored)
        alone = calibration.alone(logit, *languages)
        combined = calibration.probability(logit, *languages, similarity.cosine, similarity.embedder)
        return Verdict(combined, alone)

    async def close(self) -> None:
        """Forget a load that has not begun; the pool is closed by who made it."""
        await self._loading.close()


class PairModel:
    """The verified files, loaded. Blocks; safe to use from several threads.

    Raises:
        ModelError: ``verifier_missing`` or ``verifier_error`` (damaged), with what to do.
    """

    def __init__(self, folder: Path) -> None:
        card = _card(folder)
        contents = {name: _verified(folder / name, card.sha256.get(name)) for name in _FILES}
        try:
            self.calibration = Calibration(card.languages, card.embedders)
            self._tokenizer = _tokenizer(contents["tokenizer.json"])
            self._session = _session(contents["model.onnx"])
        except Exception as error:  # onnxruntime and tokenizers derive theirs from Exception alone
            message = f"the verifier in {folder} cannot be used ({error}): {_RESTORE}"
            raise ModelError(message, code="verifier_error") from error
        self._room = (card.max_tokens - _SPECIAL) // 2
        self._symmetric = card.symmetric

    def logit(self, asked: str, stored: str) -> float:
        """Uncalibrated, finite, and the same whichever question comes first."""
        if max(len(asked), len(stored)) > MAX_CHARS:
            raise ModelError(f"a question has more than {MAX_CHARS} characters", code="question_too_long")
        pair = self._tokens(min(asked, stored)), self._tokens(max(asked, stored))
        first, second = fit(*pair, self._room)
        logit = self._run(first, second)
        if not self._symmetric:
            logit = (logit + self._run(second, first)) / 2
        if not math.isfinite(logit):
            raise ModelError("the verifier gave a logit that is not finite", code="verifier_error")
        return logit

    def _tokens(self, text: str) -> Sequence[int]:
        whole = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates have no UTF-8
        ids: Sequence[int] = self._tokenizer.encode(whole, add_special_tokens=False).ids
        return ids

    def _run(self, first: Sequence[int], second: Sequence[int]) -> float:
        ids, types = pair_input(first, second)
        given = {"input_ids": np.array([ids], np.int64), "token_type_ids": np.array([types], np.int64)}
        try:
            (logits,) = self._session.run(["logit"], given)
        except Exception as error:  # onnxruntime derives its errors from Exception alone
            raise ModelError(f"the verifier failed: {type(error).__name__}", code="verifier_error") from error
        return float(logits[0])


def fit(first: Sequence[int], second: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """Both questions' tokens, at most ``room`` of each, cut at the end only where both end alike.

    Raises:
        ModelError: ``question_too_long``: the parts to cut off differ, and a difference must not go unseen.
    """
    excess = max(len(first), len(second)) - room
    if excess <= 0:
        return first, second
    if excess > min(len(first), len(second)) or first[-excess:] != second[-excess:]:
        raise ModelError("the questions are too long to be compared whole", code="question_too_long")
    return first[:-excess], second[:-excess]


def pair_input(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """Token ids of ``<s> first </s> </s> second </s>`` and their types: 0 for the first question and 1 for the second,
    plus 2 for a token that occurs in the other question too."""
    in_first, in_second = set(first), set(second)
    ids = [BOS, *first, EOS, EOS, *second, EOS]
    types = [0, *(2 * (t in in_second) for t in first), 0, 1, *(1 + 2 * (t in in_first) for t in second), 1]
    return ids, types


def hash_of(calibration: CalibrationFile) -> str:
    """Tells it from others."""
    return _hash(calibration.languages, calibration.embedders)


def _hash(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:12]


def fingerprint_of(folder: Path) -> str:
    """Of the card, which names the other files' hashes; ``missing`` without one."""
    try:
        return hashlib.sha256((folder / "verifier.json").read_bytes()).hexdigest()[:12]
    except OSError:
        return "missing"


def _embedders(folder: Path) -> Mapping[str, Fits]:
    """As the card says; none where it cannot be read, which loading it will tell."""
    try:
        return _card(folder).embedders
    except ModelError:
        return {}


def _card(folder: Path) -> Card:
    path = folder / "verifier.json"
    try:
        card = msgspec.json.decode(path.read_bytes(), type=Card)
    except OSError as error:
        message = f"there is no verifier in {folder} ({error.strerror}): {_RESTORE}"
        raise ModelError(message, code="verifier_missing") from error
    except msgspec.MsgspecError as error:
        raise ModelError(f"{path} is damaged ({error}): {_RESTORE}", code="verifier_error") from error
    if card.format != 1 or card.max_tokens <= _SPECIAL:
        message = f"{path} is of a format that this version does not know: {_RESTORE}"
        raise ModelError(message, code="verifier_error")
    return card


def _verified(path: Path, expected: str | None) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"the verifier's {path.name} cannot be read ({error.strerror}): {_RESTORE}"
        raise ModelError(message, code="verifier_error") from error
    if hashlib.sha256(content).hexdigest() != expected:
        message = f"the verifier's {path.name} is not the one that verifier.json names: {_RESTORE}"
        raise ModelError(message, code="verifier_error")
    return content


def _tokenizer(content: bytes) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content.decode("utf-8"))
    tokenizer.encode_special_tokens = True  # "</s>" in a question is text and ends nothing
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _session(content: bytes) -> Any:
    # Here, since importing it takes a third of a second, which the event loop must not wait for.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the pool's threads are the parallelism
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it keeps the most that a pair ever needed, for each thread
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

"""A classifier without usable weights takes the semantic tier out, not the gateway."""

from __future__ import annotations

import numpy as np
import pytest

from stratacache.errors import ModelError
from stratacache.models.use import default_fingerprint
from stratacache.policy.cacheability import classify, promising, unclassified
from stratacache.wiring import semantic

VECTOR = np.full(512, 512**-0.5, np.float32)


def refused() -> None:
    raise ModelError("the weights (weights.bin) are not those that were released", code="classifier_error")


def test_unusable_weights_are_logged_and_nothing_is_cacheable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(semantic, "packaged", refused)
    decisions = semantic._decisions(default_embedder=True)
    assert decisions.classify is unclassified
    said = decisions.classify("how do I bake bread")
    assert decisions.confirm(said, VECTOR, default_fingerprint()) is said
    assert "weights.bin" in caplog.text


def test_without_those_for_vectors_the_words_decide(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(semantic, "packaged_head", refused)
    decisions = semantic._decisions(default_embedder=True)
    assert decisions.classify is classify
    said = decisions.classify("how do I bake bread")
    assert decisions.confirm(said, VECTOR, default_fingerprint()) == said
    assert "by their words alone" in caplog.text


def test_vectors_of_another_embedder_have_no_say() -> None:
    assert semantic._decisions(default_embedder=False).classify is classify
    decisions = semantic._decisions(default_embedder=True)
    assert decisions.classify is promising
    said = decisions.classify("how do I bake bread")
    assert decisions.confirm(said, VECTOR[:2], "another/1") == classify("how do I bake bread")
    assert decisions.confirm(said, VECTOR, default_fingerprint()) != said

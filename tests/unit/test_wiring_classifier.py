"""A classifier without usable weights takes the semantic tier out, not the gateway."""

from __future__ import annotations

import pytest

from stratacache.errors import ModelError
from stratacache.policy.cacheability import classify, unclassified
from stratacache.wiring import semantic


def test_unusable_weights_are_logged_and_nothing_is_cacheable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> None:
        raise ModelError(
            "the weights (weights.bin) are not those that were released", code="classifier_error"
        )

    monkeypatch.setattr(semantic, "packaged", refused)
    assert semantic._classifier() is unclassified
    assert "weights.bin" in caplog.text


def test_released_weights_are_used() -> None:
    assert semantic._classifier() is classify
